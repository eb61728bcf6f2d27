"""The page of the judge's figures, docs/judge.md: one run of one commit.

    python -m scripts.benchmarks.judge_page [--device cpu|cuda] [--brief] [--part NAME …]
        [--commit TEXT] > docs/judge.md

It runs the commands that measure the judge, one after the other, and prints what they print: on a
card in about 25 minutes, or with --brief, which takes fewer kernels, in less than 2.
Nothing is selected or corrected by hand: the order of the honest kernels is drawn by the commit,
their kinds in turn, and those for which there is no time are counted.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time

from actors.cli import OneLineParser
from actors.evaluator.devices import device_description as devices
from protocol.values import Value
from scripts.benchmarks.machine_info import machine


class Part(Value, frozen=True, kw_only=True):
    """One command of the page."""

    title: str
    module: str
    arguments: tuple[str, ...] = ()
    host: tuple[str, ...] | None = None  # other arguments on a host
    # The most seconds on a card and on a host; the command gets nine tenths of them.
    on_card_s: float
    on_host_s: float
    has_limit: bool = True  # whether it takes --seconds
    # With --brief: other arguments on a card, and the most seconds; None: the part is left out.
    brief: tuple[str, ...] | None = None
    brief_s: float = 0.0


COMMIT = "COMMIT"  # replaced by the commit that is measured
# Where a part gets less time than it wants, its most telling lines come first.
PARTS = {
    "truth": Part(
        title="Figures of honest kernels beside an ordinary clock",
        module="scripts.benchmarks.truth",
        arguments=("--time-s", "0.9", "--draw", COMMIT),
        host=(),
        on_card_s=240.0,
        on_host_s=3200.0,
        brief=("--time-s", "0.9", "--draw", COMMIT),
        brief_s=42.0,
    ),
    "mix": Part(
        title="Verdicts a minute, and seconds of contenders and others",
        module="scripts.benchmarks.judge_mix",
        on_card_s=115.0,
        on_host_s=1000.0,
        brief=(),
        brief_s=62.0,
    ),
    "honest": Part(
        title="Honest candidates, a third of them beside another program",
        module="scripts.benchmarks.honest_judgments",
        on_card_s=1125.0,
        on_host_s=1200.0,
    ),
    "corpus": Part(
        title="Hostile and honest candidates",
        module="tests.corpus",
        arguments=("stale_async", "slot_spinner", "inputs_read_ahead", "graph_empty", "raw_kernel"),
        host=(),
        on_card_s=45.0,
        on_host_s=450.0,
        has_limit=False,
    ),
}
LIMIT_SHARE = 0.9  # of a part's seconds: its command begins nothing after that
END_S = 10.0  # for the end of a command that is interrupted
STOPPED = 130  # exit status of what Ctrl-C has ended
INTRODUCTION = """\
# The judge, measured

The judge (`python -m actors.evaluator`, and each evaluator of a run) is described in
[actors/evaluator/README.md](../actors/evaluator/README.md), its rule in
`actors/evaluator/timing/timing_policy.py`, its laws in [evaluation-laws.md](evaluation-laws.md).

A figure is the time of a block of calls, each on inputs of its own that a trusted process wrote
before, less what a block takes besides its calls, divided by the calls.  The judge's clock runs
from the moment in which a frozen process goes on until it has answered, is frozen again, and a card
has nothing left to do.  Reference and candidate are timed in turn (A B B A).  The ratio is the
median of the groups' ratios, and its interval that of signed ranks, of fewer than eight groups that
of Student's t.  Honest kernels are also timed by CUDA events (a host's
clock on a host) around the same calls, in their own process, and by a process apart after each
group, whose interval says how much the machine's speed changed in between.  How far off the judge
is, is the median over the groups.
[Decision 081](decisions/081-one-figure-from-trusted-inputs.md) has the reasons, and so have
[100](decisions/100-what-a-block-takes-besides-its-calls.md),
[111](decisions/111-blocks-of-few-calls-and-late-answers.md),
[112](decisions/112-values-of-calls-differ.md),
[119](decisions/119-the-same-calls-by-their-own-clock.md) and
[159](decisions/159-blocks-are-ordered-and-begin-by-lot.md).

This page is the output of `python -m scripts.benchmarks.judge_page` on one commit.  Nothing in it
is selected or corrected by hand: the commit decides the order of the honest kernels, so those that
there is time for are a fair choice.  A part that is not over in its time says so.
"""


def main(arguments: list[str]) -> int:
    """Print the page."""
    parser: argparse.ArgumentParser = OneLineParser(prog="python -m scripts.benchmarks.judge_page")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument("--part", choices=tuple(PARTS), action="append", help="only this part")
    parser.add_argument("--brief", action="store_true", help="fewer kernels (on a card)")
    parser.add_argument("--commit", default="", help="what is measured, where git can't tell")
    try:
        print_page(parser.parse_args(arguments))
    except KeyboardInterrupt:
        print("\nStopped with Ctrl-C before its end.")
        return STOPPED
    return 0


def print_page(flags: argparse.Namespace) -> None:
    """Print the introduction and each part."""
    print(INTRODUCTION)
    date = time.strftime("%Y-%m-%d")
    measured = flags.commit or commit()
    print(f"Commit {measured}, {date}, {machine()}.", flush=True)
    for name in flags.part or list(PARTS):
        is_brief = flags.brief and flags.device == "cuda"
        print_part(PARTS[name], flags.device, measured, is_brief=is_brief)


def print_part(part: Part, device: str, measured: str, *, is_brief: bool) -> None:
    """Run one part's command, and print its section; `measured`: the commit."""
    if is_brief and part.brief is None:
        return
    chosen = part.arguments
    if device == "cpu" and part.host is not None:
        chosen = part.host
    if is_brief and part.brief is not None:
        chosen = part.brief
    on_card_s = part.brief_s if is_brief else part.on_card_s
    limit_s = on_card_s if device == "cuda" else part.on_host_s
    limit = ["--seconds", f"{LIMIT_SHARE * limit_s:.0f}"] if part.has_limit else []
    drawn = [measured if word == COMMIT else word for word in chosen]
    words = [part.module, "--device", device, *limit, *drawn]
    shown = " ".join(f'"{word}"' if " " in word else word for word in words)
    print(f"\n## {part.title}\n\n`python -m {shown}`\n\n```text", flush=True)
    try:
        print_output([sys.executable, "-u", "-m", *words], limit_s)
    finally:
        print("```", flush=True)


def print_output(command: list[str], limit_s: float) -> None:
    """Print what a command prints, and how it ended if that is not as it should."""
    began = time.monotonic()
    # In a session of its own: a key that stops both would reach it twice.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        timer = threading.Timer(limit_s, interrupt, [process])
        timer.start()
        try:
            for line in process.stdout or ():
                print(line.decode(errors="replace"), end="", flush=True)
            status = process.wait()
        except KeyboardInterrupt:
            interrupt(process)
            print((process.stdout.read() if process.stdout else b"").decode(errors="replace"))
            raise
        finally:
            timer.cancel()
    if time.monotonic() - began >= limit_s:
        print(f"(not over after {limit_s:g} s)")
    elif status:
        print(f"(exit status {status})")


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """End a command: it may end its own processes before."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()


def commit() -> str:
    """Return the commit of the working tree."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "(unknown)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
