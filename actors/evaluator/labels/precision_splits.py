"""Whether a text splits values into parts of lower precision that are together as exact as before.

A split casts a value down, and takes from the value what the cast kept: `h = half(x)` and
`l = half(x - float(h))`.  Products of both parts lose nothing that the cast alone would have lost.
A text splits if each of its casts is of such a value or of such a rest.  A heuristic.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import islice

_CASTS = (
    r"__float2(?:half|bfloat16)(?:_r[nduz])?|__float22(?:half2|bfloat162)_rn"
    r"|__floats2(?:half2|bfloat162)_rn|__float_to_tf32|__double2half"
)
_TYPES = r"(?:at::|c10::|cutlass::)?(?:__half|half|Half|half_t|BFloat16|bfloat16_t|__nv_bfloat16)"
_CALL = rf"\b(?:{_CASTS})\s*\(|\bstatic_cast<\s*{_TYPES}\s*>\s*\(|(?<![\w:]){_TYPES}\s*\(\s*(?!\))"
_ASM = re.compile(
    r"cvt\.rna(?:\.satfinite)?\.tf32[^()]{0,80}\"=[rf]\"\s{0,9}\((?P<to>[^()]{0,80})\)\s{0,9}:"
    r"\s{0,9}\"f\"\s{0,9}\("
)
_ASSIGNED = re.compile(r"(?P<name>\w+)(?:\s*\[[^\[\];]*\])*\s*=(?!=)\s*(?P<value>[^;]*);")
_FUNCTION = re.compile(r"\b(?P<name>\w+)\s*\((?P<parameters>[^(){};]*)\)\s*\{")
_VALUE = r"(?:\w|\.|->|::|\[[^\[\]]*\])+"
_REST = re.compile(rf"^\(*\s*(?P<value>{_VALUE})\s*-(?![->=])\s*(?P<kept>[^;]*)", re.DOTALL)
_LESS = re.compile(rf"(?P<value>{_VALUE})\s*-=\s*(?P<kept>[^;]*);")
_DIFFERENCE = re.compile(rf"(?P<value>{_VALUE})\s*-(?![->=])\s*(?P<kept>[^;,]*)")
_KEYWORDS = frozenset(["if", "for", "while", "switch", "return", "sizeof"])
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_LOWER = frozenset(["float16", "half", "bfloat16", "tf32"])
MAX_TEXT, MAX_CASTS, MAX_FUNCTIONS, MAX_ROUNDS = 200_000, 400, 200, 6
MAX_BODY = 2000  # characters of a function that only casts, and of the arguments of a call


def has_native_splits(text: str) -> bool:
    """Whether each cast in a C++ or CUDA `text` without comments is a part of a split."""
    if len(text) > MAX_TEXT:
        return False
    call, helpers = _with_helpers(text)
    casts = [
        part
        for start, end in _arguments(text, call)
        if not any(first <= start < last for first, last in helpers)
        for part in _parts(text[start:end])
    ]
    casts += [
        _normal(text[found.end() : _closing(text, found.end())])
        for found in _ASM.finditer(text)
        if not any(first <= found.start() < last for first, last in helpers)
    ]
    if not casts or len(casts) > MAX_CASTS:
        return False
    return _is_split(casts, text, call)


def _is_split(casts: Sequence[str], text: str, call: re.Pattern[str]) -> bool:
    """Whether all `casts` are of values that rests are taken from, or of these rests."""
    values: dict[str, list[str]] = {}
    for found in _ASSIGNED.finditer(text):
        values.setdefault(found["name"], []).append(found["value"])
    lowered = _lowered(values, text, call)

    def keeps(rest: str) -> bool:
        return bool(call.search(rest) or lowered & set(_IDENTIFIER.findall(rest)))

    split = {
        _normal(found["value"])
        for pattern in (_DIFFERENCE, _LESS)
        for found in pattern.finditer(text)
        if _normal(found["value"]) in casts and keeps(found["kept"])
    }
    reduced = {_normal(found["value"]) for found in _LESS.finditer(text) if keeps(found["kept"])}

    def is_rest(cast: str) -> bool:
        own = [cast, *values.get(re.sub(r"\[.*", "", cast), ())]
        found = [_REST.match(value.strip()) for value in own]
        return any(f is not None and _normal(f["value"]) in split for f in found)

    return bool(split) and all(cast in split or cast in reduced or is_rest(cast) for cast in casts)


def _lowered(values: dict[str, list[str]], text: str, call: re.Pattern[str]) -> set[str]:
    """Return the variables that hold what a cast kept, of it or of another such variable."""
    found = {re.sub(r"\W.*", "", match["to"].strip()) for match in _ASM.finditer(text)}
    for _ in range(MAX_ROUNDS):
        more = {
            name
            for name, texts in values.items()
            if name not in found
            and any(call.search(t) or found & set(_IDENTIFIER.findall(t)) for t in texts)
        }
        if not more:
            break
        found |= more
    return found


def _with_helpers(text: str) -> tuple[re.Pattern[str], list[tuple[int, int]]]:
    """Return what calls a cast in `text`, and where functions that only cast are defined."""
    call = re.compile(_CALL)
    names, bodies = [], []
    for found in islice(_FUNCTION.finditer(text), MAX_FUNCTIONS):
        if (
            found["name"] in _KEYWORDS
            or "__global__" in text[max(0, found.start() - 200) : found.start()]
        ):
            continue
        end = _closing(text, found.end())
        body = text[found.end() : end]
        arguments = [_normal(body[a:b]) for a, b in _arguments(body, call)]
        arguments += [_normal(body[f.end() : _closing(body, f.end())]) for f in _ASM.finditer(body)]
        parameters = set(_IDENTIFIER.findall(found["parameters"]))
        if len(arguments) == 1 and arguments[0] in parameters:
            names.append(re.escape(found["name"]))
            bodies.append((found.start(), end))
    if names:
        call = re.compile(rf"{_CALL}|\b(?:{'|'.join(names)})\s*\(")
    return call, bodies


def _arguments(text: str, call: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield where the arguments of each call begin and end."""
    for found in islice(call.finditer(text), MAX_CASTS + 1):
        yield found.end(), _closing(text, found.end())


def _closing(text: str, start: int) -> int:
    """Return the offset of the bracket that closes the one before `start`."""
    depth = 1
    for at in range(start, min(len(text), start + MAX_BODY)):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
            if not depth:
                return at
    return min(len(text), start + MAX_BODY)


def _parts(arguments: str) -> list[str]:
    """Return the arguments of a call."""
    parts, depth, first = [], 0, 0
    for at, letter in enumerate(arguments):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append(_normal(arguments[first:at]))
            first = at + 1
    return [*parts, _normal(arguments[first:])]


def _normal(text: str) -> str:
    return "".join(text.split())


def has_python_splits(part: ast.AST) -> bool:
    """Whether each cast of a value in `part`, in Python or Triton, is a part of a split."""
    casts = [value for node in ast.walk(part) if (value := cast_value(node)) is not None]
    if not casts or len(casts) > MAX_CASTS:
        return False
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(part):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values.setdefault(name, []).append(value)
    lowered: set[str] = set()
    for _ in range(MAX_ROUNDS):
        lowered |= {name for name, own in values.items() if any(_keeps(v, lowered) for v in own)}
    cast_values = [ast.unparse(value) for value in casts]
    rests = {
        ast.unparse(node): ast.unparse(node.left)
        for node in ast.walk(part)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
        if _keeps(node.right, lowered) and ast.unparse(node.left) in cast_values
    }
    split = set(rests.values())
    named = {name for name, own in values.items() if any(ast.unparse(v) in rests for v in own)}
    return bool(split) and all(value in split | named or value in rests for value in cast_values)


def cast_value(node: ast.AST) -> ast.expr | None:
    """Return the value that `node` casts down by a method, as `x.to(tl.bfloat16)` does; or None."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="half" | "bfloat16"), args=[]):
            return value
        case ast.Call(
            func=ast.Attribute(value=value, attr="to" | "type"), args=[ast.Attribute(attr=name), *_]
        ) if name in _LOWER:
            return value
        case _:
            return None


def _keeps(value: ast.expr, lowered: set[str]) -> bool:
    """Whether `value` is made of what a cast kept."""
    return any(
        cast_value(node) is not None or (isinstance(node, ast.Name) and node.id in lowered)
        for node in ast.walk(value)
    )
