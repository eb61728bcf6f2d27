"""Preprocessed C++ without the bodies of functions that nothing compiled from it can ask for.

An ordinary function on the host can be called, but not evaluated, while something else is
compiled: its declaration is enough.  Bodies stay where a type may follow from them (auto) or a
constant (constexpr), where they are to run on the device, and where a compiler would miss them
(static, friend).  Lines stay where they are.

This is no parser.  It knows a declaration by its braces and the words before them, and who uses it
must see that it did no harm.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r'R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'  # a raw string
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])'"
    r"|^[ \t]*#[^\n]*"
    r"|[A-Za-z_]\w*|\d(?:[\w.]|'\w)*|::|->|[^\s\w]",
    re.DOTALL | re.MULTILINE,
)
_KEPT = frozenset(
    ["constexpr", "consteval", "auto", "try", "catch", "static", "friend", "for the device"]
)
_ATTRIBUTES = frozenset(
    ["__attribute__", "__attribute", "alignas", "decltype", "noexcept", "explicit", "throw"]
)
_DEVICE = re.compile(r"\b(?:__)?(?:device|global)(?:__)?\b")
_INLINE = re.compile(r"\b(?:inline|__inline__|__inline)\b")
_CLASSES = frozenset(["class", "struct", "union"])
_ACCESS = frozenset(["public", "private", "protected"])
_CALL = "()"  # a pair of parentheses with all that is in it


class _Word(NamedTuple):
    text: str
    start: int
    end: int


def strip_bodies(text: str, *, templates: bool) -> str:
    """Return `text` without the bodies of ordinary functions, and of templates if told so."""
    return _BodyStripper(text, templates).read()


class _BodyStripper:
    def __init__(self, text: str, templates: bool) -> None:
        self.text = text
        self.templates = templates
        self.tokens = [_Word(found[0], *found.span()) for found in _TOKEN.finditer(text)]
        self.partner = _partners(self.tokens)
        self.head: list[_Word] = []  # of the declaration under way
        self.scopes: list[bool] = []  # whether each open one is in a template
        self.parts: list[str] = []
        self.written = 0

    def read(self) -> str:
        at = 0
        while at < len(self.tokens):
            at = self._step(at)
        return "".join([*self.parts, self.text[self.written :]])

    def _step(self, at: int) -> int:
        """Take the token `at` and return which is next."""
        word = self.tokens[at]
        follows = self.tokens[at + 1].text if at + 1 < len(self.tokens) else ""
        if word.text in _ATTRIBUTES and follows == "(":
            return self._attribute(at)
        if word.text == "template" and follows == "<":
            self.head.append(word)
            return self._after_angles(at + 1)
        if word.text == "{":
            return self._brace(at)
        if word.text in "([":
            if word.text == "(":
                self.head.append(_Word(_CALL, word.start, word.end))
            return self.partner.get(at, at) + 1
        if word.text == "}" and self.scopes:
            self.scopes.pop()
        if word.text in ";}" or (word.text == ":" and self._is_access()):
            self.head = []
        elif not word.text.lstrip().startswith("#"):
            self.head.append(word)
        return at + 1

    def _is_access(self) -> bool:
        return len(self.head) == 1 and self.head[0].text in _ACCESS

    def _attribute(self, at: int) -> int:
        first, last = self.tokens[at], self.partner.get(at + 1, at + 1)
        if _DEVICE.search(self.text, first.end, self.tokens[last].end):
            self.head.append(_Word("for the device", first.start, first.end))
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
        words = [word.text for word in self.head]
        after = self.partner[at] + 1
        call = _parameters(words)
        if call is None:
            if not words or "namespace" in words or words[0] == "extern":
                return self._enter(at, template=False)
            if _CLASSES.intersection(words) and not {"enum", "="}.intersection(words):
                return self._enter(at, template="template" in words)
            return after  # values, or an enum's
        if "=" in words and "operator" not in words:
            return after  # values
        colon = words.index(":", call) if ":" in words[call:] else None
        if colon is not None and self.tokens[at - 1].text not in ")}":
            self.head.append(_Word(_CALL, self.tokens[at].start, self.tokens[at].end))
            return after  # of a member, before the constructor's body
        in_template = "template" in words or any(self.scopes[-1:])
        if not _KEPT.intersection(words) and (self.templates or not in_template):
            self._cut(words, call, self.head[colon] if colon else self.tokens[at], after)
        self.head = []
        return after

    def _enter(self, at: int, *, template: bool) -> int:
        self.scopes.append(template or any(self.scopes[-1:]))
        self.head = []
        return at + 1

    def _cut(self, words: list[str], call: int, body: _Word, after: int) -> None:
        """Leave a declaration of a function, and nothing where there was one before."""
        start, end = self.head[0].start, self.tokens[after - 1].end
        self.parts.append(self.text[self.written : start])
        if _is_qualified(words, call):
            self.parts.append(_lines_of(self.text[start:end]))
        else:
            self.parts.append(_INLINE.sub("", self.text[start : body.start]))
            self.parts.append(";" + _lines_of(self.text[body.start : end]))
        self.written = end


def _partners(tokens: list[_Word]) -> dict[int, int]:
    found: dict[int, int] = {}
    open_ones: list[int] = []
    for at, word in enumerate(tokens):
        if word.text in ("(", "[", "{"):
            open_ones.append(at)
        elif word.text in (")", "]", "}") and open_ones:
            found[open_ones.pop()] = at
    return found


def _parameters(words: list[str]) -> int | None:
    """Return which of `words` is a function's list of parameters."""
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


def _is_qualified(words: list[str], call: int) -> bool:
    """Whether a function's name says where it was declared."""
    name = words.index("operator") if "operator" in words else call - 1
    if name > 0 and words[name - 1] == "~":
        name -= 1
    return name > 1 and words[name - 1] == "::" and bool(re.match(r"\w|>", words[name - 2]))


def _lines_of(text: str) -> str:
    """Return the ends of `text`'s lines, and its directives."""
    return "\n".join(line if line.lstrip().startswith("#") else "" for line in text.split("\n"))
