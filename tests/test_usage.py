"""The parser of every command line here."""

from __future__ import annotations

import pytest

from actors.usage import Parser


@pytest.mark.parametrize(
    ("prog", "short"),
    [("python scripts/story.py", "story"), ("python -m actors.evaluator.build", "build")],
)
def test_a_mistake_is_one_line_that_says_who_and_where_to_look(
    prog: str, short: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, nothing on stdout; also from a word's own flags."""
    parser = Parser(prog=prog)
    parser.add_argument("--count", type=int)
    parser.add_subparsers().add_parser("new").add_argument("--hours", type=float)
    for argv in (["--count", "many"], ["new", "--hours", "many"]):
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(argv)
        said = capsys.readouterr()
        assert (2, "", 1) == (ended.value.code, said.out, len(said.err.splitlines()))
        assert said.err.startswith(f"{short}: {argv[-2]}: invalid")
        assert f"see {prog}" in said.err


def test_where_others_may_follow_a_mistake_is_raised() -> None:
    """A command with its own last words gets the same line as an exception."""
    parser = Parser(prog="python supervisor.py")
    parser.refusal = KeyError
    with pytest.raises(KeyError, match=r"unrecognized arguments: -x; see python supervisor\.py"):
        parser.parse_args(["-x"])
