"""Preprocessed C++ without the function bodies that a compiler of device code does not need.

Other code can call an ordinary host function, but a compiler cannot evaluate one, so its
declaration is enough.  A body stays where a type may follow from it (auto) or a constant
(constexpr), where it runs on the device (placement new does, unmarked), and where a compiler would
report its absence (static, friend).  Every line keeps its number.

This is not a parser.  It recognises a declaration by its braces and the tokens before them; a
caller must check that the result compiles to the same code (`probe_build` does).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

_TOKEN = re.compile(
    r'R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'  # a raw string
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])'"
    r"|^[ \t]*#[^\n]*"
    r"|[A-Za-z_]\w*|\d(?:[\w.]|'\w)*|::|->|[^\s\w]",
    re.DOTALL | re.MULTILINE,
)
# A declaration with one of these keeps its body.
_KEEPS_BODY = frozenset(
    [
        *("constexpr", "consteval", "auto", "try", "catch", "static", "friend", "requires"),
        "for the device",
    ]
)
_ATTRIBUTES = frozenset(
    ["__attribute__", "__attribute", "alignas", "decltype", "noexcept", "explicit", "throw"]
)
_DEVICE = re.compile(r"\b(?:__)?(?:device|global)(?:__)?\b")
_INLINE = re.compile(r"\b(?:inline|__inline__|__inline)\b")
_CLASSES = frozenset(["class", "struct", "union"])
_ACCESS = frozenset(["public", "private", "protected"])
_FILE = re.compile(r'^[ \t]*#[ \t]*(?:line[ \t]+)?\d+[ \t]+"([^"\n]*)"', re.MULTILINE)
_CALL = "()"  # a pair of parentheses with its content


class _Token(NamedTuple):
    text: str
    start: int
    end: int


def strip_bodies(text: str, whole_files: re.Pattern[str] | None = None) -> str:
    """Return `text` without the bodies of functions and of function templates.

    `whole_files` matches in the paths of files in which every body stays.
    """
    return _BodyStripper(text, whole_files).read()


class _BodyStripper:
    def __init__(self, text: str, whole_files: re.Pattern[str] | None) -> None:
        self.text = text
        # Where a file begins or goes on, and whether its bodies stay; in the order of the text.
        self.files = [
            (found.start(), whole_files is not None and bool(whole_files.search(found[1])))
            for found in _FILE.finditer(text)
        ]
        self.file_at = -1
        self.tokens = [_Token(found[0], *found.span()) for found in _TOKEN.finditer(text)]
        self.partner = _partners(self.tokens)
        self.head: list[_Token] = []  # the current declaration, without a body
        self.parts: list[str] = []
        self.written = 0

    def read(self) -> str:
        at = 0
        while at < len(self.tokens):
            at = self._step(at)
        return "".join([*self.parts, self.text[self.written :]])

    def _step(self, at: int) -> int:
        """Process the token with the index `at`; return the index of the next one."""
        token = self.tokens[at]
        follows = self.tokens[at + 1].text if at + 1 < len(self.tokens) else ""
        if token.text in _ATTRIBUTES and follows == "(":
            return self._attribute(at)
        if token.text == "template" and follows == "<":
            self.head.append(token)
            return self._after_angles(at + 1)
        if token.text == "{":
            return self._brace(at)
        if token.text in "([":
            if token.text == "(":
                self.head.append(_Token(_CALL, token.start, token.end))
            return self.partner.get(at, at) + 1
        if token.text in ";}" or (token.text == ":" and self._is_access()):
            self.head = []
        elif not token.text.lstrip().startswith("#"):
            self.head.append(token)
        return at + 1

    def _is_access(self) -> bool:
        return len(self.head) == 1 and self.head[0].text in _ACCESS

    def _attribute(self, at: int) -> int:
        first, last = self.tokens[at], self.partner.get(at + 1, at + 1)
        if _DEVICE.search(self.text, first.end, self.tokens[last].end):
            self.head.append(_Token("for the device", first.start, first.end))
        else:
            self.head.append(first)
        return last + 1

    def _after_angles(self, at: int) -> int:
        depth = 0
        while at < len(self.tokens):
            text = self.tokens[at].text
            depth += (text == "<") - (text == ">")
            at = self.partner.get(at, at) + 1
            if not depth:
                break
        return at

    def _brace(self, at: int) -> int:
        if at not in self.partner:
            self.head = []
            return at + 1
        words = [token.text for token in self.head]
        after = self.partner[at] + 1
        if ["requires"] in (words[-1:], words[-2:-1]) and words[-1] in ("requires", _CALL):
            return after  # an expression, in front of what it constrains
        call = _parameters(words)
        if call is None:
            if not words or "namespace" in words or words[0] == "extern":
                return self._enter(at)
            if _CLASSES.intersection(words) and not {"enum", "="}.intersection(words):
                return self._enter(at)
            return after  # an initializer or the enumerators of an enum
        if "=" in words and "operator" not in words:
            return after  # an initializer
        colon = words.index(":", call) if ":" in words[call:] else None
        if colon is not None and self.tokens[at - 1].text not in ")}":
            self.head.append(_Token(_CALL, self.tokens[at].start, self.tokens[at].end))
            return after  # a member's initializer, before the constructor's body
        if not (_KEEPS_BODY.intersection(words) or _is_new(words) or self._is_in_whole_file(at)):
            self._cut(words, call, self.head[colon] if colon else self.tokens[at], after)
        self.head = []
        return after

    def _enter(self, at: int) -> int:
        self.head = []
        return at + 1

    def _is_in_whole_file(self, at: int) -> bool:
        start = self.tokens[at].start
        while self.file_at + 1 < len(self.files) and self.files[self.file_at + 1][0] < start:
            self.file_at += 1
        return self.file_at >= 0 and self.files[self.file_at][1]

    def _cut(self, words: list[str], call: int, body: _Token, after: int) -> None:
        """Reduce a definition to its declaration, or to nothing if it was declared before."""
        start, end = self.head[0].start, self.tokens[after - 1].end
        self.parts.append(self.text[self.written : start])
        if _is_qualified(words, call):
            self.parts.append(_lines_of(self.text[start:end]))
        else:
            self.parts.append(_INLINE.sub("", self.text[start : body.start]))
            self.parts.append(";" + _lines_of(self.text[body.start : end]))
        self.written = end


def _partners(tokens: list[_Token]) -> dict[int, int]:
    found: dict[int, int] = {}
    still_open: list[int] = []
    for at, token in enumerate(tokens):
        if token.text in ("(", "[", "{"):
            still_open.append(at)
        elif token.text in (")", "]", "}") and still_open:
            found[still_open.pop()] = at
    return found


def _parameters(words: list[str]) -> int | None:
    """Return the index in `words` of a function's parameter list; None if there is none."""
    if "operator" in words:
        at = words.index("operator") + 1
        at += words[at : at + 1] == [_CALL]  # operator()
        return words.index(_CALL, at) if _CALL in words[at:] else None
    depth = 0
    for at, word in enumerate(words):
        depth += (word == "<") - (word == ">")
        if word == _CALL and depth <= 0:
            return at
    return None


def _is_new(words: list[str]) -> bool:
    """Whether a function is an `operator new` or `operator delete`."""
    at = words.index("operator") + 1 if "operator" in words else 0
    return at > 0 and words[at : at + 1] in (["new"], ["delete"])


def _is_qualified(words: list[str], call: int) -> bool:
    """Whether a function's name is qualified (A::f), so that it was declared before."""
    name = words.index("operator") if "operator" in words else call - 1
    if name > 0 and words[name - 1] == "~":
        name -= 1
    return name > 1 and words[name - 1] == "::" and bool(re.match(r"\w|>", words[name - 2]))


def _lines_of(text: str) -> str:
    """Return `text` with its line ends and directives alone."""
    return "\n".join(line if line.lstrip().startswith("#") else "" for line in text.split("\n"))


def main(given: str, made: str, whole_files: str) -> None:
    """Write to the file `made` the file `given` without bodies (`text_process`)."""
    kept = re.compile(whole_files) if whole_files else None
    text = Path(given).read_text(encoding="utf-8", errors="surrogateescape")
    stripped = strip_bodies(text, kept)
    Path(made).write_text(stripped, encoding="utf-8", errors="surrogateescape")


if __name__ == "__main__":
    main(*sys.argv[1:])
