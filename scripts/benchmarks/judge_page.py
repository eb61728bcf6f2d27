"""The page of the judge's figures, docs/judge.md: one run of one commit.

    python -m scripts.benchmarks.judge_page [--device cpu|cuda] [--part NAME …] > docs/judge.md

It runs the commands that measure the judge, one after the other, and prints what they print.
Nothing is selected or corrected by hand.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from actors.cli import OneLineParser
from actors.evaluator.devices import device as devices
from scripts.benchmarks.machine_info import machine

PARTS = {
    "truth": (
        "Figures of honest kernels beside an ordinary clock",
        ("scripts.benchmarks.truth", "--device", "{device}"),
    ),
    "mix": (
        "Seconds a verdict, contenders and others",
        ("scripts.benchmarks.judge_mix", "--device", "{device}"),
    ),
    "judge": (
        "Twelve candidates in C++ or CUDA, ten repeats of one, faults",
        ("scripts.benchmarks.judge", "--device", "{device}", "--field", "2"),
    ),
    "corpus": (
        "Hostile and honest candidates",
        ("tests.corpus", "--device", "{device}"),
    ),
}
PART_S = 3600.0
INTRODUCTION = """\
# The judge, measured

The judge (`python -m actors.evaluator`, and each evaluator of a run) is described in
[actors/evaluator/README.md](../actors/evaluator/README.md), its rule in
`actors/evaluator/timing/timing_policy.py`.
[Decision 081](decisions/081-one-figure-from-trusted-inputs.md) has the reasons.  This page is the
output of one command on one commit: `python -m scripts.benchmarks.judge_page`.
Nothing in it is selected or corrected by hand.
"""


def main(arguments: list[str]) -> int:
    """Print the page."""
    parser: argparse.ArgumentParser = OneLineParser(prog="python -m scripts.benchmarks.judge_page")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument("--part", choices=tuple(PARTS), action="append", help="only this part")
    flags = parser.parse_args(arguments)
    print(INTRODUCTION)
    print(f"Commit {commit()}, {time.strftime('%Y-%m-%d')}, {machine()}.", flush=True)
    for name in flags.part or list(PARTS):
        title, command = PARTS[name]
        words = [word.format(device=flags.device) for word in command]
        print(f"\n## {title}\n\n`python -m {' '.join(words)}`\n\n```text")
        print(output_of([sys.executable, "-m", *words]), end="")
        print("```", flush=True)
    return 0


def output_of(command: list[str]) -> str:
    """Return what a command prints, and its exit status if that is not 0."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PART_S)
    except subprocess.TimeoutExpired:
        return f"(not over after {PART_S:g} s)\n"
    status = f"(exit status {done.returncode})\n" if done.returncode else ""
    return done.stdout + status


def commit() -> str:
    """Return the commit of the working tree."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "(unknown)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
