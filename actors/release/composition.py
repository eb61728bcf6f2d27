"""The text of a winner: the task's own source, the candidate's source, and the guard.

Pure.  A release comes from an evaluator, which may belong to another person.  So this file writes
everything of it that enters the text, from typed values.
"""

from __future__ import annotations

import hashlib
from importlib import resources

from protocol.layouts import ITEM_BYTES, Layout, Leaf, Nest, Plain
from protocol.release import LIMITS, Judged, Release

# The texts of the guard, in the order in which a winner has them.
GUARD_TEXTS = (
    "judged_values.py",
    "kernel_module.py",
    "module_state.py",
    "equal_values.py",
    "module_changes.py",
    "carried_state.py",
    "call_modes.py",
    "call_context.py",
    "call_guard.py",
    "compiled_operator.py",
    "winner_class.py",
)
MARKER = "# --- copied from here on ---\n"


class UnreleasableError(ValueError):
    """No drop-in module can be made of a winner; the error text is one line with the reason."""


def drop_in_source(task: str, candidate: str, release: Release) -> str:
    """Return the source of a module file with `Model` (plain) and `ModelNew` (the winner).

    Args:
        task: the task's source, which is not changed.
        candidate: the winner's source; it becomes a string, which the file runs when imported.
        release: what the candidate was judged on, and the uses in which it was wrong.

    Raises:
        UnreleasableError: a value that the candidate was judged on can't be written as a literal.
    """
    return (
        f"{task.rstrip()}\n\n\n"
        "# --- the kernels: a candidate that was judged, as a module of its own ---\n\n"
        f"_KERNELS = {_text_literal(candidate)}\n\n"
        f"{_judged_literal(release, candidate, task)}\n"
        "# --- the guard: the kernels run where they are right, the plain forward elsewhere ---\n\n"
        f"{guard_text()}"
    )


def guard_text() -> str:
    """Return the guard: the parts of its texts below their marker lines."""
    folder = resources.files(__package__).joinpath("guard")
    texts = [folder.joinpath(name).read_text(encoding="utf-8") for name in GUARD_TEXTS]
    return "\n\n\n".join(text.partition(MARKER)[2].strip() for text in texts) + "\n"


def _text_literal(text: str) -> str:
    """Return a Python literal of `text`, a raw string where its characters allow one."""
    for quotes in ("'''", '"""'):
        if quotes not in text and not text.endswith(("\\", quotes[0])) and "\r" not in text:
            return f"r{quotes}{text}{quotes}"
    lines = text.splitlines(keepends=True)
    return "(\n" + "".join(f"    {line!r}\n" for line in lines) + ")"


def _judged_literal(release: Release, candidate: str, task: str) -> str:
    judged = release.judged
    if not set(release.limits) <= set(LIMITS):
        raise UnreleasableError(f"unknown limits {release.limits}")
    digest = hashlib.sha256(candidate.encode("utf-8", "replace")).hexdigest()[:12]
    lines = [
        "import torch as _torch",
        "",
        "_JUDGED = {",
        f'    "hash": {digest!r},',
        f'    "device": {"cuda" if judged.device == "cuda" else "cpu"!r},',
        f'    "limits": {tuple(release.limits)!r},',
        *_case_lines(judged, "    "),
    ]
    if "set_default_dtype" in task:  # the guard compares with the dtype after the task's import
        lines.append('    "default dtype": True,')
    if judged.gradients is not None:
        lines.append(f'    "gradients": {tuple(map(int, judged.gradients))!r},')
    if judged.carried is not None and set(release.limits) == set(LIMITS):
        lines.append('    "unchecked state": True,')  # no use was tried yet
    if release.more_judged:
        lines.append('    "more": (')
        for each in release.more_judged:
            lines += ["        {", *_case_lines(each, "            "), "        },"]
        lines.append("    ),")
    return "\n".join([*lines, "}"]) + "\n"


def _case_lines(judged: Judged, indent: str) -> list[str]:
    """Return the lines of one judged case: its layouts, and what its module was made."""
    lines = [
        f'{indent}"{name}": {_spec(getattr(judged, name))},'
        for name in ("init", "inputs", "outputs", "state")
    ]
    if judged.carried is not None:
        lines.append(f'{indent}"carried": {_spec(judged.carried)},')
    if judged.dtype:
        if judged.dtype not in ITEM_BYTES:
            raise UnreleasableError(f"unknown dtype {judged.dtype!r}")
        lines.append(f'{indent}"dtype": _torch.{judged.dtype},')
    return lines


def _spec(layout: Layout) -> str:
    """Return a layout as a literal for the guard: ("tensor", dtype, shape, stride, device), …"""
    if isinstance(layout, Leaf):
        if layout.dtype not in ITEM_BYTES:
            raise UnreleasableError(f"unknown dtype {layout.dtype!r}")
        device = "cuda" if layout.device == "cuda" else "cpu"
        return (
            f'("tensor", _torch.{layout.dtype}, {tuple(layout.shape)!r}, '
            f"{layout.stride and tuple(layout.stride)!r}, {device!r})"
        )
    if isinstance(layout, Plain):
        return f'("plain", {_plain_literal(layout)})'
    if isinstance(layout, Nest):
        items = "".join(f"{_spec(item)}, " for item in layout.items)
        return f"({layout.kind!r}, {tuple(layout.keys)!r}, ({items}))"
    raise UnreleasableError(f"a {layout.type_name} can't be compared at a call")


def _plain_literal(plain: Plain) -> str:
    word = plain.word
    match plain.kind:
        case "none":
            return "None"
        case "bool":
            return repr(word == "True")
        case "int":
            return repr(int(word))
        case "float":
            value = float(word)
            return repr(value) if value - value == 0 else f"float({str(value)!r})"
        case "str":
            return repr(word)
    if not word.isidentifier():
        raise UnreleasableError(f"unknown dtype {word!r}")
    return f"_torch.{word}"
