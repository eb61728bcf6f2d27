"""The change feed: what a page that follows a run knows, also while run.db misbehaves."""

from __future__ import annotations

import json
import math
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from feed_writer import TASK, Coordinator, FollowingPage, answer, fresh
from synthetic_run import write_run

from actors.coordinator.storage.directive_store import DirectivePlace
from actors.supervisor.reporting.feed import feed_rows
from actors.supervisor.reporting.feed.run_feed import RunFeed
from protocol.directives import DirectiveArguments, new_directive, submit_directive
from protocol.values import Outcome, Verdict


@pytest.mark.parametrize("seed", range(6))
def test_a_page_that_follows_knows_what_a_new_page_reads(tmp_path: Path, seed: int) -> None:
    """No write is missing in the feed: deltas add up to the whole state, after any writes."""
    rng = random.Random(seed)
    coordinator = Coordinator(tmp_path, rng)
    feed, page = RunFeed(tmp_path, "id"), FollowingPage()
    for _ in range(60):
        for _ in range(rng.randint(1, 4)):
            coordinator.step()
        page.take(answer(feed, page.seq))
        expected = FollowingPage()
        expected.take(fresh(tmp_path))

        assert expected.rows == page.rows
        assert expected.attempts == page.attempts
        assert expected.run == page.run
        assert expected.seq == page.seq
    coordinator.close()


def test_a_delta_holds_what_has_changed_and_no_more(tmp_path: Path) -> None:
    """One more node sends that node and its task, not the other nodes."""
    coordinator = Coordinator(tmp_path, random.Random(1))
    feed = RunFeed(tmp_path, "id")
    for step in ("begin", "node", "begin", "node", "begin"):
        coordinator.write(step)
    before = answer(feed, 0)
    coordinator.write("node")

    delta = answer(feed, before["seq"])

    assert not delta["whole"]
    assert [3] == [node["number"] for node in delta["nodes"]]
    assert [TASK] == [task["name"] for task in delta["tasks"]]
    assert [] == delta["events"]
    assert delta["seq"] > before["seq"]
    coordinator.close()


def test_the_feed_is_bounded(tmp_path: Path) -> None:
    """A long run's table of changes grows with its nodes, not with its events and heartbeats."""
    coordinator = Coordinator(tmp_path, random.Random(1))
    for number in range(2 * feed_rows.MAX_EVENTS):
        coordinator.activity.add_event(5.0, "selected", f"{TASK}/1", "node 0")
        coordinator.activity.worker_up("planner-0", "planner", str(number), 1, 5.0)
    coordinator.database.commit()
    (rows,) = coordinator.database.rows("SELECT COUNT(*) FROM change")[0]

    assert rows <= feed_rows.MAX_EVENTS + 5
    assert feed_rows.MAX_EVENTS == len(fresh(tmp_path)["events"])
    coordinator.close()


def test_a_run_of_an_older_version_is_shown_whole(tmp_path: Path) -> None:
    """Without a table of changes every answer holds everything, and nothing is missing."""
    write_run(tmp_path, 5)
    with_feed = fresh(tmp_path)
    with closing(sqlite3.connect(tmp_path / "run.db")) as run:
        query = "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')"
        for kind, name in run.execute(query).fetchall():
            run.execute(f"DROP {kind} {name}")
        for table in ("change", "first_look"):
            run.execute(f"DROP TABLE {table}")
        run.execute("DROP INDEX call_spend")
        run.execute("ALTER TABLE worker DROP COLUMN device")
        run.commit()

    shown = fresh(tmp_path)
    again = answer(RunFeed(tmp_path, "id"), 77)

    assert shown["whole"]
    assert again["whole"]
    assert with_feed["nodes"] == shown["nodes"] == again["nodes"]
    assert 1 == len(shown["workers"])


def test_a_run_that_is_not_there_yet_waits(tmp_path: Path) -> None:
    """A page may be open before its run exists, and shows it as soon as it does."""
    feed = RunFeed(tmp_path / "later", "id")
    waiting = answer(feed, 0)
    version = feed.version
    write_run(tmp_path / "later", 3)
    begun = answer(feed, waiting["seq"])

    assert ("waiting", "") == (waiting["run"]["status"], waiting["run"]["trouble"])
    assert 4 == len(begun["nodes"])
    assert feed.version > version


def test_another_run_in_the_folder_replaces_the_old_one(tmp_path: Path) -> None:
    """A page of the old run is told that everything is other, by the run's own name."""
    write_run(tmp_path / "a", 6, seed=1)
    write_run(tmp_path / "b", 2, seed=2)
    feed = RunFeed(tmp_path / "a", "id")
    old = answer(feed, 0)
    (tmp_path / "b" / "run.db").replace(tmp_path / "a" / "run.db")
    new = answer(feed, old["seq"])

    assert old["run"]["run_id"] != new["run"]["run_id"]
    assert new["whole"]
    assert 3 == len(new["nodes"])


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[tuple[RunFeed, Path, Path]]:
    """Yield a feed that has read a run, its file, and a good copy of the file."""
    write_run(tmp_path / "run", 3)
    file, good = tmp_path / "run" / "run.db", tmp_path / "good.db"
    shutil.copy(file, good)
    feed = RunFeed(tmp_path / "run", "id")
    answer(feed, 0)
    return feed, file, good


def test_a_damaged_file_is_tried_again_and_the_last_state_stays(
    damaged: tuple[RunFeed, Path, Path],
) -> None:
    """A page does not break with the file: it says what is wrong, and goes on when it is good."""
    feed, file, good = damaged
    file.write_bytes(b"this is no database at all" * 50)
    broken = answer(feed, 0)
    shutil.copy(good, file)
    healed = answer(feed, 0)

    assert "can't be read" in broken["run"]["trouble"]
    assert "/" not in broken["run"]["trouble"]
    assert 4 == len(broken["nodes"])
    assert "" == healed["run"]["trouble"]
    assert 4 == len(healed["nodes"])


def test_a_removed_file_shows_a_run_that_waits(damaged: tuple[RunFeed, Path, Path]) -> None:
    """A run folder that was removed under an open page is no error page."""
    feed, file, _ = damaged
    file.unlink()
    gone = answer(feed, 0)

    assert "waiting" == gone["run"]["status"]
    assert [] == gone["nodes"]


def test_a_locked_file_is_read_later(damaged: tuple[RunFeed, Path, Path]) -> None:
    """A process that holds the file for itself delays the page, nothing more."""
    feed, file, _ = damaged
    with closing(sqlite3.connect(file)) as owner:
        owner.execute("PRAGMA locking_mode = EXCLUSIVE")
        owner.execute("BEGIN EXCLUSIVE")
        owner.execute("UPDATE run SET status = 'stopped'")
        busy = answer(feed, 0)
        owner.commit()
    later = answer(feed, 0)

    assert 4 == len(busy["nodes"])
    assert "stopped" == later["run"]["status"]


def test_a_wish_is_shown_while_it_waits_and_when_it_was_taken(tmp_path: Path) -> None:
    """A directive is "wanted" as long as its file waits; its row then replaces it, by its key."""
    coordinator = Coordinator(tmp_path, random.Random(1))
    feed = RunFeed(tmp_path, "id")
    before = answer(feed, 0)
    version = feed.version
    wish = new_directive("advise", task=TASK, node=0, arguments=DirectiveArguments(text="try it"))
    submit_directive(tmp_path, wish)
    (waiting,) = answer(feed, before["seq"])["directives"]
    grown = feed.version > version
    coordinator.directives.add(wish, reason="", at=6.0, place=DirectivePlace())
    coordinator.database.commit()
    taken = answer(feed, before["seq"])

    assert grown
    assert (wish.key, "wanted") == (waiting["key"], waiting["state"])
    assert [(wish.key, "applied")] == [(one["key"], one["state"]) for one in taken["directives"]]
    assert {"text": "try it"} == taken["directives"][0]["arguments"]
    assert {"advise": 1} == taken["run"]["person"]
    coordinator.close()


def test_a_silent_coordinator_is_told_from_one_at_work(tmp_path: Path) -> None:
    """A run that says "running" and that no process has written for seconds is not served."""
    write_run(tmp_path, 1, status="running")
    now = (tmp_path / "run.db").stat().st_mtime
    feed = RunFeed(tmp_path, "id", clock=lambda: now)
    at_work = answer(feed, 0)["run"]["is_served"]
    version = feed.version
    now += 60.0
    silent = answer(feed, 0)["run"]["is_served"]

    assert (True, False) == (at_work, silent)
    assert feed.version > version


def test_figures_that_are_no_numbers_become_null(tmp_path: Path) -> None:
    """NaN and infinity in a verdict, of an old or damaged run, never reach a page as such."""
    write_run(tmp_path, 1)
    verdict = Verdict(
        verdict=Outcome.CORRECT,
        median_us=math.nan,
        speedup=math.inf,
        speedup_ci95=(-math.inf, math.nan),
        max_error=math.nan,
    )
    with closing(sqlite3.connect(tmp_path / "run.db")) as run:
        blob = msgspec.msgpack.encode(verdict)
        run.execute("UPDATE node SET verdict = ?, score_us = 9e999 WHERE number = 1", (blob,))
        run.commit()
    feed = RunFeed(tmp_path, "id")
    feed.refresh()
    text = msgspec.json.encode(feed.since(0)).decode()

    (node,) = [node for node in json.loads(text)["nodes"] if node["number"] == 1]
    assert (None, None, None) == (node["speedup"], node["low"], node["high"])
    assert "NaN" not in text
    assert "Infinity" not in text


def test_text_that_is_not_unicode_is_shown_with_marks(tmp_path: Path) -> None:
    """A byte that no decoder reads, in any text, ends no page."""
    write_run(tmp_path, 1)
    with closing(sqlite3.connect(tmp_path / "run.db")) as run:
        run.execute("UPDATE node SET advice = CAST(x'61ff62' AS TEXT) WHERE number = 1")
        run.commit()

    assert "a\ufffdb" == fresh(tmp_path)["nodes"][1]["idea"]
