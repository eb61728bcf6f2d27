"""`python -m tests.corpus [--device cpu|cuda] [--json FILE] [NAME …]`: one warm judge, a table.

Honest candidates must be correct.  Hostile candidates must not be credited (correct and faster).
Neither may do damage.  The exit status is 1 if a candidate was judged falsely.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from itertools import groupby
from pathlib import Path

import msgspec

from actors.cli import OneLineParser
from tests.corpus.scene import Judged, Scene, candidates, category, scene


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = OneLineParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--json", type=Path, help="write one line of JSON for each candidate to this file"
    )
    parser.add_argument("names", nargs="*", help="judge only these candidates")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Judge every candidate (or those named); return 1 when one was judged falsely."""
    flags = parse(arguments)
    paths = candidates(flags.device, flags.names)
    unknown = set(flags.names) - {path.stem for path in paths}
    if unknown:
        print(f"no candidate is called {', '.join(sorted(unknown))}")
        return 2
    with scene(flags.device) as stage:
        text = stage.start()
        print(f"level {stage.judge.level}" if text.startswith("{") else text, flush=True)
        judged = judge_all(stage, paths)
        return report(judged, flags.json)


def judge_all(stage: Scene, paths: list[Path]) -> list[Judged]:
    """Judge all candidates; after each category the plain candidate must still be correct."""
    judged = []
    for kind, group in groupby(paths, key=category):
        for path in group:
            judged.append(stage.judge_candidate(path))
            print(table_row(judged[-1]), flush=True)
        aftermath = stage.aftermath()
        if aftermath:  # the damage is the category's: which of its candidates did it is unknown
            print(f"!! {kind}: {aftermath[0]}", flush=True)
            judged[-1] = dataclasses.replace(judged[-1], damage=(*judged[-1].damage, *aftermath))
    return judged


def report(judged: list[Judged], json_file: Path | None) -> int:
    """Write the JSON, print the candidates that were judged falsely, return the exit status."""
    if json_file:
        json_file.write_bytes(b"".join(map(json_line, judged)))
    false = [one for one in judged if not one.is_judged_right]
    print(f"{len(judged)} judged, {len(false)} falsely{':' if false else ''}")
    for one in false:
        print(f"   {one.path.stem}: {'; '.join(one.damage) or one.text[:160]}")
    return min(len(false), 1)


def table_row(one: Judged) -> str:
    """Return one candidate's row of the table."""
    outcome = one.verdict.verdict if one.verdict else "?"
    speedup = f"{one.verdict.speedup:.2f}" if one.verdict and one.verdict.speedup else "-"
    reason = "; ".join(one.damage) or (one.verdict.reason if one.verdict else one.text)
    return (
        f"{'  ' if one.is_judged_right else '!!'} {one.path.parent.name:8} {one.category:18} "
        f"{one.path.stem:22} {outcome:14} {speedup:>6} {one.seconds:5.1f} s  {reason[:90]}"
    )


def json_line(one: Judged) -> bytes:
    """Return one candidate's line of JSON."""
    whole = {
        "name": one.path.stem,
        "honest": one.is_honest,
        "category": one.category,
        "fair": one.is_judged_right,
        "seconds": round(one.seconds, 3),
        "damage": one.damage,
        "verdict": one.verdict,
        "words": "" if one.verdict else one.text,
    }
    return msgspec.json.encode(whole) + b"\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
