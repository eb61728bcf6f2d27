"""Warm builds: the time of each kind of build alone, after everything was prepared.

    python -m scripts.benchmarks.warm_builds [NAME ...] [--limit-s N]

One toolkit with the headers of all named kinds is prepared first, on all cores.  Then a candidate
is imported alone, in a process forked from one that has imported torch, as the judge's builder is.
A row is printed as soon as it is known: seconds of the import, LATE if more than 6, or than 5 for
an error; how it was built, whether the candidate's results passed its own comparison with torch,
and the phases.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing import forkserver
from pathlib import Path

import msgspec
import torch

from actors.cli import OneLineParser
from actors.evaluator.fastbuild import (
    ImportReport,
    PrecompiledHeaderError,
    ToolkitMissingError,
    import_candidate,
    prepare_toolkit,
)
from scripts.benchmarks.builds import CANDIDATES, BuildSide, first_error, flag_sets_for, phases_of
from scripts.benchmarks.machine_info import machine

# What candidates of strong models build; the first ones are the most usual.
CUDA_KINDS = (
    *("cuda_add", "cuda_layernorm_dispatch", "cuda_half", "cuda_tensor_cores", "cuda_graph_launch"),
    *("cuda_cublas", "cuda_cublaslt", "cuda_wgmma", "cuda_barrier", "cuda_pipeline"),
    *("cuda_grid_sync", "cuda_extern_c", "cuda_curand", "cuda_odd_types", "cuda_module_in_cuda"),
    *("cuda_module_arguments", "cuda_library", "cuda_autograd", "cuda_autograd_files"),
    *("cuda_load_files", "cuda_two_modules", "cuda_cxx20", "cuda_architectures", "cuda_cub"),
    *("cuda_cub_device", "cuda_cub_scan", "cuda_cub_segments", "cuda_thrust", "cuda_thrust_scan"),
    *("cuda_thrust_zip", "cuda_broken_semicolon", "cuda_broken_name", "cuda_broken_argument"),
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
IMPORTED = ["actors.evaluator.fastbuild.candidate_import", "scripts.benchmarks.builds"]
LIMIT_S = 600.0
EACH_S = 60.0  # torch's own build takes as long
GOAL_S, ERROR_GOAL_S = 6.0, 5.0
LEAST_S = 8.0  # that must be left for one more kind


def start_fork_server() -> None:
    """Have a process import what builds need; importing torch's builds must not use CUDA there."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    multiprocessing.set_forkserver_preload(IMPORTED)
    forkserver.ensure_running()


def warm_import(name: str, store: Path) -> ImportReport:
    """Import one candidate in a forked process, with the toolkit in `store`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        answer = Path(scratch) / "report.json"
        child = multiprocessing.get_context("forkserver").Process(
            target=_import_and_report, args=(name, store, Path(scratch), answer)
        )
        child.start()
        child.join(EACH_S)
        if child.is_alive():
            child.kill()  # its compilers end in a folder that is gone
            child.join()
            return ImportReport(seconds=EACH_S, error=f"not done after {EACH_S:g} s")
        if not answer.exists():
            ended = f"the import ended its process with status {child.exitcode}"
            return ImportReport(seconds=0.0, error=ended)
        return msgspec.json.decode(answer.read_bytes(), type=ImportReport)


def _import_and_report(name: str, store: Path, scratch: Path, answer: Path) -> None:
    extensions = scratch / "extensions"
    extensions.mkdir()
    os.environ["TORCH_EXTENSIONS_DIR"] = str(extensions)
    answer.write_bytes(msgspec.json.encode(import_candidate(CANDIDATES / f"{name}.py", store)))


def row(name: str, report: ImportReport) -> str:
    """Return one line of the table."""
    ways = " + ".join(
        f"{build.way} {build.seconds:.1f} s{'' if build.precompiled else ', headers not prepared'}"
        for build in report.builds
    )
    is_own_error = "broken" in name
    is_late = report.seconds > (ERROR_GOAL_S if is_own_error else GOAL_S)
    result = "right" if report.results else first_error(report.error) or "built"
    expected = "" if bool(report.error) is is_own_error else "  NOT AS EXPECTED"
    expected = f"{expected}  LATE" if is_late else expected
    reasons = " ".join(build.reason for build in report.builds if build.reason)
    return f"{name:24} {report.seconds:6.2f} s  {result[:90]}  [{ways}] {reasons[:120]}{expected}"


def _parser() -> OneLineParser:
    """Return the parser of the command line."""
    parser = OneLineParser(prog="python -m scripts.benchmarks.warm_builds", description=__doc__)
    parser.add_argument("names", nargs="*", help="names of candidates (default: the usual kinds)")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="start no kind after this")
    parser.add_argument("--store", type=Path, help="a folder of toolkits that is kept")
    return parser


def main(arguments: list[str]) -> int:
    """Prepare, build each kind alone, print; return 1 if one was not as expected."""
    began = time.monotonic()
    flags = _parser().parse_args(arguments)
    names = flags.names or list(CUDA_KINDS if torch.version.cuda else CPU_KINDS)
    print(f"{machine()}, torch {torch.__version__}", flush=True)
    failed = 0
    start_fork_server()
    with tempfile.TemporaryDirectory() as scratch:
        store = flags.store or Path(scratch)
        try:
            prepare_toolkit(store, flag_sets_for(names))
        except (PrecompiledHeaderError, ToolkitMissingError) as error:
            print(f"not all headers could be prepared: {str(error)[-600:]}", flush=True)
        print(f"prepared for {len(names)} kinds in {time.monotonic() - began:.1f} s", flush=True)
        for name in names:
            if time.monotonic() - began > flags.limit_s - LEAST_S:
                print(f"{name:24} no time left", flush=True)
                continue
            report = warm_import(name, store)
            line = row(name, report)
            failed += "NOT AS EXPECTED" in line
            print(line, flush=True)
            print(phases_of(BuildSide(report=report, error="")), flush=True)
    print(f"done in {time.monotonic() - began:.1f} s, {failed} not as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main(sys.argv[1:]))
