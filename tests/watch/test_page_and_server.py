"""The page in a browser before the server of `scripts/watch.py`, over run folders."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from seen_page import OpenPage
from synthetic_run import write_run
from watch_client import watching

from protocol.directives import waiting_directives

TOP = Path(__file__).parents[2]
TASK = "task_0"
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u2028\u202e'\"`${x}"
TABS = ("verdict", "source", "diff", "plan", "calls", "log", "profile", "cost")


@contextmanager
def watch_command(run: Path, port: int, token: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the command as a user does, and kill it at the end."""
    command = [sys.executable, "scripts/watch.py", str(run), "--port", str(port)]
    with subprocess.Popen(
        [*command, "--token-file", str(token)], cwd=TOP, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def printed_address(process: subprocess.Popen[str]) -> str:
    """Return the address that the command printed."""
    assert process.stdout is not None
    for line in process.stdout:
        if "http://" in line:
            return line[line.index("http://") :].split()[0]
    raise AssertionError("watch printed no address")


def visit(seen: Any, nodes: list[int]) -> None:
    """Go through every view, and every tab of some nodes."""
    for view in ("tree", "best", "fleet", "compare", "directives"):
        seen.go(f"#/{view}")
        seen.page.wait_for_timeout(60)
    for number in nodes:
        for tab in TABS:
            seen.go(f"#/node/{TASK}/{number}/{tab}")
            seen.wait(".tab-panel")
            seen.page.locator(".tab-panel [role=status]").wait_for(state="detached")


def test_every_view_of_a_stored_run(open_page: OpenPage, tmp_path: Path) -> None:
    """A run folder is shown whole: no error, no policy violation, no request elsewhere."""
    run = write_run(tmp_path / "run", 30)
    with watching(run) as client:
        seen = open_page(f"http://{client.host}/#token={client.token}")
        seen.wait_for_text(".headline", "30 of 30 attempts are done")
        visit(seen, [0, 30])
        assert "The run is over" in seen.text(".headline")
        assert "USD an attempt" in seen.text(".headline")


def test_several_tasks_in_one_table(open_page: OpenPage, tmp_path: Path) -> None:
    """A run of several tasks lists them; each leads to its own tree and headline."""
    run = write_run(tmp_path / "run", 5, tasks=3)
    with watching(run) as client:
        seen = open_page(f"http://{client.host}/#token={client.token}&/tasks")
        seen.wait_for_text(".list tbody", "task_2")
        assert "3 of 3 tasks have a faster kernel" in seen.text(".headline")
        assert "15 of 15 attempts are done" in seen.text(".headline")
        assert 3 == seen.page.locator(".list tbody tr").count()
        seen.page.get_by_role("link", name="task_1").click()
        seen.wait(".virtual-row")
        assert "task_1" == seen.page.get_by_label("Task", exact=True).input_value()
        seen.wait_for_text(".headline", "5 of 5 attempts are done")


def test_hostile_texts_of_a_stored_run(open_page: OpenPage, tmp_path: Path) -> None:
    """Texts of models that look like markup come out of run.db as texts."""
    run = write_run(tmp_path / "run", 6)
    with closing(sqlite3.connect(run / "run.db")) as store:
        store.execute("UPDATE node SET advice = ?1, source = ?1 WHERE number > 0", (HOSTILE,))
        store.execute("UPDATE call SET request = ?1, reply = ?1, model = ?1", (HOSTILE,))
        store.execute("UPDATE event SET subject = ?1, detail = ?1", (HOSTILE,))
        store.commit()
    with watching(run) as client:
        seen = open_page(f"http://{client.host}/#token={client.token}")
        seen.wait(".virtual-row")
        visit(seen, [1])
        assert 0 == seen.page.locator("#app img, #app script").count()
        seen.go(f"#/node/{TASK}/1/source")
        seen.wait_for_text(".text-view", "<img src=x onerror=alert(1)></script>")


def test_directive_of_a_click_waits_in_the_run_folder(open_page: OpenPage, tmp_path: Path) -> None:
    """What a person clicks is a directive in the run's spool, and is listed as wanted."""
    run = write_run(tmp_path / "run", 6, status="running")
    with watching(run, steer=True) as client:
        seen = open_page(f"http://{client.host}/#token={client.token}&/directives")
        seen.wait(".actions")
        seen.page.get_by_role("button", name="Budget").click()
        seen.page.get_by_label("attempts").fill("40")
        seen.page.locator(".directive-form").get_by_role("button", name="Budget").click()
        seen.wait_for_text(".said", "wanted")
        (directive,) = waiting_directives(run)
        assert ("budget", 40) == (directive.verb, directive.arguments.attempts)
        seen.wait_for_text(".directives-view tbody", "attempts: 40")


def test_refused_words_are_shown_to_the_person(open_page: OpenPage, tmp_path: Path) -> None:
    """A directive that the server does not take is answered with its reason, in the form."""
    run = write_run(tmp_path / "run", 6, status="running")
    with watching(run, steer=True) as client:
        seen = open_page(f"http://{client.host}/#token={client.token}&/directives")
        seen.wait(".actions")
        seen.page.get_by_role("button", name="Answer").click()
        seen.page.get_by_label("question").fill("../../etc/passwd")
        seen.page.get_by_label("reply").fill("x")
        seen.page.locator(".directive-form").get_by_role("button", name="Answer").click()
        seen.wait_for_text(".directive-form [role=alert]", "question")
        seen.errors.clear()  # the browser itself reports a status of 400
    assert [] == waiting_directives(run)


def test_watch_killed_and_started_again(open_page: OpenPage, tmp_path: Path) -> None:
    """kill -9 of watch under an open page: it says so, and goes on with the next watch."""
    run, token = write_run(tmp_path / "run", 6, status="running"), tmp_path / "token"
    with watch_command(run, 0, token) as process:
        address = printed_address(process)
        seen = open_page(address)
        seen.wait_for_text(".headline", "6 of 6 attempts are done")
        seen.is_server_killed = True
        os.kill(process.pid, signal.SIGKILL)
        seen.wait_for_text(".notice", "Connection lost")
    with closing(sqlite3.connect(run / "run.db")) as store:
        store.execute("UPDATE task SET budget = 60")
        store.commit()
    port = int(address.split(":")[2].split("/")[0])
    with watch_command(run, port, token) as process:
        printed_address(process)
        seen.wait_for_text(".headline", "6 of 60 attempts are done")


@pytest.mark.long
def test_ten_thousand_nodes(open_page: OpenPage, tmp_path: Path) -> None:
    """A stored run of 10,000 nodes: the document stays small; keys and search answer."""
    run = write_run(tmp_path / "run", 10_000)
    with watching(run) as client:
        seen = open_page(f"http://{client.host}/#token={client.token}")
        seen.page.set_default_timeout(60_000)
        seen.page.locator(".headline").filter(has_text="10,000 of 10,000").wait_for()
        elements = "document.querySelectorAll('*').length"
        assert 900 > seen.page.evaluate(elements)
        seen.page.locator(".virtual-rows").focus()
        seen.page.keyboard.press("End")
        for _ in range(30):
            seen.page.keyboard.press("PageUp")
        seen.page.get_by_label("Search the attempts").fill("#7777")
        seen.wait_for_text(".virtual-row .row-number", "7777")
        seen.page.get_by_label("Search the attempts").fill("")
        visit(seen, [7777])
        assert 1500 > seen.page.evaluate(elements)
