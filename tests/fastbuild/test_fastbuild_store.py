"""Laws of the store: a result is its candidate's alone, complete, and blocks no other build."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actors.evaluator.fastbuild.headers.precompiled_headers import PrecompiledHeaders
from actors.evaluator.fastbuild.headers.toolkit import Toolkit, find_toolkit
from actors.evaluator.fastbuild.request.compiler_process import (
    BuildTimeoutError,
    Deadline,
    run_compiler,
)
from actors.evaluator.fastbuild.request.flag_set import FlagSet
from actors.evaluator.fastbuild.store.build_slots import BuildSlots
from actors.evaluator.fastbuild.store.build_store import UNFINISHED_PREFIX, remove_unfinished
from actors.evaluator.fastbuild.store.result_cache import ResultCache
from actors.evaluator.fastbuild.toolkit_builder import _first_of_each_device_part


def built(folder: Path, content: bytes = b"library") -> Path:
    (folder / "mine").mkdir(parents=True)
    (folder / "mine/mine.so").write_bytes(content)
    (folder / "mine/lock").touch()
    return folder


def test_a_candidate_gets_only_its_own_result(tmp_path: Path) -> None:
    """A hostile candidate's files are cached under its own text; another text has another key."""
    result_cache = ResultCache(tmp_path / "results")
    hostile, honest = result_cache.key("hostile", "toolkit"), result_cache.key("honest", "toolkit")

    assert result_cache.store(hostile, built(tmp_path / "one", b"poison"))
    assert not result_cache.copy_to(honest, tmp_path / "two")
    assert hostile != honest != result_cache.key("honest", "another torch")


def test_a_lock_is_not_cached(tmp_path: Path) -> None:
    """torch would wait forever for the lock of a killed build."""
    result_cache = ResultCache(tmp_path / "results")
    key = result_cache.key("a", "b")

    assert result_cache.store(key, built(tmp_path / "one"))
    assert result_cache.copy_to(key, tmp_path / "two")
    assert (tmp_path / "two/mine/mine.so").read_bytes() == b"library"
    assert not (tmp_path / "two/mine/lock").exists()


def test_a_link_to_a_secret_is_not_followed(tmp_path: Path) -> None:
    """Trusted code copies the candidate's plain files, not the targets of its links."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = tmp_path / "one"
    (folder / "mine").mkdir(parents=True)
    (folder / "mine/mine.so").symlink_to(secret)
    os.mkfifo(folder / "mine/other.so")
    result_cache = ResultCache(tmp_path / "results")

    assert not result_cache.store("key", folder)
    assert not result_cache.copy_to("key", tmp_path / "two")


def test_an_entry_is_never_replaced(tmp_path: Path) -> None:
    """The first result under a key stays."""
    result_cache = ResultCache(tmp_path / "results")
    result_cache.store("key", built(tmp_path / "one", b"first"))
    result_cache.store("key", built(tmp_path / "two", b"second"))
    result_cache.copy_to("key", tmp_path / "back")

    assert (tmp_path / "back/mine/mine.so").read_bytes() == b"first"


def test_the_oldest_results_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of results does not grow without limit."""
    monkeypatch.setattr("actors.evaluator.fastbuild.store.result_cache.MAX_ENTRIES", 2)
    result_cache = ResultCache(tmp_path / "results")
    for number in range(4):
        result_cache.store(f"key{number}", built(tmp_path / str(number)))
        os.utime(tmp_path / f"results/key{number}", (number, number))

    assert ["key2", "key3"] == sorted(path.name for path in result_cache.root.iterdir())


def test_unfinished_entries_are_removed_only_when_old(tmp_path: Path) -> None:
    """The entry of a killed maker is removed; the entry of a running one stays."""
    for name in ("old", "new"):
        (tmp_path / f"{UNFINISHED_PREFIX}{name}/inside").mkdir(parents=True)
    os.utime(tmp_path / f"{UNFINISHED_PREFIX}old", (1, 1))
    remove_unfinished(tmp_path)

    assert [f"{UNFINISHED_PREFIX}new"] == [path.name for path in tmp_path.iterdir()]


def test_an_incomplete_toolkit_is_not_found(store: Path, toolkit: Toolkit, tmp_path: Path) -> None:
    """A folder with all but the last file, as a killed maker leaves it, is not a toolkit."""
    unfinished = tmp_path / toolkit.key
    unfinished.mkdir()
    (unfinished / "index.json").symlink_to(toolkit.folder / "index.json")

    assert find_toolkit(store).folder == toolkit.folder
    with pytest.raises(Exception, match="holds no toolkit"):
        find_toolkit(tmp_path)


def test_a_killed_holder_frees_its_slot(tmp_path: Path) -> None:
    """After a SIGKILL in the middle of a build the next build starts."""
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from actors.evaluator.fastbuild.store.build_slots import BuildSlots\n"
        f"with BuildSlots(Path({str(tmp_path)!r}), 1).acquired(5):\n"
        "    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BuildTimeoutError), BuildSlots(tmp_path, 1).acquired(0.1):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with BuildSlots(tmp_path, 1).acquired(1.0) as number:
        assert number == 0


def ends_within_30_s(state: Path) -> bool:
    """Whether a killed process is gone within 30 s; a busy machine needs seconds."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            if state.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_the_deadline_kills_the_whole_process_group(tmp_path: Path) -> None:
    """The children of a compiler driver do not outlive it."""
    script = f"sleep 300 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(BuildTimeoutError):
        run_compiler(["/bin/sh", "-c", script], tmp_path, Deadline(0.5))
    child = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{child}/stat")

    assert ends_within_30_s(state)


def test_a_cache_that_cannot_be_written_raises_nothing(tmp_path: Path) -> None:
    """No verdict depends on whether a result was cached."""
    (tmp_path / "file").write_text("in the way")
    assert not ResultCache(tmp_path / "file" / "results").store("key", tmp_path)


def test_one_header_is_precompiled_once(tmp_path: Path) -> None:
    """Flag sets that need the same header at the same time wait for one compiler."""
    compiler = tmp_path / "counting-c++"
    compiler.write_text(f'#!/bin/sh\necho run >>{tmp_path}/runs\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    headers = PrecompiledHeaders(tmp_path / "precompiled")

    with ThreadPoolExecutor(4) as pool:
        made = [
            pool.submit(headers.make, str(compiler), ["-O0"], "int a;\n", Deadline(60.0))
            for _ in range(4)
        ]
        paths = {one.result() for one in made}

    assert len(paths) == 1
    assert headers.find(str(compiler), ["-O0"], "int a;\n") in paths
    assert (tmp_path / "runs").read_text().split() == ["run"]


def test_the_probe_is_built_once_for_the_same_flags_of_nvcc() -> None:
    """Flag sets that are prepared at once may differ only in the flags of the host compiler."""
    sets = [
        FlagSet(with_cuda=True, cuda_cflags=("-O3",)),
        FlagSet(with_cuda=True, cuda_cflags=("-O3",), cflags=("-O2",)),
        FlagSet(cflags=("-O2",)),
        FlagSet(with_cuda=True, cuda_cflags=("-O3",), cuda_headers=("torch/library.h",)),
    ]

    assert [(sets[0], True), (sets[1], False), (sets[2], False), (sets[3], True)] == (
        _first_of_each_device_part(sets)
    )
