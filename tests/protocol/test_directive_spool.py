"""Directives and their spool: what arrives is what was meant, once, or one clear line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.directives import (
    DIRECTIVES,
    VERBS,
    Directive,
    DirectiveArguments,
    DirectiveError,
    Verb,
    new_directive,
    read_directive,
    submit_directive,
    waiting_directives,
    waiting_files,
)

ARGUMENTS: dict[str, DirectiveArguments] = {
    "budget": DirectiveArguments(attempts=5),
    "cap": DirectiveArguments(usd=1.5),
    "advise": DirectiveArguments(text="Tile over K."),
    "inject": DirectiveArguments(source="class ModelNew: ...\n"),
    "reject": DirectiveArguments(text="it caches its result"),
    "answer": DirectiveArguments(question="q1", text="```python\n```"),
}
WITHOUT_NODE = ("pause", "go", "budget", "cap", "answer", "finish")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_arrives_as_it_was_submitted(verb: Verb, tmp_path: Path) -> None:
    """The coordinator reads what the person wrote, and nothing else lies in the spool."""
    node = None if verb in WITHOUT_NODE else 3
    wanted = new_directive(verb, node=node, arguments=ARGUMENTS.get(verb), by="eva")
    key = submit_directive(tmp_path, wanted)
    assert [wanted] == waiting_directives(tmp_path)
    assert [f"{key}.json"] == [one.name for one in (tmp_path / DIRECTIVES).iterdir()]


def test_a_key_that_waits_is_not_replaced(tmp_path: Path) -> None:
    """A request that is sent twice, as browsers do, is one directive: the first."""
    first = new_directive("boost", node=1, key="same")
    submit_directive(tmp_path, first)
    submit_directive(tmp_path, new_directive("boost", node=2, key="same"))
    assert [first] == waiting_directives(tmp_path)


@pytest.mark.parametrize(
    ("verb", "node", "arguments"),
    [
        ("budget", None, DirectiveArguments()),
        ("budget", None, DirectiveArguments(attempts=0)),
        ("budget", 3, DirectiveArguments(attempts=5)),
        ("cap", None, DirectiveArguments(usd=float("nan"))),
        ("cap", None, DirectiveArguments(usd=-1.0)),
        ("pin", None, DirectiveArguments()),
        ("pin", -1, DirectiveArguments()),
        ("boost", 1, DirectiveArguments(count=0)),
        ("pause", 3, DirectiveArguments()),
        ("reject", 1, DirectiveArguments(text="  \n ")),
        ("advise", 1, DirectiveArguments(text="x" * 5_000)),
        ("inject", 1, DirectiveArguments(source="a\0b")),
        ("answer", None, DirectiveArguments(question="../../etc", text="yes")),
    ],
)
def test_a_directive_that_cannot_be_meant_is_one_line(
    verb: Verb, node: int | None, arguments: DirectiveArguments, tmp_path: Path
) -> None:
    """A wrong argument is an error at once, and nothing is written."""
    with pytest.raises(DirectiveError) as error:
        submit_directive(tmp_path, new_directive(verb, node=node, arguments=arguments))
    assert 1 == len(str(error.value).splitlines())
    assert [] == list(tmp_path.iterdir())


def test_a_key_is_never_a_path(tmp_path: Path) -> None:
    """A page that chooses keys can't write outside of the spool."""
    for key in ("../x", "", "a/b", "x" * 65, "."):
        with pytest.raises(DirectiveError):
            submit_directive(tmp_path, Directive(key=key, verb="go"))


def test_texts_cannot_rewrite_a_terminal_line() -> None:
    """Escape sequences and direction marks of a text never reach a person's terminal."""
    hostile = "fast\x1b[2J\u202e\x07 enough\r\nreally"
    directive = new_directive("reject", node=1, arguments=DirectiveArguments(text=hostile))
    assert "fast[2J enough really" == directive.arguments.text


def test_other_files_in_the_spool_are_errors_and_never_block(tmp_path: Path) -> None:
    """A pipe, a link or garbage in the folder can't stop the process that reads it."""
    folder = tmp_path / DIRECTIVES
    folder.mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "link.json").symlink_to("/etc/hostname")
    (folder / "garbage.json").write_bytes(b'{"key": "garbage", "verb": "explode"}')
    (folder / "other.json").write_bytes(b'{"key": "another", "verb": "pause"}')
    (folder / ".go.json.1234.new").write_bytes(b"{")
    files = waiting_files(tmp_path)
    assert ["garbage.json", "link.json", "other.json", "pipe.json"] == [f.name for f in files]
    for file in files:
        with pytest.raises(DirectiveError):
            read_directive(file)
    assert [] == waiting_directives(tmp_path)
