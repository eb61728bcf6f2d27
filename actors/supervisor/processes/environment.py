"""The environment of a child, from an allow-list: no other variable of the user reaches it.

Only agents get the API key.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors.installation import module_path

RUN_VARIABLE = "STARK_RUN"  # marks every process of a run, so that orphans can be found
# Variables with our prefix that are not settings: the mark, tools of tests, the build store.
NO_SETTINGS = (
    *(RUN_VARIABLE, "STARK_FAILPOINTS", "STARK_FAILPOINTS_SEED"),
    *("STARK_BUILD_STORE", "STARK_TOOLKITS", "STARK_COMMAND"),
)

ALLOWED_VARIABLES = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "CC", "CXX", "TORCH_CUDA_ARCH_LIST", "TORCH_HOME"),
)
ALLOWED_PREFIXES = ("LC_", "CUDA_", "OMP_", "MKL_", "STARK_")
# How to reach the model's server: key, address, proxies and certificates.
AGENT_VARIABLES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
AGENT_PREFIX = "ANTHROPIC_"
# How to reach a batch system and other hosts.
LAUNCHER_PREFIXES = ("SLURM_", "PBS_", "LSF_", "LSB_", "KUBE", "SSH_AUTH_SOCK")


def child_environment(
    environ: Mapping[str, str],
    run_id: str,
    *,
    key: bool = False,
    launches: bool = False,
    gpu: str | None = None,
) -> dict[str, str]:
    """Return the environment of a child; `key` adds the model's variables, `gpu` shows one card.

    `launches` adds what a batch system's commands need.
    """
    allowed = {
        name: value
        for name, value in environ.items()
        if name in ALLOWED_VARIABLES
        or name.startswith(ALLOWED_PREFIXES)
        or (launches and name.startswith(LAUNCHER_PREFIXES))
        or (key and (name in AGENT_VARIABLES or name.startswith(AGENT_PREFIX)))
    }
    allowed[RUN_VARIABLE] = run_id
    allowed["PYTHONPATH"] = module_path(environ)  # the user's other packages stay importable
    allowed["PYTHONUNBUFFERED"] = "1"
    # setproctitle would write its title over the environment, where orphans are looked up.
    allowed["SPT_NOENV"] = "1"
    if gpu is not None:
        allowed["CUDA_VISIBLE_DEVICES"] = gpu
    return allowed
