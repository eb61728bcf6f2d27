"""Builds: candidates built by fast builds and by torch in the same run; times and equality.

    python -m scripts.benchmarks.builds [NAME ...] [--jobs N] [--alone N] [--store FOLDER]

For each candidate the fast build and torch's own build are compared: the candidate's results, the
docstrings of its functions, the machine code for the device, and for broken candidates the first
error with its line.  Fast builds run one after the other.  torch's builds run `--jobs` at a time,
which is slower for each of them; the first `--alone` of each kind run alone, and only these get a
ratio.  With `--at-once` torch's builds run beside the fast ones.  "right": the candidate's results
passed its own comparison with torch's functions.  "cold" is the time of the first
build with these flags and headers on a machine that has a toolkit: their preparation is in it, and
the next candidate finds it done.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from msgspec import structs

from actors.cli import OneLineParser
from actors.evaluator.fastbuild import (
    FlagSet,
    ImportReport,
    PrecompiledHeaderError,
    flag_sets_of,
    import_in_child,
    prepare_toolkit,
)
from protocol.values import Value
from scripts.benchmarks.machine_info import machine

CANDIDATES = Path(__file__).parents[2] / "tests/fastbuild/candidates"
LIMIT_S = 500.0
KINDS = ("cpu", "cuda", "broken", "cuda_broken")
_ERROR = re.compile(
    r"(?P<file>[\w.]+\.(?:cpp|cu))(?::(?P<line>\d+):\d+: |\((?P<edg>\d+)\): )(?:fatal )?error:? "
    r"(?P<text>.*)"
)
_NOT_CODE = re.compile(r"^\s*Common:|^\s*GLOBAL:\d|^identifier|^Fatbin|^=+$|compile_size|^host =")
_PTXAS = re.compile(r"ptxas (?:error|fatal) .*")
_MODULE_NAME = re.compile(r"_[0-9a-f]{8}_\d+_\w+?_(?:cu|cpp)_[0-9a-f]{8,16}(?:_\d+)?")


class BuildSide(Value, frozen=True, kw_only=True):
    """One way of building one candidate."""

    report: ImportReport
    error: str  # the first error, without folders
    prepared_s: float = 0.0  # what had to be prepared for it before
    code: str = ""  # the device's machine code, as text


def kind_of(name: str) -> str:
    """Return the kind in a candidate's name."""
    return "cuda_broken" if name.startswith("cuda_broken") else name.partition("_")[0]


def first_error(text: str) -> str:
    """Return file, line and text of the first error in a build's log."""
    error = _ERROR.search(text)
    if error:
        # g++ looks for a similar name among all that are declared, and torch declares more.
        text = error["text"].partition("; did you mean")[0]
        return f"{error['file']}:{error['line'] or error['edg']}: {text}"
    fatal = _PTXAS.search(text)
    if fatal:
        return re.sub(r"'[^']*'", "'…'", fatal.group())
    return text.splitlines()[0] if text else ""


def device_code(folder: Path) -> str:
    """Return the machine code in the libraries under `folder`, without names made for a build."""
    parts = []
    for library in sorted(folder.rglob("*.so")):
        dumped = subprocess.run(
            ["cuobjdump", "-sass", "-res-usage", str(library)],
            capture_output=True,
            text=True,
            check=False,
        )
        text = _MODULE_NAME.sub("_module", dumped.stdout)
        # Unused one-byte variables of the CUDA library's headers are all that "Common" counts.
        lines = [line for line in text.splitlines() if not _NOT_CODE.search(line)]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def candidate_file(name: str) -> Path:
    """Return the file of a candidate: a file that `name` is the path of, or one of the tests'."""
    return Path(name) if name.endswith(".py") else CANDIDATES / f"{name}.py"


def build_side(name: str, store: Path | None) -> BuildSide:
    """Build one candidate one way, in a folder of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "extensions").mkdir()
        report = import_in_child(candidate_file(name), store, folder, LIMIT_S)
        code = device_code(folder) if name.startswith("cuda") else ""
    return BuildSide(report=report, error=first_error(report.error), code=code)


def prepare(store: Path, names: list[str]) -> None:
    """Prepare what these candidates need; without a precompiled header their builds are slower."""
    try:
        prepare_toolkit(store, flag_sets_for(names))
    except PrecompiledHeaderError as error:
        print(f"not all headers could be prepared: {str(error)[-600:]}", flush=True)


def prepared_side(name: str, store: Path) -> BuildSide:
    """Prepare what one candidate needs, and build it with that."""
    began = time.monotonic()
    prepare(store, [name])
    prepared_s = time.monotonic() - began
    return structs.replace(build_side(name, store), prepared_s=prepared_s)


def differences(ours: BuildSide, theirs: BuildSide) -> list[str]:
    """Return the differences of two builds of one candidate."""
    texts = []
    if ours.report.results != theirs.report.results:
        texts.append(f"results {ours.report.results} {theirs.report.results}")
    if ours.report.documents != theirs.report.documents:
        texts.append(f"documents {ours.report.documents} {theirs.report.documents}")
    if ours.code != theirs.code:
        texts.append("device code")
    if ours.error != theirs.error:
        texts.append(f"error {ours.error!r} {theirs.error!r}")
    return texts


def built_s(side: BuildSide) -> float:
    """Return the time of a candidate's import, without the time of its `results()`."""
    return side.report.seconds


def row(name: str, ours: BuildSide, theirs: BuildSide | None, *, alone: bool) -> str:
    """Return one line of the table."""
    way = ours.report.builds[-1].way if ours.report.builds else "?"
    our_s, their_s = built_s(ours), built_s(theirs) if theirs else 0.0
    ratio = f"{their_s / our_s:6.1f}×" if theirs and alone and our_s else "      –"
    unequal = differences(ours, theirs) if theirs else []
    own = "right" if ours.report.results else "built" if not ours.report.error else "refused"
    equality = "; ".join(unequal) if unequal else "equal" if theirs else own
    their_text = f"{their_s:8.2f}" if theirs else "       –"
    reason = (ours.report.builds[-1].reason if ours.report.builds else "") or ours.error
    cold_s = ours.prepared_s + our_s
    return (
        f"{name:26} {their_text} {cold_s:8.2f} {our_s:8.2f} {ratio}"
        f"  {way:8} {equality}  {reason[:90]}"
    )


def fast_sides(names: list[str], store: Path, jobs: int) -> Iterator[tuple[str, BuildSide]]:
    """Yield each candidate's fast build: `jobs` at a time, or 0 to prepare for each by itself."""
    if not jobs:
        yield from ((name, prepared_side(name, store)) for name in names)
        return
    with ThreadPoolExecutor(jobs) as pool:
        sides = pool.map(lambda name: build_side(name, store), names)
        yield from zip(names, sides, strict=True)


def first_of_kinds(names: list[str], count: int) -> list[str]:
    """Return the first `count` names of each kind."""
    return [n for kind in KINDS for n in [n for n in names if kind_of(n) == kind][:count]]


def phases_of(side: BuildSide) -> str:
    """Return the phases of a candidate's builds, one line a build."""
    return "\n".join(
        "    " + ", ".join(f"{p.name} {p.began_s:.1f}+{p.seconds:.1f}" for p in build.phases)
        for build in side.report.builds
    )


def flag_sets_for(names: list[str]) -> frozenset[FlagSet]:
    """Return the flag sets that the judge would prepare for these candidates."""
    cuda = torch.version.cuda is not None
    texts = [candidate_file(name).read_text(encoding="utf-8") for name in names]
    return frozenset().union(*(flag_sets_of(text, cuda=cuda) for text in texts))


def _parser() -> OneLineParser:
    """Return the parser of the command line."""
    parser = OneLineParser(prog="python -m scripts.benchmarks.builds", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="WORD",
        help="only candidates whose names have WORD",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="torch's builds at a time (default: 1)"
    )
    parser.add_argument(
        "--at-once", action="store_true", help="torch's builds beside the fast ones"
    )
    parser.add_argument("--together", action="store_true", help="prepare for all at the start")
    parser.add_argument("--phases", action="store_true", help="also print the phases of each build")
    parser.add_argument(
        "--alone",
        type=int,
        default=1000,
        metavar="N",
        help="of each kind, build N by torch one by one: only these have a ratio (default: 1000)",
    )
    parser.add_argument("--no-torch", action="store_true", help="only fast builds")
    parser.add_argument(
        "--torch", action="append", metavar="WORD", help="torch's builds only of names with WORD"
    )
    parser.add_argument(
        "--fast-jobs",
        type=int,
        default=1,
        metavar="N",
        help="fast builds at a time, with --together (default: 1)",
    )
    parser.add_argument(
        "--store", type=Path, metavar="DIR", help="a store that is kept (default: an empty one)"
    )
    return parser


def main(arguments: list[str]) -> int:
    """Run the comparison; return 1 when a build differs."""
    flags = _parser().parse_args(arguments)
    names = _chosen(flags.names)
    compared = [] if flags.no_torch else [name for name in names if _has_any(name, flags.torch)]
    print(f"{machine()}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(flags.jobs) as pool:
        beside = compared if flags.at_once else []
        running = {name: pool.submit(build_side, name, None) for name in beside}
        ours = _fast_builds(names, flags, flags.store or Path(scratch), is_compared=bool(compared))
        theirs = {name: side.result() for name, side in running.items()}
    alone = first_of_kinds(compared, flags.alone)
    unequal = _compare(ours, theirs or _torch_builds(compared, alone, flags.jobs), alone)
    print(f"{len(names)} candidates, {unequal} different from torch's own")
    return 1 if unequal else 0


def _chosen(words: list[str]) -> list[str]:
    """Return the names of the candidates that this torch can build, of those that were named."""
    names = [name for path in CANDIDATES.glob("*.py") if _has_any(name := path.stem, words)]
    return sorted(name for name in names if torch.version.cuda or not name.startswith("cuda"))


def _has_any(name: str, words: list[str] | None) -> bool:
    return not words or any(word in name for word in words)


def _fast_builds(
    names: list[str], flags: argparse.Namespace, store: Path, *, is_compared: bool
) -> dict[str, BuildSide]:
    """Prepare the toolkit, then build; print each build that no comparison will show."""
    began = time.monotonic()
    prepare(store, names if flags.together else [])
    print(f"toolkit prepared in {time.monotonic() - began:.1f} s", flush=True)
    ours = {}
    for name, side in fast_sides(names, store, flags.fast_jobs if flags.together else 0):
        ours[name] = side
        if flags.phases or flags.torch or not is_compared:
            print(row(name, side, None, alone=False), flush=True)
        if flags.phases:
            print(phases_of(side), flush=True)
    return ours


def _torch_builds(names: list[str], alone: list[str], jobs: int) -> dict[str, BuildSide]:
    """Build by torch: those in `alone` one by one, the others `jobs` at a time."""
    theirs = {name: build_side(name, None) for name in alone}
    rest = [name for name in names if name not in theirs]
    with ThreadPoolExecutor(jobs) as pool:
        sides = pool.map(lambda name: build_side(name, None), rest)
        theirs.update(zip(rest, sides, strict=True))
    return theirs


def _compare(ours: dict[str, BuildSide], theirs: dict[str, BuildSide], alone: list[str]) -> int:
    """Print a row for each candidate that torch built, too; return how many differ."""
    if theirs:
        print(f"{'candidate':26} {'torch s':>8} {'cold s':>8} {'ours s':>8} {'ratio':>7}  way")
    for name, side in theirs.items():
        print(row(name, ours[name], side, alone=name in alone), flush=True)
    return sum(bool(differences(ours[name], side)) for name, side in theirs.items())


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main(sys.argv[1:]))
