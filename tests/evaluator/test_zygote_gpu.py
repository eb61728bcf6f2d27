"""The zygote of a card: it has Triton ready, and no thread or device that a fork would lack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

IMPORTS = """\
import json, os, sys
os.environ["TRITON_CACHE_DIR"] = sys.argv[1]
from actors.evaluator.children import zygote
zygote.import_everything("cuda")
opened = [os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")]
found = {"threads": len(os.listdir("/proc/self/task")), "opened": opened}
pid = os.fork()
if not pid:
    os.environ["TRITON_CACHE_DIR"] = sys.argv[2]
    os.environ["CC"] = "/bin/false"
    import torch, triton
    from actors.evaluator.children import triton_driver
    triton_driver.install()
    is_usable = torch.ones(2, device="cuda").sum().item() == 2  # Triton itself initialises nothing
    properties = triton.runtime.driver.active.utils.get_device_properties(0)
    os._exit(0 if is_usable and properties["multiprocessor_count"] > 0 else 1)
found["status"] = os.waitpid(pid, 0)[1]
print(json.dumps(found))
"""


def test_triton_is_ready_and_nothing_runs(tmp_path: Path) -> None:
    """A fork without a C compiler uses the card and Triton's driver."""
    pytest.importorskip("triton")
    folders = tmp_path / "zygote", tmp_path / "candidate"
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *map(str, folders)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["threads"] == 1
    assert not [each for each in found["opened"] if "nvidia" in each]
    assert found["status"] == 0, done.stderr
    (compiled,) = folders[0].rglob("*.so")
    (written,) = folders[1].rglob("*.so")
    assert written.read_bytes() == compiled.read_bytes()
