"""What is likely a slip in an answer of edits, as a question to the model.

Pure.  New lines that are not text of the file (numbers, differences, left-out code), and sources
that the edits broke: brackets that no longer match, definitions twice or outside their class.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from actors.agents.replies import python_source
from actors.agents.replies.anchors import lines_of
from actors.agents.replies.definitions import (
    are_brackets_paired,
    definitions_in_strings,
    lines_with_open_strings,
)
from actors.agents.replies.format_strings import brace_question
from actors.agents.replies.left_out_code import left_out_of_block
from actors.agents.replies.places import ShownLines
from actors.agents.replies.replies import FencedBlock, fence_of

MIN_TOLD_CHARS = 8  # letters and digits that make a line more than a bracket
_NUMBERED = re.compile(r"\s*(?P<number>\d+)\t(?P<text>.*)")
_COUNTED = re.compile(r"\s*L?(?P<number>\d+)(?:\s*[:|→]|[.)]\s|\s{2,})")
_WORD = re.compile(r"[(\[<]\s*(?:deleted?|removed?|empty|none|nothing|no code)\s*[)\]>]", re.I)
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_CONFLICT = re.compile(r"(?:<{5,}|>{5,})(?:\s+\w+)?\s*|={7,}\s*")
_CHOICES = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|else|elif)\b", re.MULTILINE)
_NAMESPACE = re.compile(r"\bnamespace\b[\w:\s]*\{")
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


# --- the new lines --------------------------------------------------------------------------------


def question_about_block(block: FencedBlock, lines: Sequence[str], replaced: Sequence[str]) -> str:
    """Return why a block is not surely the new text of the lines `replaced`; "" if it is."""
    if not block.is_closed:
        return "was never closed"
    if block.language in ("diff", "patch") or _is_difference(lines, replaced):
        return "is a diff: write only the new lines"
    if sum(bool(_CONFLICT.fullmatch(line)) for line in lines) > 1:
        return "has search-and-replace marks: write only the new lines, the heading names the old"
    if any(_is_fence(line, block) for line in lines):
        return (
            "contains a fence: close each block, and use a longer fence around lines that begin"
            " with one"
        )
    if len(lines) == 1 and _WORD.fullmatch(lines[0].strip()):
        return "holds words, not code: leave it empty to delete lines"
    left_out = left_out_of_block(lines, replaced)
    if left_out:
        return f"leaves lines out ({left_out!r}): write all new lines, or edit smaller places"
    return ""


def has_numbers(lines: Sequence[str], first: int, last: int, shown: ShownLines) -> bool:
    """Whether new lines for [first, last] have the numbers of the shown lines before them."""
    found = [_NUMBERED.match(line) for line in lines if line.strip()]
    near = range(first - 1, last + len(lines) + 2)
    there = shown.lines[first - 1 : last] or shown.lines[max(first - 2, 0) : first]
    has_own = any(map(_COUNTED.match, there))  # as the entries of a dict by number
    counted = [_COUNTED.match(line) for line in lines if line.strip() and not has_own]
    counts = [int(one["number"]) for one in counted if one]
    is_counted = len(counts) == len(counted) and counts == sorted({*counts})
    if counts and is_counted and (counts[0] == 1 < len(counts) or counts[0] in near):
        return True
    return bool(found) and (
        all(found)
        or any(_is_copied(one, shown) or int(one["number"]) in near for one in found if one)
    )


def _is_copied(match: re.Match[str], shown: ShownLines) -> bool:
    """Whether a line is one of the shown lines, copied with its number."""
    number, text = int(match["number"]), match["text"]
    is_there = 1 <= number <= len(shown.lines) and bool(text.strip())
    return is_there and text == shown.lines[number - 1].rstrip("\r")


def _is_difference(lines: Sequence[str], replaced: Sequence[str]) -> bool:
    """Whether lines have the marks of a difference: a hunk's head, or a removed line of these."""
    if any(map(_HUNK.match, lines)):
        return True
    told = [line for line in lines if line.strip()]
    if told and all(line[0] == "+" for line in told):
        return not any(line.lstrip()[:1] == "+" for line in replaced)
    there = {" ".join(line.split()) for line in replaced} - {""}
    marked = [line for line in lines if line[:1] in ("+", "-")]
    removed = any(line[0] == "-" and " ".join(line[1:].split()) in there for line in marked)
    return removed and any(line[0] == "+" for line in marked)


def _is_fence(line: str, block: FencedBlock) -> bool:
    """Whether a line may end the block that it stands in: it has a fence as long as the block's."""
    mark = fence_of(line)
    return bool(mark) and mark[0] == block.mark[0] and len(mark) >= len(block.mark)


def repeated_line(first: int, last: int, lines: Sequence[str], shown: ShownLines) -> int | None:
    """Return the line beside [first, last] that the new lines begin or end with; None for none.

    Then the named lines are likely some off.  A line that is to stand twice can be put between
    replaced ones.
    """
    there = [line.rstrip("\r") for line in shown.lines]
    for count in range(1, len(lines) + 1):
        above = there[first - 1 - count : first - 1] if count < first else []
        for beside, number, new in (
            (above, first - count, lines[:count]),
            (there[last : last + count], last + 1, lines[-count:]),
        ):
            if not beside or beside != [*new]:
                continue
            is_told = any(sum(map(str.isalnum, line)) >= MIN_TOLD_CHARS for line in beside)
            if is_told and {*beside}.isdisjoint(there[first - 1 : last]):
                return number
    return None


# --- the source with the edits in it --------------------------------------------------------------


def question_about_result(before: str, after: str) -> str:
    """Return what edits likely broke in a source that is Python still; "" for nothing."""
    return (
        brace_question(before, after)
        or _string_question(before, after)
        or _bracket_question(before, after)
        or _definition_question(before, after)
    )


def _string_question(before: str, after: str) -> str:
    """Return a question where a string of compiled code ends on another line than it begins.

    `\\n` in a Python string that is not raw is a line end, which C++ does not take there.
    """
    old, new = (
        Counter(line for code in _code_strings(text) for line in lines_with_open_strings(code))
        for text in (before, after)
    )
    found = next((line for line in new if new[line] > old[line]), "")
    return found and (
        f"`{found.strip()[:60]}` begins a string that ends on another line: a Python string that is"
        " not raw needs `\\\\n` where the compiled code has `\\n`"
    )


def _bracket_question(before: str, after: str) -> str:
    """Return a question where brackets of compiled code paired up before, and do not now.

    Code that is put together from more strings, or is chosen by `#if`, may be right all the same.
    """
    old, new = ([*_code_strings(text)] for text in (before, after))
    if len(old) != len(new) or not all(map(are_brackets_paired, old)):
        return ""
    broken = next((text for text in new if not are_brackets_paired(text)), None)
    if broken is None or _CHOICES.search(broken):
        return ""
    head = next(line.strip() for line in broken.split("\n") if line.strip())
    return (
        "the brackets of the compiled code no longer match, in the string that begins with"
        f" {head[:60]!r}: name the lines again, with the closing brackets that the new lines hold"
    )


def _code_strings(source: str) -> Iterator[str]:
    """Yield the strings over several lines that hold code with braces."""
    module = python_source.parse(source)
    if isinstance(module, str):
        return
    parts = {
        id(part)
        for node in ast.walk(module)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(module):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                part.value
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                else "x"
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value if id(node) not in parts else ""
        if "\n" in text and "{" in text and ";" in text and 'R"' not in text:
            yield text


def _definition_question(before: str, after: str) -> str:
    """Return a question where something is defined twice, or is outside its class now."""
    old, new = python_source.parse(before), python_source.parse(after)
    if isinstance(old, str) or isinstance(new, str):
        return ""
    question = _left_class_question(old, new)
    if question:
        return question
    counts = Counter(_python_heads(old))
    twice = [head for head, count in Counter(_python_heads(new)).items() if count > 1]
    found = next((head for head in twice if counts[head] == 1), "") or _twice_in_string(
        before, after
    )
    return found and (
        f"`{found[:80]}` is defined twice: name the lines of the old one, too, or leave the"
        " new one out"
    )


def _left_class_question(old: ast.Module, new: ast.Module) -> str:
    """Return a question where a method, with its `self`, is a function outside of its class."""
    outside = {
        one.name
        for one in new.body
        if isinstance(one, _FUNCTION) and [arg.arg for arg in one.args.args[:1]] == ["self"]
    }
    outside -= {one.name for one in old.body if isinstance(one, _FUNCTION)}
    outside -= {one.id for one in ast.walk(new) if isinstance(one, ast.Name)}  # it is given to one
    methods = {one.name: _methods(one) for one in new.body if isinstance(one, ast.ClassDef)}
    for one in old.body:
        if isinstance(one, ast.ClassDef) and one.name in methods:
            for name in sorted((_methods(one) - methods[one.name]) & outside):
                return (
                    f"`{name}` is outside its class now: indent its lines as those of"
                    f" {one.name}.{name} were"
                )
    for name in sorted(outside):
        return f"`{name}` has a `self` and stands in no class: indent its lines as a method's"
    return ""


def _methods(one: ast.ClassDef) -> set[str]:
    return {each.name for each in one.body if isinstance(each, _FUNCTION)}


def _python_heads(module: ast.Module) -> Iterator[str]:
    """Yield the decorators and the qualified name of each function and class, and of methods.

    Overloads have one name, and so have a property's functions, under other decorators.
    """
    for above, body in [
        ("", module.body),
        *((f"{one.name}.", one.body) for one in module.body if isinstance(one, ast.ClassDef)),
    ]:
        for one in body:
            if isinstance(one, _FUNCTION | ast.ClassDef):
                marks = [f"@{ast.unparse(mark)} " for mark in one.decorator_list]
                if not any(mark.endswith("overload ") for mark in marks):
                    yield f"{''.join(marks)}{above}{one.name}"


def _twice_in_string(before: str, after: str) -> str:
    """Return what a string of compiled code defines twice, and strings before defined once.

    Strings may be compiled on their own, so each may have the same helper.
    """
    old = [Counter(heads) for heads in _compiled_heads(before)]
    for heads in map(Counter, _compiled_heads(after)):
        for head, count in heads.items():
            if count > 1 and max((each[head] for each in old), default=0) == 1:
                return head
    return ""


def _compiled_heads(source: str) -> Iterator[list[str]]:
    """Yield for each string its definitions outside of classes, up to their bodies.

    Of code between `#if` and `#else` either may be the one that is compiled, and namespaces may
    have the same names.
    """
    lines = lines_of(source)
    zones = python_source.string_zones(source)
    for (first, last), found in zip(zones, definitions_in_strings(source), strict=True):
        text = "\n".join(lines[first - 1 : last])
        if _CHOICES.search(text) or _NAMESPACE.search(text):
            continue
        classes = [one for one in found if one.is_class]
        yield [
            " ".join(" ".join(lines[one.first - 1 : one.last]).split()).partition("{")[0].strip()
            for one in found
            if not any(each.first < one.first <= one.last <= each.last for each in classes)
        ]
