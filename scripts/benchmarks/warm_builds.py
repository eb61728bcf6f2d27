"""Warm builds: the time of each kind of build alone, after everything was prepared.

    python -m scripts.benchmarks.warm_builds [NAME|FILE.py ...] [--limit-s N] [--at-a-time N]

One toolkit with the headers of all named kinds is prepared first, on all cores; with `--at-a-time`
for the next N kinds, so that a short limit leaves figures of the first ones.  Then a candidate is
imported alone, in a process forked from one that has imported torch, as the judge's builder is.
A row is printed as soon as it is known: seconds of the import, LATE if there are more than the
goal; processor seconds, which other programs change less; how it was built, whether the candidate's
results passed its own comparison with torch ("built": nothing was compared, as without a GPU), and
the phases.  A candidate whose name has "broken" is expected to be refused.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path

import msgspec
import torch

from actors import procfs
from actors.cli import OneLineParser
from actors.evaluator.fastbuild import (
    BuildTimeoutError,
    ImportReport,
    PrecompiledHeaderError,
    ToolkitMissingError,
    import_candidate,
    prepare_toolkit,
)
from protocol.values import Value
from scripts.benchmarks.builds import (
    BuildSide,
    candidate_file,
    first_error,
    flag_sets_for,
    phases_of,
)
from scripts.benchmarks.machine_info import machine

# What candidates of strong models build; the first ones are the most usual.
CUDA_KINDS = (
    *("cuda_add", "cuda_layernorm_dispatch", "cuda_half", "cuda_tensor_cores", "cuda_graph_launch"),
    *("cuda_cublas", "cuda_cublaslt", "cuda_wgmma", "cuda_barrier", "cuda_pipeline"),
    *("cuda_grid_sync", "cuda_extern_c", "cuda_curand", "cuda_odd_types", "cuda_module_in_cuda"),
    *("cuda_module_arguments", "cuda_library", "cuda_autograd", "cuda_autograd_files"),
    *("cuda_load_files", "cuda_two_modules", "cuda_cxx20", "cuda_architectures", "cuda_cub"),
    *("cuda_cub_device", "cuda_cub_scan", "cuda_cub_segments", "cuda_thrust", "cuda_thrust_scan"),
    *("cuda_thrust_zip", "cuda_thrust_lambda", "cuda_broken_operator", "cuda_broken_keywords"),
    *(
        "cuda_broken_cub",
        "cuda_broken_cub_device",
        "cuda_broken_semicolon",
        "cuda_broken_name",
        "cuda_broken_argument",
    ),
    *("cuda_broken_method", "cuda_broken_dispatch", "cuda_broken_function", "cuda_broken_module"),
    *("cuda_broken_symbol", "cuda_broken_cpp", "cuda_broken_host_call", "cuda_broken_shared"),
    *("cuda_broken_architecture", "cuda_broken_ptx", "cuda_broken_flag", "cuda_broken_include"),
    "cuda_broken_thrust",
)
CPU_KINDS = (
    *("cpu_relu", "cpu_softmax_openmp", "cpu_load_files", "cpu_odd_argument", "cpu_own_module"),
    *("cpu_library", "cpu_autograd", "broken_name", "broken_semicolon", "broken_function"),
)
# What is imported before a process is forked.
IMPORTED = ["actors.evaluator.fastbuild.candidate_import", "scripts.benchmarks.warm_builds"]
LIMIT_S = 1800.0
EACH_S = 150.0  # torch's own build takes 60 s or more
GOAL_S, CXX_GOAL_S, ERROR_GOAL_S = 6.0, 4.0, 5.0
LEAST_S = 8.0  # that must be left for one more kind
INTERRUPTED = 128 + signal.SIGINT


class WarmImport(Value, frozen=True, kw_only=True):
    """The import of one candidate, and what it cost."""

    report: ImportReport
    processor_s: float = 0.0  # of its process and of all compilers


class Preparation(Value, frozen=True, kw_only=True):
    """What is still to be prepared, and how long it took."""

    seconds: float
    flag_sets: int
    error: str = ""


def start_fork_server() -> None:
    """Have a process import what builds need; importing torch's builds must not use CUDA there."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    multiprocessing.set_forkserver_preload(IMPORTED)
    forkserver.ensure_running()


def run_in_child(target: Callable[..., None], arguments: tuple[object, ...], limit_s: float) -> str:
    """Run `target` in a forked process; return what is to be said of its end, "" if it went well.

    After `limit_s`, on Ctrl-C or SIGTERM it is killed with its compilers: each has a process group.
    """
    child = multiprocessing.get_context("forkserver").Process(
        target=_without_interrupts, args=(target, *arguments)
    )
    child.start()
    try:
        child.join(max(0.0, limit_s))
        if child.is_alive():
            return f"not done after {limit_s:.0f} s"
        return f"its process ended with status {child.exitcode}" if child.exitcode else ""
    finally:
        _kill_with_descendants(child)


def _without_interrupts(target: Callable[..., None], *arguments: object) -> None:
    """Call `target`; a Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    target(*arguments)


def _kill_with_descendants(child: multiprocessing.process.BaseProcess) -> None:
    while child.is_alive() and child.pid is not None:
        found = procfs.living_descendants(child.pid)
        child.kill()
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.join()


def prepare(names: list[str], store: Path, limit_s: float) -> Preparation:
    """Prepare what these candidates need, in a process that can be killed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch) / "error"
        ended = run_in_child(_prepare, (names, store, answer, limit_s), limit_s + 1)
        error = answer.read_text(encoding="utf-8") if answer.exists() else ended
    return Preparation(
        seconds=time.monotonic() - began, flag_sets=len(flag_sets_for(names)), error=error
    )


def _prepare(names: list[str], store: Path, answer: Path, limit_s: float) -> None:
    error = ""
    try:
        prepare_toolkit(store, flag_sets_for(names), limit_s)
    except (BuildTimeoutError, PrecompiledHeaderError, ToolkitMissingError) as raised:
        error = str(raised)[-600:]
    answer.write_text(error, encoding="utf-8")


def warm_import(name: str, store: Path, limit_s: float = EACH_S) -> WarmImport:
    """Import one candidate in a forked process, with the toolkit in `store`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        answer = Path(scratch) / "report.json"
        began = time.monotonic()
        ended = run_in_child(_import_and_report, (name, store, Path(scratch), answer), limit_s)
        if ended or not answer.exists():
            ended = ended or "its process wrote no report"
            seconds = time.monotonic() - began
            return WarmImport(report=ImportReport(seconds=seconds, error=ended))
        return msgspec.json.decode(answer.read_bytes(), type=WarmImport)


def _import_and_report(name: str, store: Path, scratch: Path, answer: Path) -> None:
    extensions = scratch / "extensions"
    extensions.mkdir()
    os.environ["TORCH_EXTENSIONS_DIR"] = str(extensions)
    before = _processor_s()
    report = import_candidate(candidate_file(name), store, runs=_can_run(name))
    made = WarmImport(report=report, processor_s=_processor_s() - before)
    unfinished = answer.with_suffix(".unfinished")
    unfinished.write_bytes(msgspec.json.encode(made))
    unfinished.rename(answer)


def _processor_s() -> float:
    """Return the processor time of this process and of its ended children."""
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _can_run(name: str) -> bool:
    return torch.cuda.is_available() or "cuda" not in candidate_file(name).read_text("utf-8")


def is_broken(name: str) -> bool:
    """Whether a candidate is expected to be refused."""
    return "broken" in Path(name).stem


def goal_s(name: str) -> float:
    """Return the seconds that a build of this kind may take."""
    if is_broken(name):
        return ERROR_GOAL_S
    return GOAL_S if "cuda" in candidate_file(name).read_text("utf-8") else CXX_GOAL_S


def row(name: str, warm: WarmImport) -> str:
    """Return one line of the table."""
    report = warm.report
    ways = " + ".join(
        f"{build.way} {build.seconds:.1f} s"
        + (", headers not prepared" if build.way == "light" and not build.precompiled else "")
        for build in report.builds
    )
    result = "right" if report.results else first_error(report.error) or "built"
    has_own_error = bool(report.error) and bool(report.builds)  # not that of a killed process
    is_expected = has_own_error if is_broken(name) else not report.error
    marks = [] if is_expected else ["NOT AS EXPECTED"]
    marks += ["LATE"] if report.seconds > goal_s(name) else []
    reasons = " ".join(build.reason for build in report.builds if build.reason)
    parts = (result[:90], f"[{ways}]", reasons[:120], *marks)
    cost = f"{report.seconds:6.2f} s {warm.processor_s:6.1f} cpu s"
    return "  ".join([f"{Path(name).stem:24} {cost}", *(part for part in parts if part)])


def _parser() -> OneLineParser:
    """Return the parser of the command line."""
    parser = OneLineParser(prog="python -m scripts.benchmarks.warm_builds", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="names of candidates, or Python files that call load_inline (default: usual kinds)",
    )
    parser.add_argument(
        "--limit-s", type=float, default=LIMIT_S, metavar="N", help="end after N seconds"
    )
    parser.add_argument(
        "--at-a-time", type=int, default=0, metavar="N", help="prepare for N kinds, then build them"
    )
    parser.add_argument("--no-phases", action="store_true", help="one line a kind")
    parser.add_argument("--store", type=Path, metavar="DIR", help="a store of toolkits to keep")
    return parser


def _rows(names: list[str], flags: argparse.Namespace, store: Path) -> Iterator[str]:
    """Prepare and build; yield what is to be printed, a line or more at a time."""
    until = time.monotonic() + flags.limit_s
    size = flags.at_a_time or len(names)
    for group in [names[start : start + size] for start in range(0, len(names), size)]:
        prepared = prepare(group, store, until - time.monotonic() - LEAST_S)
        yield (
            f"prepared {prepared.flag_sets} sets of flags and headers for {len(group)} kinds"
            f" in {prepared.seconds:.1f} s"
        )
        if prepared.error:
            yield f"not all headers could be prepared: {prepared.error}"
        for name in group:
            left_s = until - time.monotonic()
            if left_s < LEAST_S:
                yield f"{Path(name).stem:24} no time left"
                continue
            warm = warm_import(name, store, min(EACH_S, left_s))
            yield row(name, warm)
            if not flags.no_phases:
                yield phases_of(BuildSide(report=warm.report, error=""))


def main(arguments: list[str]) -> int:
    """Prepare, build each kind alone, print; return 1 if one was not as expected."""
    began = time.monotonic()
    flags = _parser().parse_args(arguments)
    names = flags.names or list(CUDA_KINDS if torch.version.cuda else CPU_KINDS)
    print(f"{machine()}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}", flush=True)
    unexpected = late = 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as with Ctrl-C
    start_fork_server()
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            for line in _rows(names, flags, flags.store or Path(scratch)):
                unexpected += "NOT AS EXPECTED" in line
                late += line.endswith("LATE")
                print(line, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return INTERRUPTED
    print(
        f"done in {time.monotonic() - began:.1f} s, load {os.getloadavg()[0]:.1f}:"
        f" {unexpected} not as expected, {late} late"
    )
    return 1 if unexpected else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main(sys.argv[1:]))
