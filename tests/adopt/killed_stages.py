"""A stage of `adopt.py` in a process that kills itself before its N-th change of a file."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

NEVER = 1_000_000
QUICKLY = {  # timings of a moment: what is tested is not how long something takes
    "actors.adopt.look.look.STEP_S": 0.02,
    "actors.adopt.tasks.task_proof.TIMED_S": 0.01,
}


OWNERS = {"replace": Path, "rename": Path, "unlink": Path, "rmtree": shutil, "fsync": os}
CHANGES = ("replace", "rename", "unlink", "rmtree")
WRITES = ("fsync",)  # of a file that has not its name yet


def run_stage(words: list[str], changes: int = NEVER, functions: Sequence[str] = CHANGES) -> int:
    """Run a stage's command; return its exit status, -9 where it was killed.

    `changes`: how many of these functions are called before the kill: by default files are
    replaced, renamed or removed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "actors.adopt.stages"])
    process = context.Process(target=_run, args=(words, changes, functions))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run(words: list[str], changes: int, functions: Sequence[str]) -> None:
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # until the process ends
    import torch

    from scripts.adopt import main

    torch.set_num_threads(1)
    for name, value in QUICKLY.items():
        module, _, attribute = name.rpartition(".")
        setattr(sys.modules[module], attribute, value)
    left = [changes]
    for name in functions:
        setattr(OWNERS[name], name, _killing(getattr(OWNERS[name], name), left))
    sys.exit(main(words))


def _killing(function: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def changed(*given: Any, **named: Any) -> Any:
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return function(*given, **named)

    return changed
