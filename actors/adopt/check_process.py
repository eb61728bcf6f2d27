"""The check in a process of its own: a kernel that kills the process costs that process only."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from actors.adopt.check import PROGRESS, Check, read_progress
from actors.adopt.errors import AdoptError
from actors.adopt.exec_child import run_child
from actors.adopt.fit import Fit
from actors.adopt.stage_folder import StageFolder

DROPPED = "check.dropped"  # name -> reason, of winners that killed a check
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "adopt.py"


def check_apart(folder: StageFolder, seconds: float, say: Callable[[str], None]) -> Check:
    """Run the check in child processes until one ends; drop the winners that ended others."""
    count = len(folder.read("fit.json", Fit, "adopt.py fit").winners)
    dropped: dict[str, str] = {}
    folder.remove("check.json", "report.md", DROPPED, PROGRESS)
    for _ in range(count + 1):
        folder.write(DROPPED, dropped)
        command = [sys.executable, str(SCRIPT), "check", str(folder.path), "--in-process"]
        status = run_child([*command, "--seconds", str(seconds)], signal.SIGKILL)
        if status >= 0:
            break
        tried = [name for name in read_progress(folder) if name not in dropped]
        name = signal.Signals(-status).name
        if status in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT) or not tried:
            raise AdoptError(f"the check was ended by {name}; the same command begins it again")
        dropped[tried[-1]] = f"the process died ({name})"
        say(f"dropped: {tried[-1]}: {dropped[tried[-1]]}")
    folder.remove(DROPPED)
    if not folder.has("check.json"):
        raise AdoptError(f"the check of {folder.path} did not end: its output is above")
    return folder.read("check.json", Check, "adopt.py check")


def dropped_before(folder: StageFolder) -> dict[str, str]:
    """Return the winners that killed an earlier process of this check."""
    if not folder.has(DROPPED):
        return {}
    try:
        return msgspec.json.decode((folder.path / DROPPED).read_bytes(), type=dict[str, str])
    except msgspec.DecodeError:
        return {}
