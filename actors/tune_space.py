"""The small space of values that a candidate may declare: `TUNE = {"THREADS": [128, 256, 512]}`.

A block size, a depth or an unrolling is a search for the machine, not for a model.  A candidate
names the values in a literal at the top level of its file and uses `TUNE["THREADS"]` as one value,
for instance in `extra_cuda_cflags=[f"-DTHREADS={TUNE['THREADS']}"]`.  Before the file is executed,
the literal is replaced by one with a single value for each name: that text is a variant.  The
evaluator races the variants, and the best one is the node's source.  Pure: nothing is executed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from itertools import chain

from protocol.values import Value

NAME = "TUNE"
MAX_VARIANTS = 16
MAX_NAMES = 8
MAX_VALUES = 64  # of one name
# Distances that are tried: multiples of the golden section, less their whole parts, spread evenly.
GOLDEN_SECTION, MAX_STEPS = 0.618, 200

TunedValue = int | float | str | bool
Assignment = tuple[tuple[str, TunedValue], ...]  # a value for each name, in the literal's order


class TuneSpaceError(ValueError):
    """A `TUNE` that is not what the rules say, in one line for the author of the candidate."""


class TuneSpace(Value, frozen=True, kw_only=True):
    """The values that a candidate declares, and where its literal is in the text."""

    values: tuple[tuple[str, tuple[TunedValue, ...]], ...]
    begin: int  # of the literal, in bytes of the text as UTF-8
    end: int

    @property
    def size(self) -> int:
        """The number of all combinations."""
        return math.prod(len(values) for _name, values in self.values)

    def assignments(self) -> list[Assignment]:
        """Return at most `MAX_VARIANTS` combinations, the first values of all names first.

        Of a larger space, combinations at one distance in the order of the product are taken: the
        distance that gives each name all of its values.
        """
        if self.size <= MAX_VARIANTS:
            return [self._assignment(rank) for rank in range(self.size)]
        golden = round(self.size * GOLDEN_SECTION)
        steps = (step % self.size for step in range(golden, golden + min(self.size, MAX_STEPS)))
        spread = (
            [self._assignment(number * step % self.size) for number in range(MAX_VARIANTS)]
            for step in steps
            if math.gcd(step, self.size) == 1
        )
        return max(spread, key=lambda taken: len({*chain.from_iterable(taken)}))

    def _assignment(self, rank: int) -> Assignment:
        """Return the combination of this rank; the last name's value changes fastest."""
        picked: list[tuple[str, TunedValue]] = []
        for name, values in reversed(self.values):
            rank, place = divmod(rank, len(values))
            picked.append((name, values[place]))
        return tuple(reversed(picked))


def tune_space(source: str) -> TuneSpace | None:
    """Return the space that a candidate declares; None if it declares none.

    A `TUNE` whose values are all single ones is a variant already, and no space.  Raises
    `TuneSpaceError` for a literal that breaks a rule.
    """
    if NAME not in source:
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the build stage reports it with the interpreter's own words
    found = list(_assigned_values(tree))
    if not found:
        return None
    if len(found) > 1:
        raise TuneSpaceError(f"{NAME} is assigned {len(found)} times; it must be assigned once")
    literal = found[0]
    values = tuple(_entries(literal))
    if all(not isinstance(value, tuple) for _name, value in values):
        return None
    spread = tuple(
        (name, value if isinstance(value, tuple) else (value,)) for name, value in values
    )
    begin, end = _byte_range(source, literal)
    return TuneSpace(values=spread, begin=begin, end=end)


def with_values(source: str, assignment: Assignment) -> str:
    """Return the variant of a candidate's text with these values; line numbers stay.

    Raises `TuneSpaceError` where the text declares no space with these values.
    """
    space = tune_space(source)
    if space is None or not _is_in(space, assignment):
        raise TuneSpaceError(f"the candidate declares no such values: {dict(assignment)}")
    raw = source.encode()
    literal = raw[space.begin : space.end]
    lines = b"\n" * literal.count(b"\n")  # inside of the braces, where they mean nothing
    text = repr(dict(assignment)).encode()
    return (raw[: space.begin] + text[:-1] + lines + text[-1:] + raw[space.end :]).decode()


def variant_source(source: str, place: int) -> str | None:
    """Return the text of the variant at a place of `TuneSpace.assignments`; None if not there."""
    try:
        space = tune_space(source)
    except TuneSpaceError:
        return None
    assignments = space.assignments() if space else []
    return with_values(source, assignments[place]) if 0 <= place < len(assignments) else None


def _is_in(space: TuneSpace, assignment: Assignment) -> bool:
    return [name for name, _ in assignment] == [name for name, _ in space.values] and all(
        any(type(value) is type(known) and value == known for known in values)
        for (_, value), (_, values) in zip(assignment, space.values, strict=True)
    )


def _assigned_values(tree: ast.Module) -> Iterator[ast.expr]:
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == NAME:
                yield value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name == NAME:
                yield value
            case _:
                pass


def _entries(literal: ast.expr) -> Iterator[tuple[str, TunedValue | tuple[TunedValue, ...]]]:
    """Yield each name of the literal with its value or values."""
    if not isinstance(literal, ast.Dict):
        raise TuneSpaceError(f'{NAME} must be a dict literal such as {{"THREADS": [128, 256]}}')
    if len(literal.keys) > MAX_NAMES:
        raise TuneSpaceError(f"{NAME} has {len(literal.keys)} names, at most {MAX_NAMES} can be")
    seen: set[str] = set()
    for key, value in zip(literal.keys, literal.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise TuneSpaceError(f"a name in {NAME} must be a string literal")
        name = key.value
        if name in seen:
            raise TuneSpaceError(f"{NAME} has the name {name!r} twice")
        seen.add(name)
        if isinstance(value, ast.List | ast.Tuple):
            values = tuple(dict.fromkeys(_single(name, item) for item in value.elts))
            if not 1 <= len(values) <= MAX_VALUES:
                raise TuneSpaceError(
                    f"{NAME}[{name!r}] has {len(values)} values; 1 to {MAX_VALUES} can be"
                )
            yield name, values
        else:
            yield name, _single(name, value)


def _single(name: str, expression: ast.expr) -> TunedValue:
    try:
        value = ast.literal_eval(expression)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = None
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise TuneSpaceError(
        f"a value of {NAME}[{name!r}] must be a literal number, string or bool, "
        "or a list of such values"
    )


def _byte_range(source: str, node: ast.expr) -> tuple[int, int]:
    """Return where a node is in the text as UTF-8; columns of `ast` are bytes of a line."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column
