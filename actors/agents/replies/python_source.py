"""What a candidate's Python text tells without being run.

Pure.  `anchors` asks which language a line is in, `candidates` whether the text defines ModelNew,
and the scripted model where `forward` begins.
"""

from __future__ import annotations

import ast
import io
import threading
import tokenize
import warnings

_PARSING = threading.Lock()


def parse(text: str) -> ast.Module | str:
    """Return the module in `text`, or one line that says why it is not Python."""
    # The parser warns of "\d" in C++ strings: that warning must not get into our log.
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except SyntaxError as error:
            return f"line {error.lineno}: {error.msg}"
        except (ValueError, RecursionError, MemoryError) as error:
            return f"can't be parsed: {error or type(error).__name__}"


def defines_class(module: ast.Module, name: str) -> bool:
    """Whether the module has a class, or a name of its own assigned, called `name`."""
    for statement in ast.walk(module):
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            return True
    return any(
        isinstance(target, ast.Name) and target.id == name
        for statement in module.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
    )


def imported_modules(text: str) -> frozenset[str]:
    """Return the first names of the modules that a text imports; "" for a relative import."""
    module = parse(text)
    names: set[str] = set()
    for one in ast.walk(module) if isinstance(module, ast.Module) else ():
        if isinstance(one, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in one.names)
        elif isinstance(one, ast.ImportFrom):
            names.add("" if one.level else (one.module or "").partition(".")[0])
    return frozenset(names)


def string_zones(text: str) -> tuple[tuple[int, int], ...]:
    """Return for each string over several lines the lines [first, last] that begin inside it.

    Lines are 1-based.  C++ and CUDA sources are such strings.  Text that is not Python has none.
    """
    zones: list[tuple[int, int]] = []
    f_strings: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            name = tokenize.tok_name[token.type]
            if name == "FSTRING_START":  # Python >= 3.12 splits f-strings into tokens
                f_strings.append(token.start[0])
            elif name == "FSTRING_END":
                zones.append((f_strings.pop() + 1, token.end[0]))
            elif name == "STRING":
                zones.append((token.start[0] + 1, token.end[0]))
    except (tokenize.TokenError, SyntaxError):
        return ()
    return tuple((first, last) for first, last in zones if first <= last)


def forward_span(text: str) -> tuple[int, int]:
    """Return the lines [first, last] of the first statement of the last class's `forward`.

    Falls back to the first statement of that class, then to the first line of the text.
    """
    module = parse(text)
    if isinstance(module, str):
        return 1, 1
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    if not classes:
        return 1, 1
    named = [one for one in classes if one.name in ("Model", "ModelNew")]
    body = (named or classes)[-1].body
    for member in body:
        if isinstance(member, ast.FunctionDef) and member.name == "forward":
            body = member.body
    first = body[0]
    if len(body) > 1 and isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        first = body[1]  # the docstring stays out
    return first.lineno, first.end_lineno or first.lineno
