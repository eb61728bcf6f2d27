"""The check in a process of its own: a kernel that kills the process costs that process only."""

from __future__ import annotations

import math
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from actors.adopt.check.check import PARTIAL, PROGRESS
from actors.adopt.check.check_result import Check
from actors.adopt.fit.fit import PACKAGE, Fit
from actors.adopt.stage.errors import AdoptError, TimeOverError
from actors.adopt.stage.exec_child import has_ended, started_child
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.stage.time_limit import UNLIMITED, TimeLimit

RESULT = "check.json"
DROPPED = "check.dropped"  # name -> reason, of winners that killed a check
OWN_PART = 0.9  # of the time, in which the check itself ends; at its end it is killed
LEAST_MINUTES = 0.01
SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "adopt.py"


def check_apart(
    folder: StageFolder,
    seconds: float,
    say: Callable[[str], None],
    limit: TimeLimit = UNLIMITED,
) -> Check:
    """Run the check in child processes until one ends; drop the winners that ended others."""
    count = len(folder.read("fit.json", Fit, "adopt.py fit").winners)
    dropped: dict[str, str] = {}
    folder.remove(RESULT, "report.md", DROPPED, PROGRESS)
    for _ in range(count + 1):
        folder.remove(PARTIAL)
        folder.write(DROPPED, dropped)
        status = _check_status(folder, seconds, limit)
        if status >= 0:
            break
        tried = [name for name in _progress(folder) if name not in dropped]
        name = signal.Signals(-status).name
        if status in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT) or not tried:
            raise AdoptError(f"the check was ended by {name}; the same command begins it again")
        dropped[tried[-1]] = f"the process died ({name})"
        say(f"dropped: {tried[-1]}: {dropped[tried[-1]]}")
    folder.remove(DROPPED)
    if not folder.has(RESULT):
        raise AdoptError(f"the check of {folder.path} did not end: its output is above")
    return folder.read(RESULT, Check, "adopt.py check")


def _check_status(folder: StageFolder, seconds: float, limit: TimeLimit) -> int:
    """Run one child process; return its exit status; raise TimeOverError at the end of the time."""
    command = [sys.executable, str(SCRIPT), "check", str(folder.path), "--in-process"]
    command += ["--seconds", str(seconds)]
    if not math.isinf(limit.left_s):
        command += ["--max-minutes", str(max(limit.left_s * OWN_PART / 60, LEAST_MINUTES))]
    with started_child(command, signal.SIGKILL) as child:
        if has_ended(child, limit.left_s):
            return child.returncode
    if folder.has(RESULT):  # it is written last, and a process takes seconds to end
        return 0
    if folder.has(PARTIAL):
        (folder.path / PARTIAL).replace(folder.path / RESULT)
        return 0
    raise TimeOverError(
        f"the time was over before the check had a result: {folder.path}/{PACKAGE} has the"
        f" winners, unchecked; `adopt.py check {shlex.quote(str(folder.path))}` begins it again"
    )


def dropped_before(folder: StageFolder) -> dict[str, str]:
    """Return the winners that killed an earlier process of this check."""
    if not folder.has(DROPPED):
        return {}
    try:
        return msgspec.json.decode((folder.path / DROPPED).read_bytes(), type=dict[str, str])
    except msgspec.DecodeError:
        return {}


def _progress(folder: StageFolder) -> list[str]:
    """Return the winners that were being tried when a check died."""
    try:
        return folder.read(PROGRESS, list[str], "adopt.py check")
    except AdoptError:
        return []
