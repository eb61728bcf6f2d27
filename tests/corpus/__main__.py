"""`python -m tests.corpus [--device cpu|cuda] [--json FILE] [NAME …]`: one warm judge, a table.

Honest candidates have to be correct, hostile ones must not be credited (correct and faster), and
neither may leave a trace; the status is 1 where one was judged falsely.
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
    """Return the flags."""
    parser = OneLineParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="one line of JSON a candidate goes there")
    parser.add_argument("names", nargs="*", help="these candidates only")
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
        said = stage.start()
        print(f"level {stage.judge.level}" if said.startswith("{") else said, flush=True)
        judged = run(stage, paths)
        return conclude(judged, flags.json)


def conclude(judged: list[Judged], place: Path | None) -> int:
    """Write and say what was judged falsely; return the status."""
    if place:
        place.write_bytes(b"".join(map(line, judged)))
    false = [one for one in judged if not one.fair]
    print(f"{len(judged)} judged, {len(false)} falsely{':' if false else ''}")
    for one in false:
        print(f"   {one.path.stem}: {'; '.join(one.damage) or one.words[:160]}")
    return min(len(false), 1)


def run(stage: Scene, paths: list[Path]) -> list[Judged]:
    """Judge all; after each category a plain candidate must still be correct."""
    judged = []
    for kind, group in groupby(paths, key=category):
        for path in group:
            judged.append(stage.look(path))
            print(row(judged[-1]), flush=True)
        unfair = stage.unfair()
        if unfair:  # which one of this category did it is not known
            print(f"!! {kind}: {unfair[0]}", flush=True)
            judged[-1] = dataclasses.replace(judged[-1], damage=(*judged[-1].damage, *unfair))
    return judged


def row(one: Judged) -> str:
    """Return one candidate's line of the table."""
    word = one.verdict.verdict if one.verdict else "?"
    speedup = f"{one.verdict.speedup:.2f}" if one.verdict and one.verdict.speedup else "-"
    reason = "; ".join(one.damage) or (one.verdict.reason if one.verdict else one.words)
    return (
        f"{'  ' if one.fair else '!!'} {one.path.parent.name:8} {one.category:18} "
        f"{one.path.stem:22} {word:14} {speedup:>6} {one.seconds:5.1f} s  {reason[:90]}"
    )


def line(one: Judged) -> bytes:
    """Return one candidate's line of JSON."""
    whole = {
        "name": one.path.stem,
        "honest": one.honest,
        "category": one.category,
        "fair": one.fair,
        "seconds": round(one.seconds, 3),
        "damage": one.damage,
        "verdict": one.verdict,
        "words": "" if one.verdict else one.words,
    }
    return msgspec.json.encode(whole) + b"\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
