"""The battery of a package in a process of its own, and what its results mean."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from actors.ship.errors import ShipError
from protocol.frozen_struct import Value

RESULTS = "battery.json"
SECOND = "second instance"
BATTERY_S = 1800.0
# A failed check -> the limit with which the plain forward runs in that use.
LIMIT_OF = {
    "operator": "operator",
    "opcheck": "operator",
    "operator gradients": "operator",
    "export": "operator",
    "compile": "compile",
    "threads": "threads",
    "side stream": "side stream",
    "CUDA graph": "CUDA graph",
    SECOND: SECOND,
    "other mode": "other mode",
}


class CheckResult(Value, frozen=True, kw_only=True):
    """One check of one winner."""

    outcome: str  # passed, failed, "not made"
    note: str = ""


class BatteryResults(Value, frozen=True, kw_only=True):
    """battery.json."""

    where: dict[str, str]  # torch, python, device
    parts: dict[str, dict[str, CheckResult]]


def run(
    folder: Path,
    module: str,
    say: Callable[[str], None],
    *,
    device: str | None = None,
    python: str = sys.executable,
    only: Collection[str] = (),
) -> BatteryResults:
    """Run the battery of the package in `folder`; raise ShipError where it comes to no results.

    `say`: takes a line for each check as it ends.  `only`: the checks that are made; (): all.
    """
    with tempfile.TemporaryDirectory(prefix="stark-battery-") as scratch:
        file, errors = Path(scratch) / RESULTS, Path(scratch) / "stderr"
        words = [python, "-m", f"{module}.battery", "--json", str(file)]
        words += ["--device", device] if device else []
        words += [word for name in only for word in ("--only", name)]
        # Another environment has its own torch; ours may be on PYTHONPATH, as on clusters.
        own = os.environ.get("PYTHONPATH", "") if python == sys.executable else ""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(folder.absolute()), own])),
            "PYTHONDONTWRITEBYTECODE": "1",  # the folder is what is shipped
        }
        is_over = _said_until_end(words, Path(scratch), environment, errors, say)
        if is_over:
            raise ShipError(f"the battery took more than {BATTERY_S:g} s")
        try:
            return msgspec.json.decode(file.read_bytes(), type=BatteryResults)
        except (OSError, msgspec.DecodeError) as error:
            said = errors.read_text(errors="replace").strip().splitlines() or ["without a word"]
            raise ShipError(f"the battery did not come to its end: {said[-1]}") from error


def _said_until_end(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    errors: Path,
    say: Callable[[str], None],
) -> bool:
    """Run a command and say its lines with their times; return whether it was ended as too long."""
    began = time.monotonic()
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    with process:
        timer = threading.Timer(BATTERY_S, process.kill)
        timer.start()
        try:
            for line in process.stdout or ():
                say(f"[{time.monotonic() - began:3.0f} s] {line.rstrip()}")
        finally:
            timer.cancel()
            process.kill()
    return time.monotonic() - began >= BATTERY_S


def joined(before: BatteryResults | None, later: BatteryResults) -> BatteryResults:
    """Return the results of both, where a check was made twice the later ones."""
    if before is None:
        return later
    parts = {part: {**rows, **later.parts.get(part, {})} for part, rows in before.parts.items()}
    return BatteryResults(where=later.where, parts=parts)


def failed_names(results: BatteryResults) -> list[str]:
    """Return the names of the checks that failed, each once."""
    return list(dict.fromkeys(name for _, name, row in _rows(results) if row.outcome == "failed"))


def store(folder: Path, module: str, results: BatteryResults) -> None:
    """Write battery.json into a package."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1)
    (folder / module / RESULTS).write_bytes(text + b"\n")


def failed_checks(results: BatteryResults) -> list[str]:
    """Return a text for each check that failed."""
    return [
        f"{part}, {name}: {row.note}"
        for part, name, row in _rows(results)
        if row.outcome == "failed"
    ]


def limits_of(
    results: BatteryResults, untried: Mapping[str, Collection[str]] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return part -> limits, where each failed check has a limit; {} otherwise.

    `untried`: part -> uses that the judge did not try; where the battery could not either, they
    are limits.  A wrong second instance comes first: other checks may fail for it.
    """
    failed = [(part, name) for part, name, row in _rows(results) if row.outcome == "failed"]
    several = [(part, name) for part, name in failed if name == SECOND]
    limits: dict[str, set[str]] = {}
    for part, name in several or failed:
        if name not in LIMIT_OF:
            return {}
        limits.setdefault(part, set()).add(LIMIT_OF[name])
    for part, name, row in _rows(results):
        if row.outcome == "not made" and name in (untried or {}).get(part, ()):
            limits.setdefault(part, set()).add(name)
    return {part: tuple(sorted(found)) for part, found in limits.items()}


def summary_lines(results: BatteryResults) -> list[str]:
    """Return a line about the battery, and one for each reason why checks were not made."""
    outcomes = [row.outcome for _, _, row in _rows(results)]
    passed = outcomes.count("passed")
    where = ", ".join(f"{key} {value}" for key, value in results.where.items())
    missing: dict[str, dict[str, None]] = {}  # reason -> names, in order
    for _, name, row in _rows(results):
        if row.outcome == "not made":
            missing.setdefault(row.note, {})[name] = None
    lines = [
        f"not checked: {'everything' if is_untried(results) else ', '.join(names)}: {note}"
        for note, names in missing.items()
    ]
    left = outcomes.count("not made")
    words = f"{passed} of {len(outcomes) - left} checks passed"
    return [*lines, f"battery: {words}{f', {left} not made' if left else ''} ({where})"]


def is_untried(results: BatteryResults) -> bool:
    """Whether no check could be made."""
    return all(row.outcome == "not made" for _, _, row in _rows(results))


def _rows(results: BatteryResults) -> Iterator[tuple[str, str, CheckResult]]:
    for part, rows in results.parts.items():
        for name, row in rows.items():
            yield part, name, row
