"""What a process has read of shared memory: seen from outside, and no more than its calls need."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import special_corpora
from evaluator_samples import LIMITS

from actors.evaluator.ipc import shared_memory
from actors.evaluator.judge import Judge
from actors.evaluator.timing.touched_pages import (
    PAGE_BYTES,
    forget_touched,
    read_share,
    touched_bytes,
    touched_in,
)
from protocol.values import Outcome, Task, Verdict

PAGES, READ = 256, 60
EVICTED_BYTES = 1 << 26
TRIES = 3  # it is looked at by lot

needs_marks = pytest.mark.skipif(
    not forget_touched(os.getpid()), reason="this system does not say what a process has read"
)


@pytest.fixture(scope="module")
def thorough_judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A judge with time for some looks: they are after some groups, by lot."""
    limits = msgspec.structs.replace(LIMITS, import_s=20.0, check_s=20.0, time_s=1.5)
    with closing(Judge("cpu", limits, tmp_path_factory.mktemp("scratch") / "judge")) as made:
        yield made


@needs_marks
@pytest.mark.parametrize(
    "path",
    [
        special_corpora.CORPORA / "chains/honest/plain.py",
        special_corpora.CORPORA / "chains/hostile/read_ahead_compared.py",
    ],
    ids=lambda path: path.stem,
)
def test_a_candidate_that_reads_a_block_ahead_is_found_by_what_it_reads(
    thorough_judge: Judge, path: Path
) -> None:
    """Its outputs are right, even where inputs of a later call are replaced."""
    task = Task(name="chains", source=special_corpora.task_source("chains"))
    source = path.read_text(encoding="utf-8")
    is_honest = path.parent.name == "honest"
    for _try in range(1 if is_honest else TRIES):
        verdict = thorough_judge.judge(task, source)
        assert isinstance(verdict, Verdict)
        if verdict.verdict is Outcome.REJECTED:
            break
    assert (Outcome.CORRECT if is_honest else Outcome.REJECTED) is verdict.verdict, verdict
    # Its first call takes so long that earlier calls than expected see replaced inputs, too.
    found_by = ("of a block's inputs after", "it computes calls of a block together")
    assert is_honest or any(words in verdict.reason for words in found_by)


@pytest.mark.parametrize("pages", [8, 9, 16, 400])
def test_an_even_reader_has_never_read_more_than_its_share(pages: int) -> None:
    """A page counts as a whole once its first byte is read: in few pages that is much."""
    size = pages * PAGE_BYTES
    for read in range(1, size, 97):
        touched = -(-read // PAGE_BYTES) * PAGE_BYTES
        assert read_share(touched, size) <= read / size
    assert read_share(size, size) >= 0.875


@needs_marks
def test_pages_that_a_stopped_process_has_read_are_counted() -> None:
    """Neither those that it read before, nor those that another process wrote to."""
    region = shared_memory.allocate_unsealed(PAGES * PAGE_BYTES)
    wakes, wake = os.pipe()
    said, say = os.pipe()
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})  # each processor remembers pages of its own
    pid = os.fork()
    if not pid:
        pages = mmap.mmap(region, PAGES * PAGE_BYTES, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        for count in (PAGES, READ):
            sum(pages[number * PAGE_BYTES] for number in range(count))
            os.write(say, b"x")
            os.read(wakes, 1)
        os._exit(0)
    try:
        os.read(said, 1)
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        assert forget_touched(pid)
        ours = mmap.mmap(region, PAGES * PAGE_BYTES)  # closed later: that marks pages for all
        ours[:] = bytes([1]) * len(ours)
        evicted = bytearray(EVICTED_BYTES)  # the processor remembers pages of the other process
        evicted[::PAGE_BYTES] = bytes([1]) * (EVICTED_BYTES // PAGE_BYTES)
        os.kill(pid, signal.SIGCONT)
        os.write(wake, b"x")
        os.read(said, 1)
        touched = touched_bytes(pid, os.fstat(region).st_ino) // PAGE_BYTES
        assert READ // 2 < touched <= READ + 2
        assert 0 == touched_bytes(pid, 1)
    finally:
        os.sched_setaffinity(0, processors)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for each in (region, wakes, wake, said, say):
            os.close(each)


SMAPS = """7f01-7f02 rw-s 00000000 00:01 77                         /memfd:results (deleted)
Size:                 64 kB
Referenced:           12 kB
ShmemPmdMapped:        0 kB
VmFlags: rd wr sh mr mw me ms sd
7f03-7f04 rw-s 00000000 00:01 777                        /memfd:results (deleted)
Referenced:          999 kB
7f05-7f06 r--s 00000000 00:01 77                         /memfd:results (deleted)
Referenced:            8 kB
ShmemPmdMapped:        0 kB
7f07-7f08 r--s 00000000 00:01 77                         /memfd:results (deleted)
Referenced:         2048 kB
ShmemPmdMapped:     2048 kB
"""


def test_all_mappings_of_the_memory_count() -> None:
    """A candidate may map it once more; of huge pages nothing is known."""
    assert 20 << 10 == touched_in(SMAPS, 77)
    assert 999 << 10 == touched_in(SMAPS, 777)
