"""The environment of a child, from an allow-list: nothing else of the user's reaches it.

The API key reaches agents and no other process.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors.installation import module_path

RUN_VARIABLE = "STARK_RUN"  # marks every process of a run, so that leftovers can be found
# What is in the environment under our name and is not a setting: marks, tests' tools, the store.
NO_SETTINGS = (
    *(RUN_VARIABLE, "STARK_FAILPOINTS", "STARK_FAILPOINTS_SEED"),
    *("STARK_BUILD_STORE", "STARK_TOOLKITS", "STARK_COMMAND"),
)

ALLOWED_VARIABLES = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "CC", "CXX", "TORCH_CUDA_ARCH_LIST", "TORCH_HOME"),
)
ALLOWED_PREFIXES = ("LC_", "CUDA_", "OMP_", "MKL_", "STARK_")
# The way to the model's server: key, address, proxies and certificates.
AGENT_VARIABLES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
AGENT_PREFIX = "ANTHROPIC_"
# The way to a batch system's commands and to other hosts.
LAUNCHER_PREFIXES = ("SLURM_", "PBS_", "LSF_", "LSB_", "KUBE", "SSH_AUTH_SOCK")


def child_environment(
    environ: Mapping[str, str],
    run_id: str,
    *,
    key: bool = False,
    launches: bool = False,
    gpu: str | None = None,
) -> dict[str, str]:
    """Return what a child may see; `key` adds the model's variables, `gpu` shows one card only.

    `launches` adds what a batch system's commands need.
    """
    seen = {
        name: value
        for name, value in environ.items()
        if name in ALLOWED_VARIABLES
        or name.startswith(ALLOWED_PREFIXES)
        or (launches and name.startswith(LAUNCHER_PREFIXES))
        or (key and (name in AGENT_VARIABLES or name.startswith(AGENT_PREFIX)))
    }
    seen[RUN_VARIABLE] = run_id
    seen["PYTHONPATH"] = module_path(environ)  # the user's other packages stay in reach
    seen["PYTHONUNBUFFERED"] = "1"
    # setproctitle would write its title over the environment, where leftovers are looked up.
    seen["SPT_NOENV"] = "1"
    if gpu is not None:
        seen["CUDA_VISIBLE_DEVICES"] = gpu
    return seen
