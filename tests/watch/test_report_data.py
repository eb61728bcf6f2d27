"""The data inside report.html: complete, small, and read back as the page reads it."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import write_run

from actors.supervisor.page import PAGE
from actors.supervisor.page.page_files import page_order
from actors.supervisor.reporting.feed.node_details import node_details
from actors.supervisor.reporting.feed.run_feed import opened_run
from actors.supervisor.reporting.report import html_report, report_page
from actors.supervisor.reporting.report.text_pieces import TextPieces

HOSTILE = "</script><script>alert(1)</script><!-- ]]> {{ x }} {% raw %} \u2028"
LINES = st.lists(st.sampled_from(["a\n", "b\n", "}\n", "\n", "c", "\r\n", "\u2028"]), max_size=30)


def embedded(html: str) -> dict[str, Any]:
    """Return the data of a report, as its page unpacks it."""
    (packed,) = re.findall(r'<script type="application/octet-stream" id="data">([^<]*)<', html)
    decoded: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return decoded


def restored(value: Any, data: dict[str, Any]) -> Any:
    """Return details with their texts put back, as the page does it."""
    if isinstance(value, list):
        return [restored(part, data) for part in value]
    if not isinstance(value, dict):
        return value
    if "$text" in value:
        runs = data["texts"][value["$text"]]
        pairs = zip(runs[::2], runs[1::2], strict=True)
        return "".join("".join(data["pieces"][start : start + n]) for start, n in pairs)
    return {name: restored(part, data) for name, part in value.items()}


@given(st.lists(LINES, max_size=12))
def test_texts_come_back_as_they_were(texts: list[list[str]]) -> None:
    """Whatever lines repeat, every text is put together again, character by character."""
    pieces = TextPieces()
    written = ["".join(lines) for lines in texts]
    places = [pieces.add(text) for text in written]

    assert written == [pieces.text(place) for place in places]


def test_a_repeated_text_costs_one_pair() -> None:
    """A source within a longer text is one run, and a text that came before is no new one."""
    rng = random.Random(1)
    source = "".join(f"line {rng.random()}\n}}\n" for _ in range(100))
    pieces = TextPieces()
    first = pieces.add(source)
    around = pieces.add(f"before\n{source}after\n")

    assert first == pieces.add(source)
    assert [0, 200] == pieces.texts[first]
    assert 3 * 2 == len(pieces.texts[around])


def test_the_report_knows_what_the_server_knows(tmp_path: Path) -> None:
    """Every node's details are in the file: the same values that the server answers with."""
    run_dir = write_run(tmp_path, 12, tasks=2)
    data = embedded(html_report.render_report(run_dir))
    other_nodes = {"parent_source", "best_source", "root_source"}
    with opened_run(run_dir) as run:
        for task in ("task_0", "task_1"):
            for number in range(13):
                served = json.loads(msgspec.json.encode(node_details(run, (task, number))))
                stored = restored(data["nodes"][f"{task}/{number}"], data)
                assert {k: v for k, v in served.items() if k not in other_nodes} == stored

    assert 26 == len(data["since"]["nodes"])
    assert [] == data["left_out"]


def test_hostile_text_ends_no_element(tmp_path: Path) -> None:
    """Text of candidates, models and tasks can't leave the data, and comes back unchanged."""
    run_dir = write_run(tmp_path, 2)
    with closing(sqlite3.connect(run_dir / "run.db")) as run:
        run.execute("UPDATE node SET source = ?, advice = ?", (HOSTILE * 9, HOSTILE))
        run.execute("UPDATE call SET request = ?, reply = ?", (HOSTILE, HOSTILE))
        run.commit()
    html = html_report.render_report(run_dir)
    scripts = len(page_order().scripts)

    assert scripts + 1 == html.lower().count("</script")
    assert "<script>alert" not in html
    assert HOSTILE * 9 == restored(embedded(html)["nodes"]["task_0/1"], embedded(html))["source"]


def test_the_reports_scripts_are_the_pages_and_no_others_run(tmp_path: Path) -> None:
    """The content security policy names each script by its hash, and allows no connection."""
    html = html_report.render_report(write_run(tmp_path, 1))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)

    for name in page_order().scripts:
        script = (PAGE / name).read_text(encoding="utf-8")
        assert f"<script>{script}</script>" in html
        assert report_page._digest(script) in policy
    assert "default-src" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert "connect-src" not in policy  # default-src 'none' holds


def test_a_report_without_the_page_has_its_tables(tmp_path: Path) -> None:
    """Where the page's files are not installed the report is what it was, without a script."""
    run_dir = write_run(tmp_path / "run", 3)
    page = report_page.inline_page(run_dir, _snapshot(run_dir), folder=tmp_path)

    assert ((), "") == (page.scripts, page.data)
    assert "script-src 'none'" in page.policy


@pytest.mark.parametrize(("limit", "nodes"), [(10_000, 1), (40_000, 6)])
def test_a_large_run_leaves_out_what_is_least_interesting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, nodes: int
) -> None:
    """A file that would be too large holds the best's ancestors, and says what it lacks."""
    run_dir = write_run(tmp_path, 60)
    monkeypatch.setattr(report_page, "MAX_BYTES", limit)
    snapshot = _snapshot(run_dir)
    best = snapshot.tasks[0].best
    packed = report_page.embedded_data(run_dir, snapshot)
    data = json.loads(gzip.decompress(base64.b64decode(packed)))

    assert best is not None
    assert nodes <= len(data["nodes"]) < 61
    assert "task_0/0" in data["nodes"]
    assert nodes < 2 or f"task_0/{best.number}" in data["nodes"]
    assert "of 61 nodes" in data["left_out"][0]
    assert 61 == len(data["since"]["nodes"])


def test_a_run_of_a_hundred_nodes_is_small(tmp_path: Path) -> None:
    """Of 5 MB for a thousand nodes their data may take 3.5 MB: a tenth of it for a hundred."""
    run_dir = write_run(tmp_path, 100)
    data = report_page.embedded_data(run_dir, _snapshot(run_dir))

    assert len(data) < 350_000
    assert [] == json.loads(gzip.decompress(base64.b64decode(data)))["left_out"]


def _snapshot(run_dir: Path) -> Any:
    reader = html_report.RunReader(run_dir)
    snapshot = reader.poll()
    reader.close()
    return snapshot
