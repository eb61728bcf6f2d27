"""Builds: candidates built by fast builds and by torch in the same run; times and equality.

    python -m scripts.benchmarks.builds [NAME ...] [--jobs N] [--alone N] [--store FOLDER]

For each candidate the fast build and torch's own build are compared: the candidate's results, the
docstrings of its functions, the machine code for the device, and for broken candidates the first
error with its line.  Fast builds run one after the other.  torch's builds run `--jobs` at a time,
which is slower for each of them; the first `--alone` of each kind run alone, and only these get a
ratio.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from actors.cli import OneLineParser
from actors.evaluator.fastbuild import (
    FlagSet,
    ImportReport,
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
    code: str  # the device's machine code, as text


def kind_of(name: str) -> str:
    """Return the kind in a candidate's name."""
    return "cuda_broken" if name.startswith("cuda_broken") else name.partition("_")[0]


def first_error(text: str) -> str:
    """Return file, line and text of the first error in a build's log."""
    error = _ERROR.search(text)
    if error:
        return f"{error['file']}:{error['line'] or error['edg']}: {error['text']}"
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


def build_side(name: str, store: Path | None) -> BuildSide:
    """Build one candidate one way, in a folder of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "extensions").mkdir()
        report = import_in_child(CANDIDATES / f"{name}.py", store, folder, LIMIT_S)
        code = device_code(folder) if name.startswith("cuda") else ""
    return BuildSide(report=report, error=first_error(report.error), code=code)


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


def row(name: str, ours: BuildSide, theirs: BuildSide | None, *, alone: bool) -> str:
    """Return one line of the table."""
    way = ours.report.builds[-1].way if ours.report.builds else "?"
    our_s, their_s = ours.report.seconds, theirs.report.seconds if theirs else 0.0
    ratio = f"{their_s / our_s:6.1f}×" if theirs and alone and our_s else "      –"
    unequal = differences(ours, theirs) if theirs else []
    equality = "; ".join(unequal) if unequal else "equal" if theirs else "–"
    their_text = f"{their_s:8.2f}" if theirs else "       –"
    reason = ours.report.builds[-1].reason if ours.report.builds else ours.error
    return f"{name:26} {their_text} {our_s:8.2f} {ratio}  {way:8} {equality}  {reason[:90]}"


def flag_sets_for(names: list[str]) -> frozenset[FlagSet]:
    """Return the flag sets that the judge would prepare for these candidates."""
    cuda = torch.version.cuda is not None
    texts = [(CANDIDATES / f"{name}.py").read_text(encoding="utf-8") for name in names]
    return frozenset().union(*(flag_sets_of(text, cuda=cuda) for text in texts))


def main(arguments: list[str]) -> int:
    """Run the comparison; return 1 when a build differs."""
    parser = OneLineParser(prog="python -m scripts.benchmarks.builds", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--ours-jobs", type=int, default=1)
    parser.add_argument("--alone", type=int, default=1000)
    parser.add_argument("--no-torch", action="store_true", help="only fast builds")
    parser.add_argument("--store", type=Path)
    flags = parser.parse_args(arguments)
    names = sorted(path.stem for path in CANDIDATES.glob("*.py"))
    names = [n for n in names if not flags.names or any(word in n for word in flags.names)]
    if not torch.version.cuda:
        names = [name for name in names if not name.startswith("cuda")]
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"{machine()}, {gpu}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as scratch:
        store = flags.store or Path(scratch)
        begun_at = time.monotonic()
        prepare_toolkit(store, flag_sets_for(names))
        print(f"prepared in {time.monotonic() - begun_at:.1f} s", flush=True)
        with ThreadPoolExecutor(flags.ours_jobs) as pool:
            ours = dict(
                zip(names, pool.map(lambda name: build_side(name, store), names), strict=True)
            )
    alone = [n for kind in KINDS for n in [n for n in names if kind_of(n) == kind][: flags.alone]]
    print(f"{'candidate':26} {'torch s':>8} {'ours s':>8} {'ratio':>7}  way", flush=True)
    unequal = 0
    theirs: dict[str, BuildSide] = {}
    if not flags.no_torch:
        theirs = {name: build_side(name, None) for name in alone}
        rest = [name for name in names if name not in theirs]
        with ThreadPoolExecutor(flags.jobs) as pool:
            theirs.update(
                zip(rest, pool.map(lambda name: build_side(name, None), rest), strict=True)
            )
    for name in names:
        other = theirs.get(name)
        print(row(name, ours[name], other, alone=name in alone), flush=True)
        unequal += bool(other and differences(ours[name], other))
    print(f"{len(names)} candidates, {unequal} different from torch's own")
    return 1 if unequal else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main(sys.argv[1:]))
