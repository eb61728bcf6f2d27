"""Places: how an answer names lines of the source that it was shown, without copying them.

Pure.  A place is lines by number, a marked span, a function or class by name, or a quoted first and
last line.  Promises the lines that were meant, or a question: where a name or a quote fits twice,
no line is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from actors.agents.replies import definitions
from actors.agents.replies.anchors import lines_of
from actors.agents.replies.folds import Fold, without_mark
from protocol.values import Value

MAX_LISTED = 6  # lines or names in one question
_CODE = r"(?P<{0}fence>`+)\s?(?P<{0}>.+?)\s?(?P={0}fence)(?!`)"
_NUMBERS = re.compile(
    r"(?:from\s+)?(?:lines?|l\.?)?\s*(?P<first>\d+)"
    r"(?:(?:\s*(?:-|–|—|−|‑|~|…|\.{2,3}|to|through)\s*(?:lines?\s*|l)?|:)(?P<last>\d+))?",
    re.I,
)
_SPAN = re.compile(r"(?:marked\s+)?span\s+(?P<span>\d+)", re.I)
_NAME = re.compile(
    r"(?P<kind>function|method|kernel|def|class|struct)\s+`?(?P<name>\w+(?:(?:\.|::)\w+)*)`?(?:\(\))?`?"
    r"(?:\s+(?:of|in)\s+(?:the\s+)?(?:class\s+)?`?(?P<owner>\w+)`?)?",
    re.I,
)
_QUOTES = re.compile(
    rf"from\s+{_CODE.format('start')}\s+(?:to|through)\s+{_CODE.format('stop')}", re.I
)
_QUOTE = re.compile(rf"line\s+{_CODE.format('start')}", re.I)
_WHOLE = re.compile(r"(?:the\s+)?whole\s+(?:file|source|module)", re.I)
_NOTE = re.compile(r"(?:[:—–]|-\s)\s*(?P<note>.*)|\((?P<aside>.*)\):?", re.DOTALL)
_SECOND = re.compile(r"\d+$|(?:and|plus|also|,|&|\+)\s*(?:lines?\s*)?\d", re.I)  # "(and 12)"
_MENTIONED = re.compile(  # "(which also changes lines 3-4)"
    r".*\b(?:and|also|plus)\b[^.;]{0,40}\blines?\s+\d", re.I | re.DOTALL
)
_OTHER_COUNT = re.compile(  # "(new numbering)", "(after the edit above)": not as shown
    r".*\b(?:(?:new|updated|resulting|shifted)\s+(?:line\s+)?number(?:s|ing)"
    r"|after\s+(?:the|my|this|that)?\s*(?:\w+\s+)?(?:edit|change|insertion|replacement)s?\b"
    r"(?:\s+(?:above|before))?).*",
    re.I | re.DOTALL,
)
MAX_CHARS = 2_000  # of a place: quotes of two lines fit
FORMS = (
    "'lines 12-40', 'function NAME', 'class NAME', or 'from `first line` to `last line`' with whole"
    " lines in backticks"
)


class PlaceProblem(Value, frozen=True, kw_only=True):
    """Why a place can't be found, as a question to the model."""

    reason: str
    is_unnamed: bool = False  # the text is of none of the forms of one place


class Place(Value, frozen=True, kw_only=True):
    """Lines [first, last] of a source, from 1, and the note that was given with them."""

    first: int
    last: int
    note: str = ""
    is_named: bool = False  # by the name of a function or class: its decorators are in it


class ShownLines:
    """A source as a model was shown it: its lines by number, the marked spans, and the folds.

    The line above a fold stands for the fold's lines, too.
    """

    def __init__(
        self,
        source: str,
        spans: Sequence[tuple[int, int]] = (),
        folds: Sequence[Fold] = (),
    ) -> None:
        self.source = source
        self.lines = lines_of(source)
        self.spans = tuple(spans)
        self.folds = tuple(folds)

    def find(self, text: str, *, explains: bool = False) -> Place | PlaceProblem:
        """Return the place that `text` names, with the note behind it.

        `explains`: the note is what a coder should do there, and may mention other lines.
        """
        text = text.strip()
        for form, read in (
            ()
            if len(text) > MAX_CHARS
            else (
                (_SPAN, self._by_span),
                (_QUOTES, self._by_quotes),
                (_QUOTE, self._by_quotes),
                (_NAME, self._by_name),
                (_NUMBERS, self._by_numbers),
                (_WHOLE, lambda _match: (1, len(self.lines))),
            )
        ):
            match = form.match(text)
            note = _note_after(text, match) if match else None
            if note is not None and _names_more(note, explains=explains):
                return PlaceProblem(
                    reason=f"{_shortened(text)!r} names further lines behind its place: name each"
                    " place by itself",
                    is_unnamed=True,
                )
            if match is not None and note is not None:
                if form is _NUMBERS and not explains and _OTHER_COUNT.fullmatch(note):
                    return PlaceProblem(
                        reason=f"{_shortened(text)!r} counts lines of a source that is not shown:"
                        " numbers are those of the shown source, before any edit"
                    )
                found = read(match)
                if not isinstance(found, PlaceProblem):
                    found = self._with_folds(*found)
                if isinstance(found, PlaceProblem):
                    return found
                return Place(first=found[0], last=found[1], note=note, is_named=form is _NAME)
        return PlaceProblem(
            reason=f"{_shortened(text)!r} names no place: write {FORMS}", is_unnamed=True
        )

    def _with_folds(self, first: int, last: int) -> tuple[int, int] | PlaceProblem:
        """Return the lines with the fold that their last one stands for; no line inside of one."""
        for fold in self.folds:
            if fold.first <= first <= fold.last or fold.first <= last < fold.last:
                return PlaceProblem(
                    reason=f"lines {fold.first}-{fold.last} were not shown: they are the body of"
                    f" {fold.name}, and line {fold.first - 1} stands for them. Name the function"
                    f" ('function {fold.name}') or that line"
                )
            if last == fold.first - 1:
                return first, fold.last
        return first, last

    def _by_span(self, match: re.Match[str]) -> tuple[int, int] | PlaceProblem:
        number = int(match["span"])
        if 1 <= number <= len(self.spans):
            return self.spans[number - 1]
        count = len(self.spans)
        has = f"{count} marked span{'s' * (count != 1)}" if count else "no marked spans"
        return PlaceProblem(reason=f"span {number} does not exist: the source has {has}")

    def _by_numbers(self, match: re.Match[str]) -> tuple[int, int] | PlaceProblem:
        first = int(match["first"])
        last = int(match["last"] or first)
        if 1 <= first <= last <= len(self.lines):
            return first, last
        return PlaceProblem(
            reason=f"lines {first}-{last} do not exist: the source has lines 1-{len(self.lines)}"
        )

    def _by_quotes(self, match: re.Match[str]) -> tuple[int, int] | PlaceProblem:
        if "stop" in match.groupdict():
            ends = (self._reading(match["start"]), self._reading(match["stop"]))
            pairs = [(a, b) for a in ends[0] for b in ends[1] if a <= b]
            if len(pairs) == 1 and 1 in map(len, ends):
                return pairs[0]  # of a line that stands twice, one is on the wrong side
        first = self._line_of(match["start"])
        if isinstance(first, PlaceProblem):
            return first
        last = self._line_of(match["stop"]) if "stop" in match.groupdict() else first
        if isinstance(last, PlaceProblem):
            return last
        if last < first:
            return PlaceProblem(
                reason=f"the quoted last line is line {last}, before the first, line {first}"
            )
        return first, last

    def _reading(self, quote: str) -> list[int]:
        """Return the lines that read like the quote; blanks do not count."""
        wanted = (without_mark(quote) if self.folds else quote).split()
        return [number for number, line in enumerate(self.lines, 1) if line.split() == wanted]

    def _line_of(self, quote: str) -> int | PlaceProblem:
        """Return the one line that reads like the quote."""
        wanted = " ".join(quote.split())
        plain = [" ".join(line.split()) for line in self.lines]
        found = self._reading(quote)
        if len(found) == 1:
            return found[0]
        if found:
            return PlaceProblem(
                reason=f"the line `{_shortened(wanted)}` is on lines {_listed(found)}: which"
                " one is meant? Name it by its number"
            )
        near = [n for n, line in enumerate(plain, start=1) if wanted and wanted in line]
        lines = f"line{'' if len(near) == 1 else 's'} {_listed(near)}"
        where = f"; it is a part of {lines}" if near else ""
        return PlaceProblem(
            reason=f"no whole line of the source reads `{_shortened(wanted)}`{where}"
        )

    def _by_name(self, match: re.Match[str]) -> tuple[int, int] | PlaceProblem:
        is_class = match["kind"].lower() in ("class", "struct")
        name = match["name"].replace("::", ".")
        name = f"{match['owner']}.{name}" if match["owner"] else name
        found = definitions.definitions_of(self.source)
        kinds = [one for one in found if one.is_class == is_class]
        fitting = [one for one in kinds if one.name == name or one.name.endswith(f".{name}")]
        if match["kind"].lower() == "method":
            fitting = [one for one in fitting if "." in one.name] or fitting
        if len(fitting) == 1:
            return fitting[0].first, fitting[0].last
        kind = "class" if is_class else "function"
        if fitting:
            places = _listed([f"{one.first}-{one.last}" for one in fitting])
            return PlaceProblem(
                reason=f"there are {len(fitting)} of {kind} {name}, on lines {places}: which one is"
                " meant? Name it by its lines"
            )
        known = _listed(list(dict.fromkeys(one.name for one in kinds))) or "none"
        return PlaceProblem(
            reason=f"no {kind} {name} is defined in the source (there are: {known})"
        )


def _note_after(text: str, match: re.Match[str]) -> str | None:
    """Return the note behind a place; None where other words follow it."""
    rest = text[match.end() :].strip()
    if not rest or rest in (".", ":"):
        return ""
    note = _NOTE.fullmatch(rest)
    return (note["note"] or note["aside"] or "").strip() if note else None


def _names_more(note: str, *, explains: bool) -> bool:
    """Whether a note names a second place."""
    return bool(_SECOND.match(note) or (not explains and _MENTIONED.match(note)))


def _listed(values: Sequence[object]) -> str:
    shown = ", ".join(str(value) for value in values[:MAX_LISTED])
    return f"{shown} and {len(values) - MAX_LISTED} more" if len(values) > MAX_LISTED else shown


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:79]}…"
