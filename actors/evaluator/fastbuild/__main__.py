"""Build one candidate by hand and print how long each step took.

python -m actors.evaluator.build FILE [--json] [--store FOLDER] [--torch] [--again]
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import torch

from actors.cli import OneLineParser
from actors.commands import typed_command
from actors.evaluator.fastbuild.candidate_process import import_in_child
from actors.evaluator.fastbuild.headers.precompiled_headers import PrecompiledHeaderError
from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.request.compiler_process import BuildTimeoutError
from actors.evaluator.fastbuild.request.flag_set import (
    COMMON_CPU_FLAG_SETS,
    COMMON_CUDA_FLAG_SETS,
    FlagSet,
)
from actors.evaluator.fastbuild.request.source_requirements import flag_sets_of, may_compile
from actors.evaluator.fastbuild.store.build_record import WAY_NAMES, ImportReport
from actors.evaluator.fastbuild.store.build_slots import BuildSlots, slots_here
from actors.evaluator.fastbuild.store.build_store import (
    BuildStore,
    ToolkitMissingError,
    store_of_user,
)
from actors.evaluator.fastbuild.store.result_cache import ResultCache
from actors.evaluator.fastbuild.toolkit_builder import prepare_toolkit

LIMIT_S = 600.0


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the flags."""
    parser = OneLineParser(
        prog=typed_command("build"),
        description="Build one candidate; print which way it was built and how long it took.",
    )
    parser.add_argument(
        "file", type=Path, nargs="?", help="a Python file that calls load_inline or load"
    )
    parser.add_argument(
        "--prepare", choices=("cpu", "cuda"), help="fill the store for later, print the toolkit"
    )
    parser.add_argument(
        "--family",
        action="append",
        default=[],
        help="flags to prepare for, in JSON as a build's record has them",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--store", type=Path, default=store_of_user(os.environ).root)
    parser.add_argument("--torch", action="store_true", help="torch's own build, for comparison")
    parser.add_argument("--again", action="store_true", help="build again what was built before")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    flags = parser.parse_args(arguments)
    if not 0 < flags.limit_s < math.inf:
        parser.error(f"--limit-s is {flags.limit_s:g}, expected seconds above 0")
    if (flags.file is None) == (flags.prepare is None):
        parser.error("name a FILE to build, or --prepare")
    return flags


def prepare_store(toolkits: Path, device: str, families: list[str]) -> int:
    """Prepare for the flag sets in `families`, or for the common ones; return the exit status."""
    named = [msgspec.json.decode(family, type=FlagSet) for family in families]
    common = (*COMMON_CPU_FLAG_SETS, *(COMMON_CUDA_FLAG_SETS if device == "cuda" else ()))
    toolkit = _prepared(toolkits, named or common)
    if toolkit is None:
        return 1
    sys.stdout.write(f"{toolkit.folder}\n")
    return 0


def _prepared(toolkits: Path, flag_sets: Iterable[FlagSet]) -> Toolkit | None:
    """Return the prepared toolkit; None, and a line on stderr, if it can't be made."""
    try:
        return prepare_toolkit(toolkits, flag_sets)
    except (ToolkitMissingError, PrecompiledHeaderError) as error:
        sys.stderr.write(f"fast builds are off: {error}\n")
        return None


def build_table(report: ImportReport) -> str:
    """Return the report as a table for people."""
    lines = []
    for build in report.builds:
        reason = f" ({build.reason})" if build.reason else ""
        lines.append(f"{build.name}: {WAY_NAMES[build.way]}{reason}, {build.seconds:.2f} s")
        if build.way == "light":
            headers = "all" if build.precompiled else "not all"
            lines.append(f"  binding: {build.binding or 'none'}; headers precompiled: {headers}")
        lines += [
            f"  {phase.began_s:7.2f} s  {phase.seconds:7.2f} s  {phase.name}"
            for phase in build.phases
        ]
    lines.append(f"import: {report.seconds:.2f} s")
    if report.error:
        lines.append(report.error)
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Build the file; the status is 1 when it does not build."""
    flags = parse(arguments)
    if flags.prepare:
        return prepare_store(BuildStore(flags.store).toolkits, flags.prepare, flags.family)
    file = flags.file.absolute()
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise OSError(errno.EINVAL, "it is not a plain file")  # a pipe may never end
        source = file.read_text(encoding="utf-8")
        compile(source, str(file), "exec")
    except OSError as error:
        return _input_error(f"can't read {flags.file}: {error.strerror}")
    except UnicodeDecodeError as error:
        return _input_error(f"{flags.file} is not UTF-8 text: {error.reason}")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        at = f", line {line}" if line else ""
        message = getattr(error, "msg", None) or error
        return _input_error(f"{flags.file} is not valid Python: {message}{at}")
    if not may_compile(source):
        return _input_error(f"{flags.file} calls neither load nor load_inline: nothing to build")
    try:
        return _build_and_report(file, source, flags)
    except OSError as error:
        return _input_error(f"{error.filename or flags.store}: {error.strerror}")
    except BuildTimeoutError as error:
        sys.stderr.write(f"build: {error}\n")
        return 1


def _input_error(reason: str) -> int:
    sys.stderr.write(f"build: {reason}\n")
    return 2


def _build_and_report(file: Path, source: str, flags: argparse.Namespace) -> int:
    store = BuildStore(flags.store)
    toolkit = None
    if not flags.torch:
        cuda = torch.version.cuda is not None
        toolkit = _prepared(store.toolkits, flag_sets_of(source, cuda=cuda))
    began = time.monotonic()
    report = _build(file, source, flags, store, toolkit)
    if flags.json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        total_s = time.monotonic() - began
        lines = f"{build_table(report)}\nwith the start of Python and torch: {total_s:.2f} s"
        sys.stdout.write(f"{lines}\n")
    return 1 if report.error else 0


def _build(
    file: Path,
    source: str,
    flags: argparse.Namespace,
    store: BuildStore,
    toolkit: Toolkit | None,
) -> ImportReport:
    """Import the candidate in a child, with the cached result if there is one."""
    result_cache = ResultCache(store.results)
    key = result_cache.key(source, toolkit.key) if toolkit else ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        extensions = folder / "extensions"
        extensions.mkdir()
        if key and not flags.again:
            result_cache.copy_to(key, extensions)
        toolkits = store.toolkits if toolkit else None
        with BuildSlots(store.slots, slots_here()).acquired(flags.limit_s):
            report = import_in_child(file, toolkits, folder, flags.limit_s)
        if key and not report.error:
            result_cache.store(key, extensions)
    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
