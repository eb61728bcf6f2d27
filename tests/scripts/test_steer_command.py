"""`scripts/steer.py`: a directive from the command line, its states, and one line for a mistake."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest
from supervisor_sample import Sample

from actors.exit_status import ExitStatus
from protocol import questions
from protocol.directives import waiting_directives
from scripts import steer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Sample(tmp_path / "run").path


def submitted(run: Path, *words: str) -> object:
    """Submit by command line; return the directive that waits then."""
    assert ExitStatus.DONE == steer.main([str(run), *words])
    (directive,) = waiting_directives(run)
    return directive


@pytest.mark.parametrize(
    ("words", "verb", "node", "arguments"),
    [
        (["pause"], "pause", None, {}),
        (["budget", "40"], "budget", None, {"attempts": 40}),
        (["cap", "2.5"], "cap", None, {"usd": 2.5}),
        (["pin", "17"], "pin", 17, {}),
        (["boost", "17", "3"], "boost", 17, {"count": 3}),
        (["boost", "gelu/17"], "boost", 17, {"count": None}),
        (["reject", "4", "it caches"], "reject", 4, {"text": "it caches"}),
        (["advise", "tile it", "--node", "4"], "advise", 4, {"text": "tile it", "scope": None}),
        (["advise", "tile it", "--node", "4", "--only"], "advise", 4, {"scope": "node"}),
        (["advise", "tile it"], "advise", None, {"text": "tile it"}),
    ],
)
def test_the_words_become_the_directive(
    run: Path, words: list[str], verb: str, node: int | None, arguments: dict[str, object]
) -> None:
    """Each verb is typed as its help says."""
    directive = submitted(run, *words, "--by", "eva")
    assert (verb, node, "eva") == (directive.verb, directive.node, directive.by)
    for name, value in arguments.items():
        assert value == getattr(directive.arguments, name)


def test_only_a_run_without_a_supervisor_is_said_to_wait_for_a_resume(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a supervisor starts the coordinator again, the run needs no resume."""
    steer.main([str(run), "pause"])
    assert "takes it when it is resumed" in capsys.readouterr().out
    with (run / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        steer.main([str(run), "go"])
    assert "resumed" not in capsys.readouterr().out


def test_files_are_read_when_they_are_submitted(run: Path, tmp_path: Path) -> None:
    """The source and the reply are what the files held then."""
    source = tmp_path / "mine.py"
    source.write_text("class ModelNew: ...\n")
    directive = submitted(run, "inject", str(source), "--node", "3", "--note", "mine")
    assert ("class ModelNew: ...\n", "mine", 3) == (
        directive.arguments.source, directive.arguments.text, directive.node,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["pin", "seventeen"], "is not a node"),
        (["pin", "-4"], "is not a node"),
        (["budget", "0"], "1 or more"),
        (["cap", "nan"], "US dollars"),
        (["reject", "3", " "], "needs a reason"),
        (["advise", "x" * 5000], "characters"),
        (["inject", "absent.py"], "absent.py"),
        (["inject", "stark.toml"], "defines no ModelNew"),
        (["advise", "hm", "--only"], "--only needs --node"),
        (["pin", "other/3", "--task", "gelu"], "--task says gelu"),
        (["dance"], "invalid choice"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    run: Path,
    words: list[str],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Status 2, and the spool stays as it was."""
    monkeypatch.chdir(run)
    try:
        status = steer.main([str(run), *words])
    except SystemExit as ended:
        status = ended.code
    output = capsys.readouterr()
    assert (ExitStatus.USAGE, "", 1) == (status, output.out, len(output.err.splitlines()))
    assert reason in output.err
    assert not (run / "directives").exists()


@pytest.mark.parametrize("folder", ["absent", "."])
def test_a_folder_that_is_no_run_is_refused(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped folder does not become a spool."""
    assert ExitStatus.USAGE == steer.main([str(tmp_path / folder), "pause"])
    assert 1 == len(capsys.readouterr().err.splitlines())
    assert [] == list(tmp_path.iterdir())


def test_list_shows_what_waits_and_what_was_done(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stored rows, files of the spool, and questions without an answer."""
    sample = Sample(run.parent / "other")
    sample.db.execute(
        'INSERT INTO directive (key, verb, task, node, arguments, "by", wanted_at, state, reason,'
        " applied_at) VALUES ('k', 'pin', 'gelu', 3, '{}', 'eva', 1.0, 'refused',"
        " 'node 3 is pruned: unprune it first', 2.0)"
    )
    submitted(sample.path, "boost", "2")
    questions.ask(sample.path, "planner-1-abc", "what?")
    capsys.readouterr()
    assert 0 == steer.main([str(sample.path), "list"])
    lines = capsys.readouterr().out.splitlines()
    assert ["pin gelu/3 by eva  refused: node 3 is pruned: unprune it first"] == [
        line.split("  ", 2)[2] for line in lines if " k " in line
    ]
    assert any("boost 2 by" in line and line.endswith("wanted") for line in lines)
    assert any("question planner-1-abc waits" in line for line in lines)
    assert 0 == steer.main([str(sample.path), "list", "--json"])
    parsed = json.loads(capsys.readouterr().out)
    assert ["refused", "wanted"] == [row["state"] for row in parsed["directives"]]
    assert ["planner-1-abc"] == parsed["questions"]


def test_wait_ends_with_the_answer(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 applied, 1 refused with the reason, 3 not taken in time."""
    assert ExitStatus.STOPPED == steer.main([str(run), "pause", "--wait", "0"])
    assert "resumed" in capsys.readouterr().out
    sample = Sample(run.parent / "other")
    for key, state, status in (("a", "applied", 0), ("b", "refused", 1)):
        sample.db.execute(
            'INSERT INTO directive (key, verb, task, arguments, "by", wanted_at, state, reason,'
            " applied_at, attempt) VALUES (?, 'pause', '', '{}', '', 1.0, ?, '', 2.0, NULL)",
            (key, state),
        )
        assert status == steer.wait(sample.path, key, "pause", 1.0)
        assert f"{key} pause: {state}" in capsys.readouterr().out
