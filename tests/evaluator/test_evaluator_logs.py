"""What an agent reads of a failure: the first errors with their lines, the candidate's frames."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from evaluator_samples import candidate

from actors.evaluator.children import exception_reports
from actors.evaluator.ipc import logs
from actors.evaluator.ipc.orders import CandidateRaised
from actors.evaluator.judge import Judge
from protocol.values import Outcome, Task, Verdict

CPP = """
#include <vector>
struct Point { int x; };
int f(std::vector<int>& v) {
  std::vector<Point> p(3);
  v.push_bak(1);
  return undefined_thing + v[0];
}
"""
TEMPLATE = """#include <algorithm>
#include <vector>
struct Point { int x; };
void order(std::vector<Point>& v) { std::sort(v.begin(), v.end()); }
"""
CUDA = """
__global__ void scale(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < m) out[i] = fmaxx(x[i], 0.f);
}
void run(const float* x, float* out) { scale<<<1, 256>>>(x, out); }
"""
NVCC = shutil.which("nvcc")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the working directory of a candidate's process."""
    folder = tmp_path / "candidate-1"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def compiled(folder: Path, name: str, text: str, *command: str) -> str:
    """Return a compiler's output for a text, as torch reports it."""
    (folder / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [*command, "-c", str(folder / name), "-o", str(folder / "out.o")],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    assert done.returncode
    return (
        f"Error building extension 'k': [1/2] {' '.join(command)} -I/opt/secret/include -c {name}\n"
        f"FAILED: [code=1] main.o \n{done.stderr}{done.stdout}"
        "ninja: build stopped: subcommand failed.\n"
    )


def log_of(text: str) -> str:
    """Return the log that an agent gets from a `text` of torch."""
    report = exception_reports.describe_exception(RuntimeError(text))
    assert report.compiling
    return logs.compiler_log(logs.clean_log(report.words, limit=1 << 20))


def test_errors_of_gcc_come_with_their_lines(own: Path) -> None:
    """Messages, the candidate's own line under each, no line of ninja, no path."""
    log = log_of(compiled(own, "main.cpp", CPP, "g++"))
    assert "main.cpp:6:5: error:" in log
    assert "v.push_bak(1);" in log
    assert "return undefined_thing + v[0];" in log
    assert "main.cpp:6:5: error:" in logs.first_error(log)
    for noise in ("ninja", "FAILED", "secret", str(own), "/"):
        assert noise not in log


def test_an_error_in_a_header_names_the_line_that_led_there(own: Path) -> None:
    """The candidate's own line helps; the standard library's does not."""
    log = log_of(compiled(own, "main.cpp", TEMPLATE, "g++"))
    assert "std::sort(v.begin(), v.end())" in log
    assert "main.cpp:4" in log.splitlines()[0]
    assert len(log) <= logs.COMPILER_CHARS


@pytest.mark.skipif(NVCC is None, reason="no CUDA compiler here")
def test_errors_of_nvcc_come_with_their_lines(own: Path) -> None:
    """nvcc's format is understood, too."""
    log = log_of(compiled(own, "cuda.cu", CUDA, "nvcc", "-arch=sm_80"))
    assert 'cuda.cu(4): error: identifier "m" is undefined' == log.splitlines()[0]
    assert "if (i < m) out[i] = fmaxx(x[i], 0.f);" in log
    assert "scale<<<1, 256>>>(x, out)" in log
    assert "errors detected" not in log


def test_an_endless_log_is_cut_to_its_first_errors() -> None:
    """A long log gives the number of errors, and each error once."""
    wall = [f"main.cpp:{n}:1: error: no {n}\n    {n} | {'x' * 300}\n" for n in range(500)]
    log = logs.compiler_log("".join(wall) * 2)
    assert len(log) <= logs.COMPILER_CHARS
    assert log.startswith("main.cpp:0:1: error: no 0\n")
    assert log.endswith("more errors]")
    assert log.count("error: no 0\n") == 1
    assert len(logs.compiler_log("x" * 1_000_000)) <= logs.COMPILER_CHARS


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        ("ptxas error   : Entry function 'k' uses too much shared data", True),
        ("/usr/bin/ld: main.o: undefined reference to `missing(float*)'", True),
        ("collect2: error: ld returned 1 exit status", False),
        ('3 errors detected in the compilation of "cuda.cu".', False),
    ],
)
def test_lines_that_only_repeat_a_failure_are_left_out(line: str, is_kept: bool) -> None:
    """Tools that pass on another tool's error add nothing."""
    log = logs.compiler_log(f"main.cpp:1:1: error: first\n{line}\n")
    assert is_kept == (logs.clean_log(line) in logs.clean_log(log))


def failing(folder: Path, text: str) -> CandidateRaised:
    """Return the log of a candidate whose import raises."""
    path = folder / "candidate.py"
    path.write_text(text, encoding="utf-8")
    try:
        exec(compile(text, str(path), "exec"), {})  # noqa: S102
    except BaseException as error:  # noqa: BLE001  # as the runner catches it
        return exception_reports.describe_exception(error)
    raise AssertionError("it does not raise")


def test_a_traceback_has_the_candidates_frames_only(own: Path) -> None:
    """Frames come with their text; the place within a library is one line."""
    text = "import json\ndef forward(x):\n    return json.loads(x)\nforward('{')\n"
    trace = logs.clean_log(failing(own, text).trace)
    assert "return json.loads(x)" in trace
    assert 'File "candidate.py", line 3, in forward' in trace
    assert "test_evaluator_evidence" not in trace
    assert trace.count("lib/python3") == 1
    assert "JSONDecodeError" in trace


def test_a_syntax_error_shows_its_line(own: Path) -> None:
    """A file that does not parse has no frames, but its line is shown."""
    trace = failing(own, "def forward(x):\n    return (x +\n").trace
    assert "return (x +" in trace
    assert "SyntaxError" in trace
    assert "line 2" in trace


def test_a_cause_is_shown_before_its_consequence(own: Path) -> None:
    """`raise … from` shows the first error first."""
    text = "try:\n    {}['kernel']\nexcept KeyError as e:\n    raise ValueError('no') from e\n"
    trace = failing(own, text).trace
    assert trace.index("KeyError: 'kernel'") < trace.index("ValueError: no")


HOSTILE = """
class UnprintableError(Exception):
    def __str__(self):
        raise SystemExit
    __repr__ = __str__
raise UnprintableError
"""


def test_an_exception_whose_text_raises_is_still_reported(own: Path) -> None:
    """A candidate's exception may do anything when it is printed."""
    report = failing(own, HOSTILE)
    assert "UnprintableError" == report.kind
    assert (
        len(failing(own, "raise ValueError('x' * 10_000_000)").trace)
        <= exception_reports.MAX_TEXT_CHARS
    )


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/usr/include/c++/12/bits/stl_algo.h:3", "c++/12/bits/stl_algo.h:3"),
        ("/usr/local/cuda-13.0/targets/x86_64-linux/include/cuda_fp16.hpp(9)", "cuda_fp16.hpp(9)"),
        ("/home/user/kernels/a.cu", "a.cu"),
        ("cannot read /home/user", "cannot read ~"),
        ("g++ -I/opt/venv/include -L/data/lib", "g++ -Iinclude -Llib"),
        ("https://pytorch.org/docs/stable", "https://pytorch.org/docs/stable"),
        ("x / y, a/b, //comment", "x / y, a/b, //comment"),
        ("/proc/self/maps and /sys/x", "/proc/self/maps and /sys/x"),
    ],
)
def test_no_folder_of_this_machine_is_shown(path: str, shown: str) -> None:
    """Names of files help; the folders of this machine do not."""
    assert shown == logs.clean_log(path)


@pytest.mark.parametrize("piece", ["/a", "/", "-I/", "a:1: error: b ", "In function ", "/a b"])
def test_a_hostile_log_is_read_in_one_pass(piece: str) -> None:
    """No log delays the judge: with quadratic work the test's own time limit ends this."""
    text = piece * (2_000_000 // len(piece))
    cleaned = logs.clean_log(text, limit=1 << 20)
    assert len(logs.compiler_log(cleaned)) <= logs.COMPILER_CHARS
    logs.with_own_lines(cleaned, lambda _file, _line: "")


def test_a_verdict_shows_the_line_that_failed(judge: Judge, task: Task) -> None:
    """From the child through the judge to the agent's log."""
    verdict = judge.judge(task, candidate(forward="x = x[0, 0, 0]"))
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.CRASHED
    assert "x = x[0, 0, 0]" in verdict.log
    assert "runner.py" not in verdict.log
    assert "IndexError" in verdict.log


def test_the_judges_own_frames_are_left_out() -> None:
    """Eleven of the twenty lines on a segmentation fault were about the judge's own processes."""
    candidates_part = """Fatal Python error: Segmentation fault

Current thread 0x00007f5cf9018b80 (most recent call first):
  File "lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "candidate.py", line 15 in forward
"""
    log = f"""{candidates_part}  File "/opt/evaluator/children/runner.py", line 298 in _call_once
  File "zygote.py", line 105 in <lambda>
  File "init_process.py", line 212 in _run_child
  File "<frozen runpy>", line 88 in _run_code

Extension modules: msgspec._core, torch._C (total: 2)
"""
    assert candidates_part.rstrip("\n") == logs.without_own_frames(log)
