"""The words of `scripts/ship.py`: package, check, wheel, hub."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from actors.exit_status import ExitStatus
from actors.ship import battery_process, hub_layout, installed_package, wheels
from actors.ship.battery_process import BatteryResults
from actors.ship.errors import NothingToShipError, ShipError
from actors.ship.new_folder import check_free, new_folder, place
from actors.ship.package import (
    PackageFiles,
    check_license,
    checked_name,
    name_of,
    opened,
    package_files,
    parts_of,
)
from actors.ship.package_readme import readme
from actors.ship.shipped_winner import FITTED, of_file, of_fitted, of_run

NO_COMPILER = "the original runs"  # so begins a note of package_texts/comparison.py
MOST_SHOWN = 250  # characters of a failed check in the last line; its own line has all


def run(parsed: argparse.Namespace) -> int:
    """Carry out one command; return the exit status; raise ShipError."""
    match parsed.word:
        case "package":
            return _package(parsed)
        case "check":
            return _check(parsed.folder, parsed.device)
        case "wheel":
            wheel, notes = wheels.build(opened(parsed.folder), parsed.abi, parsed.cpu)
            _say(*notes, f"{wheel}: built")
            return ExitStatus.DONE
        case _:
            out = parsed.out or Path(f"{parsed.folder}-hub")
            _say(*hub_layout.write(opened(parsed.folder), out), f"{out}: written; nothing uploaded")
            return ExitStatus.DONE


def _package(parsed: argparse.Namespace) -> int:
    fitted = None
    if parsed.run.is_file():
        if parsed.task or parsed.node is not None:
            raise ShipError("--task and --node choose within a run, and RUN is a file")
        winners = [of_file(parsed.run)]
    elif (parsed.run / FITTED).is_dir():
        if parsed.task or parsed.node is not None:
            raise ShipError("--task and --node choose within a run, and RUN is an adopted model")
        winners, fitted = of_fitted(parsed.run)
    else:
        winners = of_run(parsed.run, parsed.task, parsed.node)
    name = name_of(winners[0]) if parsed.name is None else parsed.name
    checked_name(name)
    check_license(parsed.license)
    out = parsed.out or Path("dist") / name
    check_free(out)
    limits = {part: winner.limits for part, winner in parts_of(winners).items()}
    results = None
    while True:
        made = package_files(
            name, winners, license_name=parsed.license, fitted=fitted, limits=limits
        )
        found, results = _tried(made, out, limits, results)
        if found is None:
            return ExitStatus.DONE
        _say("the original runs in these uses; what failed is tried again")
        limits = joined(limits, found)


def joined(
    limits: dict[str, tuple[str, ...]], found: dict[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return part -> the limits of both."""
    return {
        part: tuple(sorted({*limits.get(part, ()), *found.get(part, ())}))
        for part in {**limits, **found}
    }


def _tried(
    made: PackageFiles,
    out: Path,
    held: dict[str, tuple[str, ...]],
    before: BatteryResults | None,
) -> tuple[dict[str, tuple[str, ...]] | None, BatteryResults]:
    """Write a package, run its battery, give it its place; return None and the results.

    Where a check fails that a limit prevents, return part -> limits: the package is not placed.
    `held`: the limits that it has; a check that fails in spite of its limit ends the command.
    `before`: results with fewer limits.  More limits have the original run in more uses, so that
    only what failed is tried again.
    """
    with new_folder(out, made.files) as scratch:
        results = _battery_results(scratch, made.module, before)
        _require_kernels(results)
        untried = {part: winner.untried for part, winner in made.parts.items()}
        limits = battery_process.limits_of(results, untried)
        if joined(held, limits) != held:
            return limits, results
        failed = battery_process.failed_checks(results)
        if failed:
            more = f" (and {len(failed) - 1} more, above)" if len(failed) > 1 else ""
            first = textwrap.shorten(failed[0], MOST_SHOWN, placeholder="…")
            raise NothingToShipError(
                f"nothing was written, for the battery found what is not right: {first}{more}"
            )
        battery_process.store(scratch, made.module, results)
        (scratch / "README.md").write_text(readme(made, results), encoding="utf-8")
        place(scratch, out)
    _say_placed(made, out, results)
    return None, results


def _battery_results(scratch: Path, module: str, before: BatteryResults | None) -> BatteryResults:
    """Return the results of a package's battery: of all checks, or again of those that failed."""
    again = battery_process.failed_names(before) if before else []
    if before is not None and not again:
        return before
    found = battery_process.run(scratch, module, _say, only=again)
    return battery_process.joined(before, found)


def _require_kernels(results: BatteryResults) -> None:
    """Raise where the original ran in place of the kernels, which nothing has tried then."""
    for part, rows in results.parts.items():
        row = rows.get("values")
        if row and row.outcome == "not made" and row.note.startswith(NO_COMPILER):
            note = textwrap.shorten(row.note, MOST_SHOWN, placeholder="…")
            raise NothingToShipError(f"nothing was written, for no kernel ran: {part}: {note}")


def _say_placed(made: PackageFiles, out: Path, results: BatteryResults) -> None:
    """Tell what the battery found, the package's limits, and where it is."""
    lines = battery_process.summary_lines(results)
    for part, uses in made.limits.items():
        if uses:
            lines.append(f"{part}: the original runs in: {', '.join(uses)}")
    if battery_process.is_untried(results):
        lines.append("untried: run the command again where the kernels' device is")
    _say(*lines, f"{out}: {made.name} {made.version}, imported as {made.module}")


def _check(path: Path, device: str | None) -> int:
    wheel = path if path.is_file() else wheels.build(opened(path), "jit", "v3")[0]
    with installed_package.environment(wheel) as installed:
        package = opened(installed.folder)
        results = battery_process.run(
            installed.folder, package.module, _say, device=device, python=installed.python
        )
    _say(*battery_process.summary_lines(results))
    return ExitStatus.NEGATIVE if battery_process.failed_checks(results) else ExitStatus.DONE


def _say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)  # noqa: T201  # the command's output
