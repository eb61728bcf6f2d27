"""The file with a task's cases, `cases.toml` or `NAME.cases.toml` beside the task's file.

`docs/tasks.md` describes the format.  The supervisor and the judge by hand read the user's file; a
run folder has a copy with what was understood, which the coordinator reads.
"""

from __future__ import annotations

import ast
import json
import math
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from actors.case_source import CaseSourceError, with_constants
from protocol.frozen_struct import Value
from protocol.layouts import ITEM_BYTES
from protocol.user_files import read_text
from protocol.values import Task, TaskCase

SUFFIX = ".cases.toml"
SHARED_NAME = "cases.toml"  # of a folder: it names its task
MAX_BYTES = 1 << 20
MAX_CASES = 16
MAX_RANK, MAX_SIZE = 32, 1 << 40
MODULE_DTYPES = ("float16", "bfloat16", "float32", "float64")
CASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,=+x-]{0,59}")
CHANGES = ("set", "shapes", "dtypes", "dtype")
NOTES = ("calls", "us", "gradients", "autocast", "training", "inputs")  # of `adopt`, for people
CASE_KEYS = frozenset(["name", "weight", "drawn", *CHANGES, *NOTES])
TOP_KEYS = frozenset(["task", "case", "other", "backward"])


class TaskCasesError(ValueError):
    """A file of cases can't be used: one line that names the file and what to do."""


class TaskOptions(Value, frozen=True, kw_only=True):
    """What a task is judged on besides what its own text says."""

    cases: tuple[TaskCase, ...] = ()
    backward: bool = False


def read_options(
    task: Path,
    source: str,
    shapes: Path | None = None,
    dtypes: Sequence[str] = (),
    *,
    backward: bool = False,
) -> TaskOptions:
    """Return what the file of cases of a task says; raise TaskCasesError.

    `shapes`: the file that the user names; None: the one beside the task's file, if there is one.
    `dtypes`: each case is judged in each of them.  `backward`: it is judged with its backward pass
    in any case.
    """
    wrong = next((dtype for dtype in dtypes if dtype not in MODULE_DTYPES), None)
    if wrong is not None:
        raise TaskCasesError(f"--dtype {wrong}: expected one of {', '.join(MODULE_DTYPES)}")
    twice = next((dtype for dtype in dtypes if dtypes.count(dtype) > 1), None)
    if twice is not None:
        raise TaskCasesError(f"--dtype {twice}: it is given twice")
    file = shapes if shapes is not None else _beside(task)
    options = TaskOptions() if file is None else _read(file, task, source)
    if shapes is not None and options == TaskOptions():
        raise TaskCasesError(f"--shapes {file}: it has no [[case]] with set, shapes or dtype")
    if dtypes:
        options = replace(options, cases=_in_dtypes(options.cases, dtypes))
    if len(options.cases) > MAX_CASES:
        raise TaskCasesError(
            f"{file or task}: {len(options.cases)} cases are more than {MAX_CASES}: leave some out"
        )
    return replace(
        options, cases=_with_shares(options.cases), backward=backward or options.backward
    )


def _beside(task: Path) -> Path | None:
    """Return the file of cases beside a task's file; None where there is none of this task."""
    own = task.with_name(f"{task.stem}{SUFFIX}")
    if own.is_file():
        return own
    shared = task.with_name(SHARED_NAME)
    if not shared.is_file():
        return None
    return shared if _table(shared).get("task") == task.name else None


def _table(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(file, MAX_BYTES))
    except OSError as error:
        raise TaskCasesError(f"can't read {file}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise TaskCasesError(f"{file} is not TOML: {error}") from error


def _read(file: Path, task: Path, source: str) -> TaskOptions:
    table = _table(file)
    unknown = sorted(set(table) - TOP_KEYS)
    if unknown:
        raise TaskCasesError(f"{file}: unknown key {unknown[0]}: docs/tasks.md has the keys")
    named = table.get("task", task.name)
    if named != task.name:
        raise TaskCasesError(f"{file} is of the task {named}, not of {task.name}")
    rows = table.get("case", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TaskCasesError(f"{file}: cases are tables: write [[case]]")
    found = []
    for number, row in enumerate(rows):
        unknown = sorted(set(row) - CASE_KEYS)
        if unknown:
            raise TaskCasesError(
                f"{file}: case {row.get('name', number)!r}: unknown key {unknown[0]}: docs/tasks.md"
                " has the keys"
            )
        # A case without a change that is not drawn tells of a layout that is not judged.
        if row.get("drawn") is True or any(key in row for key in CHANGES):
            found.append(_case(row, f"{file}: case {row.get('name', number)!r}", number, source))
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TaskCasesError(f"{file}: two cases are called {twice}: rename one")
    if len(found) == 1 and not _changes(found[0]):
        found = []  # the task as it is
    backward = table.get("backward", False)
    if not isinstance(backward, bool):
        raise TaskCasesError(f"{file}: backward = {backward!r}: expected true or false")
    return TaskOptions(cases=tuple(found), backward=backward)


def _case(row: dict[str, Any], where: str, number: int, source: str) -> TaskCase:
    """Return one case; raise TaskCasesError with one line."""
    name = row.get("name", f"case-{number}")
    if not isinstance(name, str) or not CASE_NAME.fullmatch(name):
        raise TaskCasesError(
            f"{where}: a name is up to 60 letters, digits and _.,=+-, beginning with one of these"
        )
    weight = row.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e9:
        raise TaskCasesError(f"{where}: weight = {weight!r} is not a number above 0")
    drawn = row.get("drawn") is True
    case = TaskCase(
        name=name,
        weight=float(weight),
        constants={} if drawn else _constants(row.get("set", {}), where),
        shapes=() if drawn else _shapes(row.get("shapes", []), where),
        dtypes=() if drawn else _dtypes(row.get("dtypes", []), where),
        dtype="" if drawn else _module_dtype(row.get("dtype", ""), where),
    )
    try:
        with_constants(source, case)
    except CaseSourceError as error:
        raise TaskCasesError(f"{where.partition(': case')[0]}: {error}") from error
    return case


def _constants(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TaskCasesError(f"{where}: set is a table such as {{ B = 4, T = 128 }}")

    def is_finite(each: object) -> bool:
        return not isinstance(each, float) or math.isfinite(each)

    for name, each in value.items():
        if not isinstance(each, bool | int | float | str | list) or not is_finite(each):
            raise TaskCasesError(
                f"{where}: set = {{ {name} = … }}: a number, a text, true, false or a list of these"
            )
    return {name: repr(each) for name, each in value.items()}


def _shapes(value: object, where: str) -> tuple[tuple[int, ...], ...]:
    def is_shape(shape: object) -> bool:
        return (
            isinstance(shape, list)
            and len(shape) <= MAX_RANK
            and all(type(size) is int and 0 <= size < MAX_SIZE for size in shape)
        )

    if not isinstance(value, list) or not all(map(is_shape, value)):
        raise TaskCasesError(
            f"{where}: shapes is a list with one shape for each tensor of get_inputs(), such as"
            " [[4, 128], [128]]"
        )
    return tuple(map(tuple, value))


def _dtypes(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(each in ITEM_BYTES for each in value):
        raise TaskCasesError(
            f"{where}: dtypes is a list with torch's name of one for each tensor of get_inputs(),"
            ' such as ["bfloat16", "int64"]'
        )
    return tuple(value)


def _module_dtype(value: object, where: str) -> str:
    if value == "" or value in MODULE_DTYPES:
        return str(value)
    raise TaskCasesError(f"{where}: dtype = {value!r}: expected one of {', '.join(MODULE_DTYPES)}")


def _changes(case: TaskCase) -> bool:
    return bool(case.constants or case.shapes or case.dtypes or case.dtype)


def _in_dtypes(cases: tuple[TaskCase, ...], dtypes: Sequence[str]) -> tuple[TaskCase, ...]:
    """Return each case in each of the dtypes."""
    if not cases:
        return tuple(TaskCase(name=dtype, dtype=dtype) for dtype in dtypes)
    return tuple(
        replace(case, name=f"{case.name}-{dtype}" if len(dtypes) > 1 else case.name, dtype=dtype)
        for case in cases
        for dtype in dtypes
    )


def _with_shares(cases: tuple[TaskCase, ...]) -> tuple[TaskCase, ...]:
    """Return the cases with weights that add up to 1, the heaviest first."""
    total = sum(case.weight for case in cases)
    shared = [replace(case, weight=case.weight / total) for case in cases]
    return tuple(sorted(shared, key=lambda case: -case.weight))


# --- the copy in a run folder ---------------------------------------------------------------------


def stored_name(task: str) -> str:
    """Return the name of the copy beside a task's text in a run folder."""
    return f"{task}{SUFFIX}"


def options_of(task: Task) -> TaskOptions:
    """Return the options of a task that is stored."""
    return TaskOptions(cases=task.cases, backward=task.backward)


def with_options(task: Task, options: TaskOptions) -> Task:
    """Return the task with these options."""
    return replace(task, cases=options.cases, backward=options.backward)


def options_text(options: TaskOptions) -> str:
    """Return the text of the copy; "" where there is nothing to store."""
    lines: list[str] = ["backward = true", ""] if options.backward else []
    for case in options.cases:
        lines += ["[[case]]", f"name = {json.dumps(case.name)}", f"weight = {case.weight!r}"]
        pairs = ", ".join(f"{name} = {_toml(text)}" for name, text in case.constants.items())
        lines += [f"set = {{ {pairs} }}"] if pairs else []
        lines += [f"shapes = {json.dumps(case.shapes)}"] if case.shapes else []
        lines += [f"dtypes = {json.dumps(case.dtypes)}"] if case.dtypes else []
        lines += [f"dtype = {json.dumps(case.dtype)}"] if case.dtype else []
        lines += [] if _changes(case) else ["drawn = true"]
        lines.append("")
    return "\n".join(lines)


def _toml(literal: str) -> str:
    return json.dumps(ast.literal_eval(literal))
