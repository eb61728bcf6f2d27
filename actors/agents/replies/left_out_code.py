"""Code that an answer leaves out: comments that stand for it, names that are missing.  Pure."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Sequence

from actors.agents.replies import python_source
from actors.agents.replies.definitions import definitions_of

_LEFT_OUT = re.compile(
    r"""(?:\#|//|/\*)\s*(?:\.{3}|…).*
    |(?:\#|//|/\*)\W*(?:
        (?:the\ )?(?:rest|remainder|remaining|existing|previous|original)\b
        .{0,40}\b(?:unchanged|as\ before|as\ above|same|code|stays|remains)
        |(?:un|not\ )changed|(?:the\ )?same(?:\ as\ before)?|as\ before
        |no\ changes?
    )\W*""",
    re.VERBOSE | re.IGNORECASE,
)
# Beside code such words may tell what it does; where lines are gone they stand for these.
_MAY_STAND = re.compile(
    r"""(?:\#|//|/\*)\W*(?:.{0,60}\b)?(?:
        unchanged|as\ (?:before|above|is)|etc|omitted|rest\ of|remainder|remaining
        |same(?:\ \w+)?\ as|existing\ (?:code|lines|body)|original\ (?:code|body)
    )\b.{0,40}""",
    re.VERBOSE | re.IGNORECASE,
)
_COMMENT = re.compile(r"(?:#(?!\s*(?:include|define|undef|pragma|if|el|end|error))|//|/\*).*")
MAX_COMMENT = 200  # characters of one that stands for code
DOTS = ("...", "…")  # alone on a line; `...` is Python, too


def left_out_line(lines: Iterable[str]) -> str:
    """Return the first comment that stands for code, as "// ... as before"; "" for none."""
    return next((line.strip() for line in lines if _LEFT_OUT.fullmatch(line.strip())), "")


def left_out_of_block(lines: Sequence[str], replaced: Sequence[str]) -> str:
    """Return the line that stands for code in new lines for `replaced`; "" for none."""
    known = {line.strip() for line in replaced}
    found = left_out_line(lines) or next((x for x in map(str.strip, lines) if x in DOTS), "")
    if not found and len([*_code_lines(lines)]) < len([*_code_lines(replaced)]):
        found = next((x for x in map(str.strip, lines) if _may_stand(x)), "")
    return "" if found in known else found


def _may_stand(line: str) -> bool:
    return len(line) <= MAX_COMMENT and _MAY_STAND.fullmatch(line) is not None


def _code_lines(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in map(str.strip, lines) if line and not _COMMENT.fullmatch(line))


def left_out_code(source: str, shown: str) -> str:
    """Return the comment that stands for code in a whole file; "" where no code is missing.

    It is all of a block, or a function of the shown source is called and not there.  Other comments
    of the kind, as "# same as above", say what the code beside them does.
    """
    lines = [line.strip() for line in source.split("\n") if line.strip()]
    known = {line.strip() for line in shown.split("\n")}
    comments = [
        (number, line)
        for number, line in enumerate(lines)
        if line not in known and (_LEFT_OUT.fullmatch(line) or _may_stand(line))
    ]
    for number, line in comments:
        before, after = "".join(lines[number - 1 : number]), "".join(lines[number + 1 : number + 2])
        if (before.endswith("{") and after.startswith("}")) or (
            before.endswith(":") and after in DOTS
        ):
            return line
    sure = left_out_line(line for _number, line in comments)
    old, new = (
        {one.name.rpartition(".")[2] for one in definitions_of(text)} for text in (shown, source)
    )
    is_missing = any(re.search(rf"\b{name}\s*[(\[<]", source) for name in old - new)
    return sure if is_missing or "forward" in old - new else ""


def missing_name(source: str, shown: str) -> str:
    """Return a name that a whole file uses and only the shown source defines; "" for none."""
    new, old = python_source.parse(source), python_source.parse(shown)
    if isinstance(new, str) or isinstance(old, str):
        return ""
    used = (one.id for one in ast.walk(new) if isinstance(one, ast.Name))
    bound = names_known_to(new)
    top = {*_bound_names(old, only_top=True)} - bound
    return "" if "*" in bound else next((name for name in used if name in top), "")


def names_known_to(module: ast.Module) -> frozenset[str]:
    """Return the names that a module binds anywhere, and Python's own; "*": any."""
    return frozenset([*_bound_names(module), *dir(builtins)])


def _bound_names(module: ast.Module, *, only_top: bool = False) -> Iterator[str]:
    """Yield the names that a module binds anywhere, or with its own statements."""
    for one in module.body if only_top else ast.walk(module):
        match one:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (each.asname or each.name.partition(".")[0] for each in names)
            case ast.arg(arg=name) | ast.ExceptHandler(name=str() as name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                yield name
            case ast.Assign(targets=targets) if only_top:
                yield from (x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name))
            case _:
                pass
