"""The place of a crash: the sanitizers' reports, and the candidate's own line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.profiling.compiled_source import compiled_line
from actors.evaluator.profiling.crashes import crash_place
from actors.evaluator.profiling.fault_report import (
    LOCATION_CHARS,
    FaultReport,
    fault_location,
    is_located,
    read_address_sanitizer,
    read_device_assertion,
    read_sanitizer,
)
from protocol.values import Outcome, Stage, Verdict

OUTPUTS = Path(__file__).parent / "tool_outputs"
MEMCHECK_H100 = (OUTPUTS / "memcheck_h100.txt").read_text(encoding="utf-8")
ASAN = (OUTPUTS / "asan_heap_overflow.txt").read_text(encoding="utf-8")


def recorded(name: str) -> str:
    """Return a tool's output as recorded."""
    return (OUTPUTS / name).read_text(encoding="utf-8")


FOLDER = "/scratch/judge/sanitized-0be8421c"

# As compute-sanitizer of CUDA 13.0 prints it, shortened.
MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at w(float *)+0x70 in /tmp/x/candidate-1/cuda.cu:7
=========     by thread (32,0,0) in block (0,0,0)
=========     Access to 0x7f8af4800170 is out of bounds
=========     and is 113 bytes after the nearest allocation at 0x7f8af4800000 of size 256 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x8cfd] in bad
=========
========= Invalid __global__ write of size 4 bytes
=========     at w(float *)+0x70 in /tmp/x/candidate-1/cuda.cu:7
=========     by thread (33,0,0) in block (0,0,0)
=========     Access to 0x7f8af4800174 is out of bounds
=========
========= Invalid __global__ read of size 4 bytes
=========     at other(float *)+0x10 in cuda.cu:9
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum(float *)+0x40 in cuda.cu:9
=========     and Read access at sum(float *)+0x80 in cuda.cu:11 [1984 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_the_sanitizers_findings_are_short() -> None:
    """The number of errors and the first of them, without folders of this machine."""
    found = read_sanitizer(MEMCHECK)
    assert 3 == found.count
    assert "Invalid __global__ write of size 4 bytes" == found.lines[0]
    assert "cuda.cu:7" in found.lines[1]
    assert "cuda.cu:9" in found.lines[-1]
    assert 7 == len(found.lines)
    assert not any("/tmp" in line or "ost" in line for line in found.lines)  # noqa: S108
    race = read_sanitizer(RACECHECK)
    assert 1 == race.count
    assert "Race reported" in race.lines[0]
    assert "Read access" in race.lines[1]
    assert read_sanitizer("========= ERROR SUMMARY: 0 errors\n").is_clean
    assert not read_sanitizer("killed").is_clean


def test_an_access_out_of_bounds_is_located() -> None:
    """Kernel, line, thread, block, address and the nearest allocation, in one line."""
    found = read_sanitizer(MEMCHECK_H100)
    assert (2, "oob", "k.cu", 9) == (
        found.count,
        found.faults[0].function,
        found.faults[0].file,
        found.faults[0].line,
    )
    assert (
        "Invalid __global__ write of size 4 bytes in oob at k.cu:9 (line 2 of the candidate, "
        "`p[i] = 1;`) by thread (13,0,0) of block (1,0,0); address 0x7f95f8800134 is out of "
        "bounds, 4,055,891,765 bytes after the nearest allocation of size 512 bytes"
    ) == fault_location(found.faults[0], "x\n  p[i] = 1;\ny", " p[i] = 1; ")
    assert "cudaErrorLaunchFailure: unspecified launch failure" == found.faults[1].what


def test_a_fault_of_any_kind_is_located() -> None:
    """A trap, a write past the end, an assertion: each has its kernel and its thread."""
    trap = read_sanitizer(recorded("memcheck_trap_h100.txt"))
    assert "Trace/breakpoint trap in ill_k at cuda.cu:10 by thread (7,0,0) of block (0,0,0)" == (
        fault_location(trap.faults[0], "")
    )
    past = read_sanitizer(recorded("memcheck_past_the_end_h100.txt"))
    assert ("past_k", 10) == (past.faults[0].function, past.faults[0].line)
    asserted = read_sanitizer(recorded("memcheck_assert_h100.txt"))
    assert (36, "Warp assert") == (asserted.count, asserted.faults[0].what)


def test_the_first_whole_report_is_enough() -> None:
    """A million threads of a grid are not waited for; half a report is."""
    text = recorded("memcheck_many_threads_h100.txt")
    first = text.index("=========     by thread")
    assert not is_located(text[:first])
    assert is_located(text)
    assert is_located(text[: text.index("(1,0,0)")])
    assert not is_located("========= COMPUTE-SANITIZER\n========= \n")


def test_a_failed_assertion_is_read_off_the_candidates_output() -> None:
    """The device prints its place; compute-sanitizer names the C library's function only."""
    line = "cuda.cu:10: void assert_k(const float *, float *, long): block: [33,0,0], "
    log = f"Traceback\n/scratch/{line}thread: [192,0,0] Assertion `i < 1000` failed.\n"
    found = read_device_assertion(log)
    assert found is not None
    assert (
        "assertion `i < 1000` failed in assert_k at cuda.cu:10 by thread (192,0,0) of block "
        "(33,0,0)"
    ) == fault_location(found, "")
    assert read_device_assertion("Assertion `i < 1000` failed.") is None


def test_a_source_line_is_shown_only_if_the_candidate_wrote_it() -> None:
    """The text comes from a file that the candidate can replace: by a secret, for example."""
    fault = FaultReport(what="Invalid read", file="cuda.cu", line=3)
    assert "root" not in fault_location(fault, "a = b;\n", "root:x:0:0:root")
    twice = fault_location(fault, "a = b;\nc;\na = b;\n", "a = b;")
    assert "`a = b;`" in twice
    assert "of the candidate" not in twice


def test_a_kernels_name_of_any_length_leaves_the_place() -> None:
    """The line number comes after the name."""
    name = f"k<{'Layout<int>, ' * 2000}float>(float *)"
    text = f"========= Invalid __global__ read\n=========     at {name}+0x10 in cuda.cu:12\n"
    fault = read_sanitizer(text).faults[0]
    assert ("cuda.cu", 12) == (fault.file, fault.line)
    assert len(fault_location(fault, "", "")) <= LOCATION_CHARS


@given(st.text(max_size=300))
def test_a_report_may_be_anything(garbage: str) -> None:
    """A killed tool and a forged report raise nothing."""
    read_sanitizer(garbage)
    is_located(garbage)
    read_device_assertion(garbage)
    read_sanitizer(f"========= Invalid x\n=========     at {garbage}\n========= {garbage}")
    read_address_sanitizer(garbage, "/x")
    read_address_sanitizer(f"==2==ERROR: AddressSanitizer: SEGV on address 0x0{garbage}", "/x")


def test_a_host_fault_has_the_line_of_the_candidates_own_frame() -> None:
    """Not that of the library around it."""
    found = read_address_sanitizer(ASAN, FOLDER)
    assert found is not None
    assert "heap-buffer-overflow, a read of 4 bytes" == found.what
    assert ("scale", "main.cpp", 8) == (found.function, found.file, found.line)
    assert "0 bytes to the right of 262144-byte region" == found.region
    elsewhere = read_address_sanitizer(ASAN, "/another")
    assert elsewhere is not None
    assert "" == elsewhere.file
    assert read_address_sanitizer("Fatal Python error: Segmentation fault", FOLDER) is None


def test_a_compiled_line_is_read_from_the_folder_alone(tmp_path: Path) -> None:
    """No link, no pipe, no folder above, no line beyond the end."""
    inner = tmp_path / "candidate/extensions/k"
    inner.mkdir(parents=True)
    (inner / "cuda.cu").write_text("one\ntwo\n")
    (inner / "link.cu").symlink_to("/etc/hostname")
    os.mkfifo(inner / "pipe.cu")
    folder = str(tmp_path / "candidate")
    assert "two" == compiled_line(folder, "cuda.cu", 2)
    for name, number in (("cuda.cu", 3), ("cuda.cu", 0), ("link.cu", 1), ("pipe.cu", 1)):
        assert "" == compiled_line(folder, name, number)
    assert "" == compiled_line(folder, "../cuda.cu", 1)


@pytest.mark.parametrize(
    ("outcome", "stage", "reason", "place"),
    [
        (Outcome.CRASHED, "check", "AcceleratorError: CUDA error: an illegal memory acc", "device"),
        (
            Outcome.CRASHED,
            "time",
            "RuntimeError: Triton Error [CUDA]: misaligned address",
            "device",
        ),
        (Outcome.CRASHED, "check", "CUDA error: operation not supported on global/sh", "device"),
        (Outcome.CRASHED, "check", "killed by SIGSEGV", "host"),
        (Outcome.CRASHED, "check", "killed by SIGKILL", None),
        (Outcome.CRASHED, "check", "TypeError: forward() takes 2 arguments", None),
        (Outcome.CRASHED, "check", "RuntimeError: CUDA error: no kernel image is available", None),
        (Outcome.WRONG, "check", "it writes outside of its output: 4 bytes, 0 bytes aft", "device"),
        (Outcome.WRONG, "check", "output 0 differs", None),
        (Outcome.TIMED_OUT, "check", "no answer within 120 s", "call"),
    ],
)
def test_a_crash_is_located_where_a_tool_can_tell_more(
    outcome: Outcome, stage: Stage, reason: str, place: str | None
) -> None:
    """An exception of Python has its traceback already."""
    assert place == crash_place(Verdict(verdict=outcome, stage=stage, reason=reason))
