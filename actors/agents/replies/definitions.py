"""Functions and classes of a candidate's source, with their lines: Python's, and C++'s in strings.

Pure.  Python is read as syntax.  C++ and CUDA are found by their braces, without comments, strings
and preprocessor lines; what is not surely a definition is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from actors.agents.replies import python_source
from actors.agents.replies.anchors import lines_of
from protocol.values import Value

_UNREAD = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'"""
    r"""|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*""",
    re.DOTALL | re.MULTILINE,
)
_LONE_RETURN = re.compile(r"\r(?!\n)")
_CALLABLE = re.compile(r"(?<![\w.>:])(?:\w+::)*(\w+)\s*\(")
_TYPE = re.compile(
    r"\b(?:struct|class|union)\s+(?:__\w+\([^)]*\)\s+|alignas\([^)]*\)\s+)?(\w+)[^;{}()=]{0,300}\{"
)
_BODY = re.compile(r"(?:(?:const|noexcept|override|final)\b|\s)*(?:->[\s\w:<>,*&]+)?\{")
_MACRO_CALL = re.compile(r"\s*(?!__|alignas)[A-Za-z_]\w*\s*\(.*\)\s*")
_KEYWORDS = frozenset(
    ["if", "for", "while", "switch", "catch", "return", "sizeof", "alignof", "decltype", "asm"]
)


class Definition(Value, frozen=True, kw_only=True):
    """A function or class on lines [first, last] of the source, from 1."""

    name: str  # with its classes: "ModelNew.forward"
    first: int
    last: int
    is_class: bool


def definitions_of(source: str) -> list[Definition]:
    """Return all definitions in the order of their lines; [] for text that is not Python."""
    module = python_source.parse(source)
    # Python counts a lone carriage return as a line end, and `lines_of` does not.
    if isinstance(module, str) or _LONE_RETURN.search(source):
        return []
    found = [*_python_definitions(module.body, "")]
    for compiled in definitions_in_strings(source):
        found += compiled
    return sorted(found, key=lambda one: (one.first, one.last))


def definitions_in_strings(source: str) -> list[list[Definition]]:
    """Return the definitions of compiled code in each string over several lines."""
    lines = lines_of(source)
    return [
        [*_cpp_definitions(lines[first - 1 : last], first)]
        for first, last in python_source.string_zones(source)
    ]


def compiled_definitions(lines: Sequence[str]) -> list[Definition]:
    """Return the definitions in lines of compiled code."""
    return [*_cpp_definitions(lines, 1)]


def _python_definitions(body: Sequence[ast.stmt], above: str) -> Iterator[Definition]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{above}{statement.name}"
            first = min([statement.lineno, *(one.lineno for one in statement.decorator_list)])
            last = statement.end_lineno or statement.lineno
            yield Definition(
                name=name, first=first, last=last, is_class=isinstance(statement, ast.ClassDef)
            )
            yield from _python_definitions(statement.body, f"{name}.")
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _python_definitions(statement.body, above)


def _cpp_definitions(lines: Sequence[str], first: int) -> Iterator[Definition]:
    """Yield the definitions in the lines of one string, the first of which has number `first`."""
    if any('R"' in line for line in lines):
        return  # a raw string in the string: its braces are text
    text = _UNREAD.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), "\n".join(lines))
    read, closing = text.split("\n"), _closing_brackets(text)
    for match, is_class in [
        *((match, False) for match in _CALLABLE.finditer(text)),
        *((match, True) for match in _TYPE.finditer(text)),
    ]:
        brace = match.end() - 1 if is_class else _body_of(text, match, closing)
        end = closing.get(brace) if brace is not None else None
        if end is None:
            continue
        line = text.count("\n", 0, match.start())
        start, stop = _head_of(read, line), text.count("\n", 0, end)
        if any(_MACRO_CALL.fullmatch(above) for above in read[start:line]):
            continue  # a registration of its own, or a part of the head
        yield Definition(
            name=match.group(1), first=first + start, last=first + stop, is_class=is_class
        )


def _body_of(text: str, match: re.Match[str], closing: Mapping[int, int]) -> int | None:
    """Return where the body of a function begins; None for a call or a declaration."""
    close = closing.get(match.end() - 1)
    if match.group(1) in _KEYWORDS or close is None:
        return None
    rest = _BODY.match(text, close + 1)
    return rest.end() - 1 if rest else None


def are_brackets_paired(text: str) -> bool:
    """Whether the parentheses and braces of compiled code pair up, without comments and strings."""
    read = _UNREAD.sub(" ", text)
    return bool(_closing_brackets(read)) or not re.search(r"[(){}]", read)


def lines_with_open_strings(text: str) -> list[str]:
    """Return the lines of compiled code with a quote that no other one of the line closes."""
    read = _UNREAD.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text).split("\n")
    lines = text.split("\n")
    return [lines[number] for number, line in enumerate(read) if line.count('"') % 2]


def _closing_brackets(text: str) -> dict[int, int]:
    """Return the index of the closing bracket of each parenthesis and brace.

    Where some have none, as between `#if` and `#else`, no pair is sure: {}.
    """
    found: dict[int, int] = {}
    waiting: dict[str, list[int]] = {")": [], "}": []}
    for match in re.finditer(r"[(){}]", text):
        bracket = match.group()
        if bracket in "({":
            waiting[")" if bracket == "(" else "}"].append(match.start())
        elif not waiting[bracket]:
            return {}
        else:
            found[waiting[bracket].pop()] = match.start()
    return {} if any(waiting.values()) else found


def _head_of(read: Sequence[str], line: int) -> int:
    """Return the first line of the declaration that goes on at `line`: templates, qualifiers."""
    while line > 0:
        above = read[line - 1].rstrip()
        if not above.strip() or above.endswith((";", "{", "}", ":", ",", "(")):
            break
        line -= 1
    return line
