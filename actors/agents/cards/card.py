"""A knowledge card: the files of `prompts/cards/`, read and checked as text.

A card has a header of `name: value` lines between two `---` lines, a few words, and one fenced
block of code.  `prompts/cards/README.md` tells what each name of the header means.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import get_args

from msgspec.structs import replace

import prompts
from protocol.values import Backend, Value

FOLDER = "cards"
MAX_CARD_BYTES = 1536
FENCES: dict[str, Backend] = {"cpp": "cpp", "cuda": "cuda", "python": "triton"}
OPERATIONS = (
    *("attention", "recurrence", "conv", "matmul", "depthwise-conv", "pool", "softmax", "norm"),
    *("batch-norm", "loss", "column-reduction", "channel-reduction", "scan", "reduction"),
    *("elementwise", "epilogue"),
)
ANY_OPERATION = "any"
BOTTLENECKS = ("memory", "compute", "launch", "latency")
CPU_ARCHITECTURES = ("cpu", "avx2", "avx512f", "amx_tile", "asimd", "sve")
NOT_MEASURED = "not measured"
KEYS = ("title", "backend", "architecture", "operations", "bottleneck", "source", "effect")
MAX_PLACES = 3  # of a request; each is `MAX_CARD_BYTES`
PLACES = tuple(str(number + 1) for number in range(MAX_PLACES))
OPTIONAL_KEYS = ("row", "needs", "dtype", "places")
CUDA_ARCHITECTURE = re.compile(r"sm_(\d+)(a|\+)")
ROW_BOUND = re.compile(r"(?P<least>\d*)(?P<sign>[+-])(?P<most>\d*)")
SPEEDUP = re.compile(r"(\d+(?:\.\d+)?)x torch")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
CODE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class CardError(Exception):
    """A card's file is not as `prompts/cards/README.md` says."""


class Card(Value, frozen=True, kw_only=True):
    """One card; `text` and `code` as a model reads them."""

    name: str
    title: str
    backend: Backend
    architecture: str  # "sm_80+", "sm_90a"; of a CPU one of `CPU_ARCHITECTURES`
    operations: tuple[str, ...]  # the first one is what the card is about
    bottleneck: tuple[str, ...]
    source: str
    effect: str  # as measured; NOT_MEASURED
    checked: str  # the date on which its code last gave a right result
    least_row: int = 0  # elements of a row from which it helps
    most_row: int | None = None
    dtype: str = ""  # of the inputs for which it helps; "": any
    needs: str = ""  # the name of the card whose functions this one calls
    needed_code: str = ""
    places: int = 1  # of a request; more: a whole kernel to begin with, too long for one
    text: str
    code: str

    @property
    def words(self) -> str:
        """What stands before the code: sizes, limits, what goes wrong."""
        return self.text.partition("```")[0].strip()

    @property
    def whole_code(self) -> str:
        """The code that compiles: that of the needed card, then its own."""
        return self.needed_code + self.code

    @property
    def speedup(self) -> float:
        """How many times as fast as torch's own operation it was; 1 where nothing compares."""
        found = SPEEDUP.search(self.effect)
        return float(found[1]) if found else 1.0

    @property
    def digest(self) -> str:
        """The identity of the code and of the architecture that it is compiled for."""
        return hashlib.sha256(f"{self.architecture}\n{self.whole_code}".encode()).hexdigest()[:16]


@cache
def load_cards() -> tuple[Card, ...]:
    """Return all cards, by name.  Raises `CardError` with a sentence that names the file."""
    folder = resources.files(prompts).joinpath(FOLDER)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".md"))
    return with_needed_code(
        parse_card(name.removesuffix(".md"), prompts.read(f"{FOLDER}/{name}"))
        for name in names
        if name != "README.md"
    )


def with_needed_code(cards: Iterable[Card]) -> tuple[Card, ...]:
    """Give cards that need others those cards' code and type; raises `CardError`."""
    known = {card.name: card for card in cards}
    for card in known.values():
        if not card.needs:
            continue
        chain = needed_cards(card, known.values())
        if not chain or any(other.backend != card.backend for other in chain):
            raise CardError(f"card {card.name}: there is no card {card.needs} for its backend")
        known[card.name] = replace(
            card,
            needed_code="".join(other.code for other in chain),
            dtype=card.dtype or next((other.dtype for other in chain if other.dtype), ""),
        )
    return tuple(known.values())


def needed_cards(card: Card, cards: Iterable[Card]) -> list[Card]:
    """Return the cards whose functions a card calls, the one that stands alone first.

    [] if the card stands alone, and also if one is not among `cards`, or a card needs itself.
    """
    known = {other.name: other for other in cards}
    chain: list[Card] = []
    while card.needs:
        if card.needs not in known or known[card.needs] in chain:
            return []
        card = known[card.needs]
        chain.insert(0, card)
    return chain


def parse_card(name: str, text: str) -> Card:
    """Return the card of a file's text; raises `CardError`."""
    header, body = _header(name, text)
    code = CODE.findall(body)
    if len(code) != 1:
        raise CardError(f"card {name}: it has {len(code)} fenced blocks of code, not one")
    fence, lines = code[0]
    problem = _problem(name, header, fence, len(text.encode("utf-8")))
    if problem:
        raise CardError(f"card {name}: {problem}")
    bound = ROW_BOUND.fullmatch(header.get("row", ""))
    return Card(
        name=name,
        title=header["title"],
        backend=FENCES[fence],
        architecture=header["architecture"],
        operations=_words(header["operations"]),
        bottleneck=_words(header["bottleneck"]),
        source=header["source"],
        effect=header["effect"],
        checked=header["checked"],
        least_row=int(bound["least"] or 0) if bound else 0,
        most_row=int(bound["most"]) if bound and bound["most"] else None,
        dtype=header.get("dtype", ""),
        needs=header.get("needs", ""),
        places=int(header.get("places", "1")),
        text=body.strip("\n"),
        code=lines,
    )


def _problem(name: str, header: Mapping[str, str], fence: str, size: int) -> str:
    """Return what is wrong with a card of `size` bytes; "" for a right one."""
    backend, row, places = header["backend"], header.get("row", ""), header.get("places", "1")
    most = MAX_CARD_BYTES * (int(places) if places in PLACES else 1)
    problems = {
        f"it has {size} bytes, more than {most}": size > most,
        f"places: {places} is not a number up to {MAX_PLACES}": places not in PLACES,
        f"its code is fenced as {fence}": FENCES.get(fence) != backend,
        f"its name does not begin with its backend, {backend}": not name.startswith(f"{backend}-"),
        f"architecture {header['architecture']} is not known": not _is_architecture(
            backend, header["architecture"]
        ),
        f"checked: {header['checked']} is not a date": not DATE.fullmatch(header["checked"]),
        f"row: {row} is neither 'N+' nor '-N' nor 'N-N'": bool(row)
        and not ROW_BOUND.fullmatch(row),
    }
    for key, known in (("operations", (*OPERATIONS, ANY_OPERATION)), ("bottleneck", BOTTLENECKS)):
        unknown = set(_words(header[key])) - set(known)
        problems[f"{key}: {', '.join(sorted(unknown))} is not known"] = bool(unknown)
    return next((problem for problem, is_one in problems.items() if is_one), "")


def _header(name: str, text: str) -> tuple[dict[str, str], str]:
    parts = text.split("---\n", 2)
    if len(parts) != 3 or parts[0]:
        raise CardError(f"card {name}: it does not begin with a header between two lines of ---")
    header = {}
    for line in parts[1].splitlines():
        key, separator, value = line.partition(": ")
        if not separator or key in header or key not in (*KEYS, "checked", *OPTIONAL_KEYS):
            raise CardError(f"card {name}: the header's line {line!r} is not known")
        header[key] = value.strip()
    missing = [key for key in (*KEYS, "checked") if not header.get(key)]
    if missing:
        raise CardError(f"card {name}: the header lacks {', '.join(missing)}")
    return header, parts[2]


def _words(value: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in value.split(",")) if word)


def _is_architecture(backend: str, architecture: str) -> bool:
    if backend not in get_args(Backend):
        return False
    if backend == "cpp":
        return architecture in CPU_ARCHITECTURES
    return CUDA_ARCHITECTURE.fullmatch(architecture) is not None
