"""What is likely a slip in an answer of edits, as a question to the model.

Pure.  New lines that are no text of the file (numbers, differences, left-out code), and sources
that the edits broke: brackets that pair up no more, definitions twice or outside their class.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from actors.agents.replies import python_source
from actors.agents.replies.anchors import lines_of
from actors.agents.replies.definitions import Definition, are_brackets_paired, definitions_of
from actors.agents.replies.places import ShownLines
from actors.agents.replies.replies import FencedBlock, fence_of

MIN_TOLD_CHARS = 8  # letters and digits that make a line more than a bracket
_NUMBERED = re.compile(r"\s*(?P<number>\d+)\t(?P<text>.*)")
_LEFT_OUT = re.compile(
    r"""(?:\#|//|/\*)\s*(?:\.{3}|…).*
    |(?:\#|//|/\*)\W*(?:
        (?:the\ )?(?:rest|remainder|remaining|existing|previous|original)\b
        .{0,40}\b(?:unchanged|as\ before|as\ above|same|code|stays|remains)
        |(?:un|not\ )changed|(?:the\ )?same(?:\ as\ (?:before|above))?|as\ (?:before|above)
        |no\ changes?
    )\W*""",
    re.VERBOSE | re.IGNORECASE,
)
DOTS = ("...", "…")  # alone on a line; `...` is Python, too
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_CONFLICT = re.compile(r"(?:<{5,}|>{5,})(?:\s+\w+)?\s*|={7,}\s*")
_CHOICES = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|else|elif)\b", re.MULTILINE)


# --- the new lines --------------------------------------------------------------------------------


def question_about_block(block: FencedBlock, lines: Sequence[str], replaced: Sequence[str]) -> str:
    """Return why a block is not surely the new text of the lines `replaced`; "" if it is."""
    if not block.is_closed:
        return "was never closed"
    if block.language in ("diff", "patch") or _is_difference(lines, replaced):
        return "is a difference: write the new lines alone"
    if sum(bool(_CONFLICT.fullmatch(line)) for line in lines) > 1:
        return "holds the lines to search for: write the new lines alone, the heading names those"
    if any(_is_fence(line, block) for line in lines):
        return (
            "holds a fence: close each block, and use a longer fence around lines that begin with"
            " one"
        )
    left_out = left_out_line(lines) or next(
        (one for one in map(str.strip, lines) if one in DOTS), ""
    )
    if left_out and left_out not in (line.strip() for line in replaced):
        return f"leaves lines out ({left_out!r}): write all new lines, or edit smaller places"
    return ""


def left_out_line(lines: Iterable[str]) -> str:
    """Return the first comment that stands for code, as "// ... as before"; "" for none."""
    return next((line.strip() for line in lines if _LEFT_OUT.fullmatch(line.strip())), "")


def has_numbers(lines: Sequence[str], first: int, last: int, shown: ShownLines) -> bool:
    """Whether new lines for [first, last] have the numbers of the shown lines before them."""
    found = [_NUMBERED.match(line) for line in lines if line.strip()]
    near = range(first - 1, last + len(lines) + 2)
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

    Then the named lines are likely one off.  A line that is to stand twice can be put between
    replaced ones.
    """
    above = shown.lines[first - 2] if first > 1 else ""
    below = shown.lines[last] if last < len(shown.lines) else ""
    replaced = shown.lines[first - 1 : last]
    for beside, number, new in ((above, first - 1, lines[:1]), (below, last + 1, lines[-1:])):
        told = sum(char.isalnum() for char in beside)
        is_same = [*new] == [beside.rstrip("\r")]
        if told >= MIN_TOLD_CHARS and is_same and beside not in replaced:
            return number
    return None


# --- the source with the edits in it --------------------------------------------------------------


def question_about_result(before: str, after: str) -> str:
    """Return what edits likely broke in a source that is Python still; "" for nothing."""
    return _bracket_question(before, after) or _definition_question(before, after)


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
        "the brackets of the compiled code do not pair up any more, in the string that begins with"
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
    """Return a question where a definition stands twice, or has left its class."""
    old, new = definitions_of(before), definitions_of(after)
    old_names, new_names = ({one.name for one in found} for found in (old, new))
    for name in sorted(old_names - new_names):
        bare = name.rpartition(".")[2]
        is_used = bare == "forward" or f"self.{bare}(" in after
        if bare != name and is_used and bare in new_names - old_names:
            return f"`{bare}` has left its class: indent its lines as those of {name} were"
    counts = Counter(_heads(old, before))
    for head, count in Counter(_heads(new, after)).items():
        if count > 1 and counts[head] == 1:
            return (
                f"`{head[:80]}` is defined twice: name the lines of the old one, too, or leave the"
                " new one out"
            )
    return ""


def _heads(found: Sequence[Definition], source: str) -> Iterator[str]:
    """Yield definitions up to their bodies; of compiled code those outside of classes.

    Of code between `#if` and `#else` either may be the one that is compiled.
    """
    lines = lines_of(source)
    if _CHOICES.search(source):
        return
    inner = {
        one
        for one in found
        for other in found
        if other.is_class and other.first < one.first <= one.last <= other.last
    }
    for one in found:
        if one not in inner or "." in one.name:
            text = " ".join(" ".join(lines[one.first - 1 : one.last]).split())
            is_python = text.startswith(("def ", "class ", "async ", "@"))
            head = lines[one.first - 1].strip() if is_python else text.partition("{")[0]
            yield f"{one.name.rpartition('.')[0]} {head}".strip()
