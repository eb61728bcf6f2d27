"""Laws of the benchmark of warm builds: what a row says, and that nothing outlives its limit."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from actors import procfs
from actors.evaluator.fastbuild import ImportReport
from actors.evaluator.fastbuild.store.build_record import BuildRecord, BuildWay
from scripts.benchmarks.warm_builds import WarmImport, goal_s, row, run_in_child


def warm(
    way: BuildWay | None, *, error: str = "", seconds: float = 1.0, results: tuple[str, ...] = ()
) -> WarmImport:
    builds = (BuildRecord(name="kind", key="", way=way, seconds=seconds),) if way else ()
    report = ImportReport(seconds=seconds, error=error, builds=builds, results=results)
    return WarmImport(report=report, processor_s=2.0)


@pytest.mark.parametrize(
    ("name", "given", "is_expected"),
    [
        ("broken_name", warm("refused", error="main.cpp:4:14: error: no"), True),
        ("broken_name", warm("torch", error="main.cpp:4:14: error: no"), True),
        ("broken_name", warm("light"), False),
        ("broken_name", warm(None, error="not done after 150 s"), False),
        ("broken_name", warm(None, error="its process ended with status 1"), False),
        ("cpu_relu", warm("light", results=("float32",)), True),
        ("cpu_relu", warm("refused", error="main.cpp:4:14: error: no"), False),
    ],
)
def test_only_the_compilers_refusal_is_what_a_broken_kind_expects(
    name: str, given: WarmImport, *, is_expected: bool
) -> None:
    """A process that was killed, or that could not begin, has refused nothing."""
    assert is_expected is ("NOT AS EXPECTED" not in row(name, given))


def test_a_row_says_right_only_of_results_that_were_compared() -> None:
    """Without a GPU a CUDA candidate is built and not run."""
    assert "right" in row("cpu_relu", warm("light", results=("float32",)))
    assert "right" not in row("cuda_add", warm("light"))
    assert "built" in row("cuda_add", warm("light"))


def test_a_refused_build_is_not_said_to_lack_headers() -> None:
    """Its record does not know: only a finished one says which headers it had."""
    assert "not prepared" not in row("broken_name", warm("refused", error="error"))
    assert "not prepared" in row("cpu_relu", warm("light"))


def test_a_build_is_late_by_the_goal_of_its_kind() -> None:
    """C++ 4 s, errors 5 s, CUDA 6 s."""
    assert [4.0, 5.0, 6.0] == [goal_s(name) for name in ("cpu_relu", "broken_name", "cuda_add")]
    assert "LATE" in row("cpu_relu", warm("light", seconds=4.1))
    assert "LATE" not in row("cuda_add", warm("light", seconds=4.1))


def test_a_file_of_ones_own_is_a_kind(tmp_path: Path) -> None:
    """Its text says whether it is CUDA, its name whether it is broken."""
    own = tmp_path / "mine_broken.py"
    own.write_text("load_inline(cuda_sources='')\n", encoding="utf-8")
    assert 5.0 == goal_s(str(own))
    assert row(str(own), warm("light")).startswith("mine_broken ")


def test_compilers_do_not_outlive_the_limit() -> None:
    """Each has a process group of its own; one that runs on would slow down the next kind."""
    marked = f"{1000 + os.getpid() / 1e7:.7f}"
    ended = run_in_child(subprocess.run, (["setsid", "sleep", marked],), 2.0)
    assert "not done after 2 s" == ended
    until = time.monotonic() + 5
    while _is_running(marked) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _is_running(marked)


def _is_running(argument: str) -> bool:
    lines = [_command_line(pid) for pid in procfs.all_pids()]
    return any(argument.encode() in line and line.startswith(b"sleep") for line in lines)


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
