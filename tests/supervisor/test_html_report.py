"""report.html: complete, offline, and every text in it stays text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
from msgspec.structs import replace
from supervisor_sample import NODES, Sample, correct, failed

from actors.supervisor.page.page_files import page_order
from actors.supervisor.reporting.report import html_report
from actors.supervisor.reporting.run_data.run_reader import RunReader
from protocol import settings as settings_file
from protocol.values import Device, Outcome, Plan, Reference


class _Tags(HTMLParser):
    """Notes the elements that a browser would see, and checks that each is closed."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.scripts = 0
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.scripts += tag == "script"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["script"]:
            self.text += data


# The files of the page, and the element with the data for them.
OWN_SCRIPTS = len(page_order().scripts) + 1


def test_the_report_is_complete_offline_and_escaped(tmp_path: Path) -> None:
    """One file holds tree, curve, source, diff, failures and spend; no text becomes an element."""
    sample = Sample(tmp_path, names=("gelu", "softmax"))
    html = html_report.write_report(tmp_path).read_text()
    page = _Tags()
    page.feed(html)
    assert page.open == []
    assert {"svg", "table", "ul", "pre", "ins", "del", "details"} <= page.seen
    assert OWN_SCRIPTS == page.scripts
    assert "b" in page.seen  # ours; the compiler's "<b>" is text
    assert "error: expected ';' before <b>" in page.text
    assert "<script>alert(1)</script>" in page.text
    assert "+class ModelNew:" in page.text
    begins = html.partition("<h2>Tasks</h2>")[2].partition("<h2>gelu</h2>")[0]
    assert ["gelu", "softmax"] == re.findall(r"<td>([^<]*)</td>", begins)
    assert 2 == begins.count(">2.50× (2.48–2.52), confirmed<")
    assert not re.search(r"(src|href)=", html.partition("</main>")[0])
    for node in NODES:
        assert f"{node[0]} · " in page.text
    sample.db.close()


HOSTILE = "<i title='x'>&\"</pre><script>"


def test_every_field_of_the_report_is_escaped(tmp_path: Path) -> None:
    """No text of a task, model, candidate, compiler or device becomes an element of the page."""
    sample = Sample(tmp_path, names=(f"t{HOSTILE}".replace("/", "|"),), nodes=(), budget=3)
    (name,) = sample.settings.tasks
    plan = Plan(advice=HOSTILE, scaffold=f"{HOSTILE}\n", spans=((1, 1),))
    device = Device(name=HOSTILE, fingerprint=f"f{HOSTILE}", facts={f"k{HOSTILE}": f"v{HOSTILE}"})
    reference = Reference(eager_us=1000.0, device=device, notes=(f"note {HOSTILE}",))
    sample.add_node(name, 1, 0, failed(Outcome.WRONG, f"reason {HOSTILE}"), source=HOSTILE)
    sample.add_node(name, 2, 1, correct(500.0), source=f"winner {HOSTILE}")
    sample.confirm(name, 2)
    sample.db.execute(
        "UPDATE node SET advice = ?, plan = ?, outside = ?, word = ? WHERE number > 0",
        (
            f"advice {HOSTILE}",
            msgspec.msgpack.encode(plan),
            json.dumps([f"+{HOSTILE}"]),
            f"word {HOSTILE}",
        ),
    )
    sample.db.execute(
        "UPDATE task SET problem = ?, reference = ?, source = ?",
        (f"problem {HOSTILE}", msgspec.msgpack.encode(reference), f"source {HOSTILE}"),
    )
    sample.add_call(f"{name}/1/plan", 0.25)
    sample.db.execute("UPDATE call SET role = ?, model = ?", (f"r{HOSTILE}", f"m{HOSTILE}"))
    sample.db.execute("UPDATE run SET run_id = ?", (f"id {HOSTILE}",))
    sample.set_status(f"status {HOSTILE}", f"why {HOSTILE}")
    settings = replace(sample.settings, model=f"model {HOSTILE}", model_reason=HOSTILE)
    settings_file.write(tmp_path, settings)
    sample.db.close()

    page = _Tags()
    page.feed(html_report.render_report(tmp_path))
    assert page.open == []
    assert "i" not in page.seen
    assert OWN_SCRIPTS == page.scripts
    for field in ("id", "status", "why", "model", "problem", "note", "reason", "advice", "word"):
        assert f"{field} {HOSTILE}" in page.text
    for field in ("winner", "-source", "+winner"):
        assert f"{field} {HOSTILE}" in page.text
    for field in ("r", "m", "k", "v", "f"):
        assert f"{field}{HOSTILE}" in page.text


def test_no_template_switches_escaping_off() -> None:
    """Escaping is a property of the templates only as long as no value is declared safe."""
    for template in Path(html_report.__file__).parent.glob("*.j2"):
        assert not re.search(r"\|\s*safe|autoescape|Markup", template.read_text())


def test_a_run_that_has_just_begun_has_a_report(tmp_path: Path) -> None:
    """A run without nodes has a report; a folder without a run is one line and status 2."""
    Sample(tmp_path / "run", nodes=(), status="running").db.close()
    script = str(Path(html_report.__file__).parents[4] / "scripts" / "report.py")
    good = subprocess.run([sys.executable, script, str(tmp_path / "run")], check=False)
    assert good.returncode == 0
    assert "No attempt has ended yet" in (tmp_path / "run" / "report.html").read_text()
    bad = subprocess.run(
        [sys.executable, script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (2, 1) == (bad.returncode, len(bad.stderr.splitlines()))


def test_the_report_shows_spend_by_role_and_lost_calls(tmp_path: Path) -> None:
    """The report shows dollars, tokens and seconds of each role and of the run, and lost calls."""
    sample = Sample(tmp_path)
    sample.add_call("gelu/1/plan", 0.25)
    sample.add_call("gelu/2/plan", 0.5)
    sample.db.execute("UPDATE call SET stop = 'lost' WHERE work = 'gelu/2/plan'")
    sample.db.close()

    reader = RunReader(tmp_path)
    rows = reader.spend_by_node()
    reader.close()
    assert [(1, 0.25, 0), (2, 0.5, 1)] == [(r.node, r.spend.usd, r.spend.lost) for r in rows]
    text = html_report.render_report(tmp_path)
    assert "<td>planner</td><td>m</td>" in text
    assert ">0.7500<" in text


def test_the_report_shows_each_edit(tmp_path: Path) -> None:
    """An edit has advice, numbered anchored lines, the diff, and the changes outside anchors."""
    sample = Sample(tmp_path, nodes=())
    scaffold = "import torch\n# <<<IMPROVE BEGIN>>>\ny = <slow>(x)\n# <<<IMPROVE END>>>\n"
    plan = Plan(advice="Fuse <both>.", scaffold=scaffold, spans=((3, 3),))
    sample.add_node("gelu", 1, 0, correct(500.0), source="import torch\ny = fast(x)\n")
    sample.db.execute(
        "UPDATE node SET plan = ?, outside = ? WHERE number = 1",
        (msgspec.msgpack.encode(plan), '["@@ line 1 @@\\n-import torch\\n+import <os>"]'),
    )
    sample.db.close()

    text = html_report.render_report(tmp_path)
    assert "node 1 from 0: correct, 1 change outside the anchors" in text
    assert "    3  y = &lt;slow&gt;(x)" in text
    assert "<ins>+y = fast(x)</ins>" in text
    assert "<ins>+import &lt;os&gt;</ins>" in text
    assert "<slow>" not in text
