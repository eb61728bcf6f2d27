"""Laws of the stores: nobody else's result, nothing half, nothing that blocks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from actors.evaluator.fastbuild.build_slots import BuildSlots
from actors.evaluator.fastbuild.build_store import UNFINISHED_PREFIX, remove_unfinished
from actors.evaluator.fastbuild.compiler_process import BuildTimeoutError, Deadline, run_compiler
from actors.evaluator.fastbuild.result_cache import ResultCache
from actors.evaluator.fastbuild.toolkit import Toolkit, find_toolkit


def built(folder: Path, content: bytes = b"library") -> Path:
    (folder / "mine").mkdir(parents=True)
    (folder / "mine/mine.so").write_bytes(content)
    (folder / "mine/lock").touch()
    return folder


def test_a_candidate_finds_only_what_it_built_itself(tmp_path: Path) -> None:
    """What a hostile candidate leaves is kept under its own text; another text is another key."""
    result_cache = ResultCache(tmp_path / "results")
    hostile, honest = result_cache.key("hostile", "toolkit"), result_cache.key("honest", "toolkit")

    assert result_cache.store(hostile, built(tmp_path / "one", b"poison"))
    assert not result_cache.copy_to(honest, tmp_path / "two")
    assert hostile != honest != result_cache.key("honest", "another torch")


def test_no_lock_comes_back(tmp_path: Path) -> None:
    """torch waits for ever for a lock that a killed build left."""
    result_cache = ResultCache(tmp_path / "results")
    key = result_cache.key("a", "b")

    assert result_cache.store(key, built(tmp_path / "one"))
    assert result_cache.copy_to(key, tmp_path / "two")
    assert (tmp_path / "two/mine/mine.so").read_bytes() == b"library"
    assert not (tmp_path / "two/mine/lock").exists()


def test_a_link_to_a_secret_is_not_followed(tmp_path: Path) -> None:
    """Trusted code copies what the candidate wrote, not what it points at."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = tmp_path / "one"
    (folder / "mine").mkdir(parents=True)
    (folder / "mine/mine.so").symlink_to(secret)
    os.mkfifo(folder / "mine/other.so")
    result_cache = ResultCache(tmp_path / "results")

    assert not result_cache.store("key", folder)
    assert not result_cache.copy_to("key", tmp_path / "two")


def test_what_arrives_first_stays(tmp_path: Path) -> None:
    """A result is never replaced under the same key."""
    result_cache = ResultCache(tmp_path / "results")
    result_cache.store("key", built(tmp_path / "one", b"first"))
    result_cache.store("key", built(tmp_path / "two", b"second"))
    result_cache.copy_to("key", tmp_path / "back")

    assert (tmp_path / "back/mine/mine.so").read_bytes() == b"first"


def test_the_oldest_results_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of results does not grow for ever."""
    monkeypatch.setattr("actors.evaluator.fastbuild.result_cache.MAX_ENTRIES", 2)
    result_cache = ResultCache(tmp_path / "results")
    for number in range(4):
        result_cache.store(f"key{number}", built(tmp_path / str(number)))
        os.utime(tmp_path / f"results/key{number}", (number, number))

    assert ["key2", "key3"] == sorted(path.name for path in result_cache.root.iterdir())


def test_halves_are_swept_when_no_maker_can_be_at_work_any_more(tmp_path: Path) -> None:
    """What a killed maker left goes; what one makes just now stays."""
    for name in ("old", "new"):
        (tmp_path / f"{UNFINISHED_PREFIX}{name}/inside").mkdir(parents=True)
    os.utime(tmp_path / f"{UNFINISHED_PREFIX}old", (1, 1))
    remove_unfinished(tmp_path)

    assert [f"{UNFINISHED_PREFIX}new"] == [path.name for path in tmp_path.iterdir()]


def test_half_a_toolkit_is_none(store: Path, toolkit: Toolkit, tmp_path: Path) -> None:
    """A maker that was killed leaves a folder that nobody takes for a toolkit."""
    half = tmp_path / toolkit.key
    half.mkdir()

    assert find_toolkit(store).folder == toolkit.folder
    with pytest.raises(Exception, match="holds no toolkit"):
        find_toolkit(tmp_path)


def test_a_killed_holder_frees_its_slot(tmp_path: Path) -> None:
    """SIGKILL in the middle of a build, and the next build starts."""
    words = (
        "import sys, time\nfrom pathlib import Path\n"
        "from actors.evaluator.fastbuild.build_slots import BuildSlots\n"
        f"with BuildSlots(Path({str(tmp_path)!r}), 1).taken(5):\n"
        "    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BuildTimeoutError), BuildSlots(tmp_path, 1).acquired(0.1):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with BuildSlots(tmp_path, 1).acquired(1.0) as number:
        assert number == 0


def ends(state: Path) -> bool:
    """Whether a process that was killed is gone soon: on a busy machine it waits for its turn."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            if state.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_at_the_deadline_the_whole_group_dies(tmp_path: Path) -> None:
    """A driver's children do not outlive it."""
    script = f"sleep 300 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(BuildTimeoutError):
        run_compiler(["/bin/sh", "-c", script], tmp_path, Deadline(0.5))
    child = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{child}/stat")

    assert ends(state)


def test_a_store_that_cannot_be_written_keeps_nothing_and_raises_nothing(tmp_path: Path) -> None:
    """Nobody's verdict depends on whether a result was kept."""
    (tmp_path / "file").write_text("in the way")
    assert not ResultCache(tmp_path / "file" / "results").store("key", tmp_path)
