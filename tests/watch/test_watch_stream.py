"""The server's stream of changes, and the directives that a page sends."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import write_run
from watch_client import WatchClient, run_of, watching

from actors.watch.served_run import INTERVAL_S
from protocol.directives import waiting_directives

# --- the stream ----------------------------------------------------------------------------------


def write_advice(run_dir: Path, text: str) -> None:
    with closing(sqlite3.connect(run_dir / "run.db")) as run:
        run.execute("UPDATE node SET advice = ? WHERE number = 1", (text,))
        run.commit()


def test_a_stream_goes_on_where_a_page_was(tmp_path: Path) -> None:
    """A page that connects again names its last event, and gets only what came after it."""
    run_dir = write_run(tmp_path / "run", 5)
    with watching(run_dir) as client:
        stream = f"{run_of(client)}/stream"
        ((first, whole),) = client.events(f"{stream}?seq=0", 1)
        write_advice(run_dir, "another idea")
        time.sleep(2 * INTERVAL_S)  # reads are never nearer to each other than that
        ((second, delta),) = client.events(f"{stream}?seq=0", 1, **{"last-event-id": str(first)})

    assert (True, False) == (whole["whole"], delta["whole"])
    assert ["another idea"] == [node["idea"] for node in delta["nodes"]]
    assert second > first


def test_a_stream_sends_changes_while_it_is_open(tmp_path: Path) -> None:
    """A change arrives by itself, and many changes at once arrive as one event."""
    run_dir = write_run(tmp_path / "run", 5)
    found: list[tuple[int, dict[str, Any]]] = []
    with watching(run_dir) as client:
        stream = f"{run_of(client)}/stream?seq=0"
        page = threading.Thread(target=lambda: found.extend(client.events(stream, 2)))
        page.start()
        time.sleep(0.6)
        for number in range(20):
            write_advice(run_dir, f"idea {number}")
        page.join(20)

    assert 2 == len(found)
    (node,) = found[1][1]["nodes"]
    assert node["idea"].startswith("idea")


def test_open_streams_do_not_keep_the_server(tmp_path: Path) -> None:
    """The server ends at once, and its pages see the end of their stream."""
    run_dir = write_run(tmp_path / "run", 1)
    ended: list[int] = []
    with watching(run_dir) as client:
        stream = f"{run_of(client)}/stream"
        pages = [
            threading.Thread(target=lambda: ended.append(len(client.events(stream, 99))))
            for _ in range(8)
        ]
        for page in pages:
            page.start()
        time.sleep(0.5)
    for page in pages:
        page.join(10)

    assert [1] * 8 == ended


# --- steering ------------------------------------------------------------------------------------

PIN = {"key": "k1", "verb": "pin", "task": "task_0", "node": 3, "arguments": {}}


def test_a_page_that_only_shows_takes_no_directive(client: WatchClient, run_dir: Path) -> None:
    """Without --steer a valid directive of a page with the token is refused, and leaves nothing."""
    body = json.dumps(PIN)
    assert 405 == client.status(f"{run_of(client)}/directives", method="POST", body=body)
    assert [] == waiting_directives(run_dir)


def test_a_directive_waits_in_the_runs_folder_once(tmp_path: Path) -> None:
    """With --steer it is written where the coordinator takes it; its key makes it happen once."""
    run_dir = write_run(tmp_path / "run", 5)
    with watching(run_dir, steer=True) as client:
        address = f"{run_of(client)}/directives"
        answers = [client.send(address, method="POST", body=json.dumps(PIN)) for _ in range(3)]
        assert client.json("/api/runs")["steer"]
    (waiting,) = waiting_directives(run_dir)

    assert [(202, b'{"key":"k1"}')] * 3 == [(status, body) for status, _, body in answers]
    assert ("k1", "pin", 3, "page") == (waiting.key, waiting.verb, waiting.node, waiting.by)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        json.dumps({**PIN, "verb": "rm -rf"}),
        json.dumps({**PIN, "key": "../../x"}),
        json.dumps({**PIN, "key": ""}),
        json.dumps({**PIN, "node": -1}),
        json.dumps({**PIN, "node": None}),
        json.dumps({**PIN, "more": 1}),
        json.dumps({**PIN, "arguments": {"usd": "NaN"}}),
        json.dumps({**PIN, "verb": "cap", "arguments": {"usd": -1}}),
        '{"key": "k", "verb": "cap", "arguments": {"usd": NaN}}',
    ],
)
def test_a_wrong_directive_is_refused_with_a_line(tmp_path: Path, body: str) -> None:
    """What is no directive is answered with a reason, and nothing is written anywhere."""
    run_dir = write_run(tmp_path / "run", 5)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with watching(run_dir, steer=True) as client:
        address = f"{run_of(client)}/directives"
        status, _, answer = client.send(address, method="POST", body=body)

    assert 400 == status
    assert json.loads(answer)["error"]
    assert before == sorted(path.name for path in tmp_path.rglob("*"))
