"""The server of the page: which requests it answers, what its answers hold, and its stream."""

from __future__ import annotations

import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from synthetic_run import write_run
from watch_client import HOSTILE, WatchClient, run_of, watching

from actors.watch import application, connection
from protocol import questions


def test_a_question_is_answered_by_its_name_alone(client: WatchClient, run_dir: Path) -> None:
    """A person reads what an agent asks; a path, an answer or another name is not found."""
    run = run_of(client)
    questions.ask(run_dir, "coder-1-abc", HOSTILE)
    questions.answer(run_dir, "coder-1-abc", "an answer")
    shown = client.json(f"{run}/question/coder-1-abc")
    assert {"name": "coder-1-abc", "text": HOSTILE} == shown
    for name in ("coder-2-abc", "coder-1-abc.answer", "..%2Frun.db", "..%2F..%2Fetc%2Fpasswd", "."):
        assert 404 == client.status(f"{run}/question/{name}")
    assert 401 == client.status(f"{run}/question/coder-1-abc", token=None)


# --- who is answered -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "0.0.0.0",  # noqa: S104
        "[::2]",
        "",
        "a b",
        "localhost@evil",
        "[",
    ],
)
def test_another_name_of_this_server_is_refused(client: WatchClient, host: str) -> None:
    """DNS rebinding: a foreign name that points to loopback gets nothing, not even the page."""
    for path in ("/", "/api/runs", "/app/main.js"):
        assert 421 == client.status(path, host=host)


def test_no_host_and_two_hosts_are_refused(client: WatchClient) -> None:
    """A request that names no server, or two, is not guessed at."""
    assert client.status("/", host=None) in (400, 421)
    request = f"GET / HTTP/1.1\r\nHost: {client.host}\r\nHost: evil\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port)) as raw:
        raw.sendall(request.encode())
        assert raw.recv(100).split()[1] in (b"400", b"421")


def test_the_own_names_of_loopback_are_answered(client: WatchClient) -> None:
    """The page may be opened by any name of loopback, and through a forwarded port."""
    for host in (client.host, f"localhost:{client.port}", "localhost:9999", "[::1]:80"):
        assert 200 == client.status("/", host=host, token=None)


@pytest.mark.parametrize("token", [None, "x", "é", "Bearer"])
def test_everything_of_a_run_needs_the_token(client: WatchClient, token: str | None) -> None:
    """GET, stream and POST: without the token nothing is said, not even which runs exist."""
    run = run_of(client)
    paths = ("/api/runs", f"{run}/since", f"{run}/stream", f"{run}/node/task_0/1", "/api/run/x/y")
    for path in paths:
        status, _, body = client.send(path, token=token and token.encode().decode("latin-1"))
        assert 401 == status
        assert b"task_0" not in body
    assert 401 == client.status(f"{run}/directives", method="POST", body="{}", token=token)


def test_the_cookie_is_for_the_page_that_showed_the_token(client: WatchClient) -> None:
    """One POST with the token sets a cookie that scripts can't read and other sites can't use."""
    body = json.dumps({"token": client.token})
    status, headers, _ = client.send("/api/session", method="POST", body=body, token=None)
    cookie = headers["set-cookie"]

    assert 204 == status
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert str(client.port) in cookie.partition("=")[0]
    assert 200 == client.status("/api/runs", token=None, cookie=cookie.partition(";")[0])
    assert 401 == client.status("/api/runs", token=None, cookie=f"stark-{client.port}=x")
    wrong = client.send("/api/session", method="POST", body='{"token": "x"}', token=None)
    assert 401 == wrong[0]
    assert "set-cookie" not in wrong[1]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": None}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "https://127.0.0.1"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_length": None, "transfer_encoding": "chunked"}, 411),
        ({"content_length": "99999999999999999999"}, 413),
        ({"content_length": "9000000"}, 413),
    ],
)
def test_a_post_of_another_page_is_refused(
    client: WatchClient, headers: dict[str, str | None], status: int
) -> None:
    """A form or script of another site can't post, and no body fills the memory."""
    run = run_of(client)
    assert status == client.status(f"{run}/directives", method="POST", body=b"", **headers)


def test_requests_of_other_sites_are_refused(client: WatchClient) -> None:
    """A browser says that another site's page asks, also one on another port of this host."""
    for site in ("cross-site", "same-site"):
        assert 403 == client.status("/api/runs", sec_fetch_site=site)
    assert 200 == client.status("/api/runs", sec_fetch_site="same-origin")


def test_only_get_and_post_exist(client: WatchClient) -> None:
    """Other methods are refused everywhere."""
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT"):
        assert 405 == client.status("/api/runs", method=method)


def test_every_answer_has_the_security_headers(client: WatchClient) -> None:
    """Pages, data, errors and refusals: no framing, no sniffing, no foreign script."""
    for path, token in (("/", None), ("/api/runs", ""), ("/api/runs", None), ("/nothing", "")):
        _, headers, _ = client.send(path, token=token)
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "nosniff" == headers["x-content-type-options"]
        assert "no-store" == headers["cache-control"]
        assert "server" not in headers


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fpyproject.toml",
        "/app/../../reporting/page_files.py",
        "//etc/passwd",
        "/\\..\\..",
        "/app/",
        "/scripts.json",
        "/run.db",
        "/%00",
        "/api/run/..%2f..%2fetc/since",
        "/api/run//since",
        "/api/run/one/since",
        "/api/nothing",
    ],
)
def test_no_request_becomes_a_path(client: WatchClient, path: str) -> None:
    """Files and runs are looked up by name; what is not in the list does not exist."""
    assert 404 == client.status(path)


def test_no_answer_holds_a_path(run_dir: Path, client: WatchClient) -> None:
    """Where a run is on disk is nothing that a page knows."""
    run = run_of(client)
    for path in ("/api/runs", f"{run}/since?seq=0", f"{run}/node/task_0/1", "/api/run/x/since"):
        assert str(run_dir.parent).encode() not in client.send(path)[2]


@pytest.mark.parametrize("node", ["99", "-1", "1.0", "x", "9" * 15, "9" * 400, "1%2f..", "%C3%28"])
def test_a_node_that_does_not_exist_is_not_found(client: WatchClient, node: str) -> None:
    """A wrong number in an address is no fault of the server."""
    assert 404 == client.status(f"{run_of(client)}/node/task_0/{node}")
    assert 404 == client.status(f"{run_of(client)}/node/{node}/1")


@pytest.mark.parametrize("seq", ["", "-1", "x", "9" * 15, "9" * 500, "1e5", "٣"])
def test_a_number_that_is_none_asks_for_everything(client: WatchClient, seq: str) -> None:
    """A page with a wrong or foreign number gets the whole state, never a fault."""
    quoted = seq.encode().decode("latin-1").replace(" ", "%20")
    address = f"{run_of(client)}/since?seq={quoted}" if seq.isascii() else None
    found = client.json(address or f"{run_of(client)}/since?seq=%D9%A3")
    assert found["whole"]
    assert 9 == len(found["nodes"])


def test_hostile_bytes_do_not_end_the_server(client: WatchClient) -> None:
    """What is no HTTP, or an endless header, is refused, and the next request is answered."""
    for content in (b"\x16\x03\x01\x02\x00" * 20, b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000, b"\n"):
        with socket.create_connection(("127.0.0.1", client.port), timeout=5) as raw:
            try:
                raw.sendall(content)
                raw.shutdown(socket.SHUT_WR)
                raw.recv(1000)
            except OSError:
                continue
    assert 200 == client.status("/api/runs")


def test_silent_connections_are_closed(
    client: WatchClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without a request, or with half of one, does not keep its place."""
    monkeypatch.setattr(connection, "IDLE_S", 0.1)
    for content in (b"", b"GET / HTTP/1.1\r\nHost: "):
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as raw:
            raw.sendall(content)
            assert b"" == raw.recv(100)


def test_a_body_that_does_not_arrive_is_not_waited_for(
    client: WatchClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A POST that announces more than it sends is answered all the same."""
    monkeypatch.setattr(application, "BODY_S", 0.1)
    assert 408 == client.status("/api/session", method="POST", body=b"{", content_length="9")


# --- data ----------------------------------------------------------------------------------------


def test_hostile_text_in_every_field_stays_data(tmp_path: Path) -> None:
    """Whatever candidates, models and tasks contain arrives as JSON text, byte for byte."""
    run_dir = write_run(tmp_path / "run", 1)
    with closing(sqlite3.connect(run_dir / "run.db")) as run:
        run.execute("UPDATE node SET source = ?, advice = ?", (HOSTILE, HOSTILE))
        run.execute("UPDATE call SET request = ?, reply = ?, model = ?", (HOSTILE,) * 3)
        run.execute("UPDATE event SET what = ?, subject = ?, detail = ?", (HOSTILE,) * 3)
        run.execute("UPDATE worker SET doing = ?, how = ?", (HOSTILE, HOSTILE))
        run.execute("UPDATE run SET reason = ?", (HOSTILE,))
        run.commit()
    with watching(run_dir) as client:
        status, headers, _ = client.send(f"{run_of(client)}/since")
        since = client.json(f"{run_of(client)}/since")
        node = client.json(f"{run_of(client)}/node/task_0/1")
        status_of_page = client.send("/")[1]["content-type"]

    assert (200, "application/json") == (status, headers["content-type"])
    assert HOSTILE == since["run"]["reason"] == since["events"][0]["detail"]
    assert HOSTILE == node["source"] == node["calls"][0]["reply"]
    assert status_of_page.startswith("text/html")


def test_details_of_a_node_hold_all_that_is_known(client: WatchClient) -> None:
    """A page of a node needs one answer: texts, calls, figures, timing, stages."""
    run = run_of(client)
    numbers = {node["number"]: node for node in client.json(f"{run}/since")["nodes"]}
    good = next(n for n, node in numbers.items() if n and node["verdict"] == "correct")
    details = client.json(f"{run}/node/task_0/{good}")

    assert numbers[good] == details["summary"]
    assert {"plan", "write", "evaluate"} == {stage["stage"] for stage in details["stages"]}
    assert ["planner", "coder"] == [call["role"] for call in details["calls"]]
    assert details["source"] == details["calls"][1]["reply"]
    parent = client.json(f"{run}/node/task_0/{details['summary']['parent']}")
    assert parent["source"] == details["parent_source"]
    timing = details["timing"]
    assert len(timing["ratio"]) == len(timing["reference_us"]) == len(timing["candidate_us"]) > 0
    assert details["verdict"]["lines"][0].startswith("correct")


def test_several_runs_have_addresses_of_their_own(run_dir: Path, tmp_path: Path) -> None:
    """One server shows several runs; each has an identifier that stays the same at each start."""
    other = write_run(tmp_path / "other", 2)
    with watching(run_dir, other, tmp_path / "later") as client:
        runs = client.json("/api/runs")["runs"]
        sizes = [len(client.json(f"/api/run/{run['id']}/since")["nodes"]) for run in runs]
    with watching(other) as client:
        (again,) = client.json("/api/runs")["runs"]

    assert ["one", "other", "later"] == [run["name"] for run in runs]
    assert [9, 3, 0] == sizes
    assert runs[1]["id"] == again["id"]
