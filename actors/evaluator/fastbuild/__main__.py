"""Build one candidate by hand and see what took how long.

python -m actors.evaluator.build FILE [--json] [--store FOLDER] [--torch] [--again]
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import torch

from actors.cli import OneLineParser
from actors.commands import typed_command
from actors.evaluator.fastbuild import source_requirements
from actors.evaluator.fastbuild.build_record import WAY_NAMES
from actors.evaluator.fastbuild.build_slots import BuildSlots, slots_here
from actors.evaluator.fastbuild.build_store import BuildStore, store_of_user
from actors.evaluator.fastbuild.candidate_import import ImportReport
from actors.evaluator.fastbuild.compiler_process import BuildTimeoutError
from actors.evaluator.fastbuild.flag_set import COMMON_CPU_FLAG_SETS, COMMON_CUDA_FLAG_SETS, FlagSet
from actors.evaluator.fastbuild.precompiled_headers import PrecompiledHeaderError
from actors.evaluator.fastbuild.result_cache import ResultCache
from actors.evaluator.fastbuild.toolkit import ToolkitMissingError
from actors.evaluator.fastbuild.toolkit_builder import prepare_toolkit
from actors.installation import module_path

LIMIT_S = 600.0


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the flags."""
    parser = OneLineParser(
        prog=typed_command("build"),
        description="Build one candidate and show which way it was built and what took how long.",
    )
    parser.add_argument(
        "file", type=Path, nargs="?", help="a Python file that calls load_inline or load"
    )
    parser.add_argument(
        "--prepare", choices=("cpu", "cuda"), help="fill the store for later, print the toolkit"
    )
    parser.add_argument(
        "--family", action="append", default=[], help="flags to prepare for, as builds record them"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--store", type=Path, default=store_of_user(os.environ).root)
    parser.add_argument("--torch", action="store_true", help="torch's own way, for comparison")
    parser.add_argument("--again", action="store_true", help="even if it was built before")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    flags = parser.parse_args(arguments)
    if not 0 < flags.limit_s < math.inf:
        parser.error(f"--limit-s is {flags.limit_s:g}, expected seconds above 0")
    if (flags.file is None) == (flags.prepare is None):
        parser.error("name a FILE to build, or --prepare")
    return flags


def prepare_flag_sets(store: Path, device: str, families: list[str]) -> int:
    """Prepare for the usual families of flags, or for those that are named."""
    named = [msgspec.json.decode(family, type=FlagSet) for family in families]
    usual = (*COMMON_CPU_FLAG_SETS, *(COMMON_CUDA_FLAG_SETS if device == "cuda" else ()))
    try:
        toolkit = prepare_toolkit(store, named or usual)
    except (ToolkitMissingError, PrecompiledHeaderError) as error:
        sys.stderr.write(f"fast builds are off: {error}\n")
        return 1
    sys.stdout.write(f"{toolkit.folder}\n")
    return 0


def build(file: Path, store: Path | None, folder: Path, limit_s: float) -> ImportReport:
    """Import `file` in a child whose extensions go to `folder`."""
    answer = folder / "answer.json"
    module = ("-P", "-m", "actors.evaluator.fastbuild.candidate_import")
    argv = [sys.executable, *module, str(file), str(answer)]
    environment = {
        **os.environ,
        "PYTHONPATH": module_path(os.environ),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
    }
    child = subprocess.Popen(
        [*argv, *([str(store)] if store else [])], env=environment, stdout=sys.stderr.fileno()
    )
    try:
        status = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise BuildTimeoutError(f"the build took longer than {limit_s:g} s") from None
    finally:
        child.kill()
        child.wait()
    if not answer.exists():
        return ImportReport(seconds=0.0, error=f"the import ended the process with status {status}")
    return msgspec.json.decode(answer.read_bytes(), type=ImportReport)


def build_table(report: ImportReport) -> str:
    """Return what happened, for people."""
    lines = []
    for one in report.builds:
        why = f" ({one.why})" if one.why else ""
        lines.append(f"{one.name}: {WAY_NAMES[one.way]}{why}, {one.seconds:.2f} s")
        if one.way == "light":
            ready = "all" if one.precompiled else "not all"
            lines.append(f"  binding: {one.binding or 'none'}; headers precompiled: {ready}")
        lines += [
            f"  {phase.began_s:7.2f} s  {phase.seconds:7.2f} s  {phase.name}"
            for phase in one.phases
        ]
    lines.append(f"import: {report.seconds:.2f} s")
    if report.error:
        lines.append(report.error)
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Build the file; the status is 1 when it does not build."""
    flags = parse(arguments)
    if flags.prepare:
        return prepare_flag_sets(BuildStore(flags.store).toolkits, flags.prepare, flags.family)
    file = flags.file.absolute()
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise OSError(errno.EINVAL, "it is no plain file")  # a pipe may never end
        source = file.read_text(encoding="utf-8")
        compile(source, str(file), "exec")
    except OSError as error:
        return _refused(f"can't read {flags.file}: {error.strerror}")
    except UnicodeDecodeError as error:
        return _refused(f"{flags.file} is not UTF-8 text: {error.reason}")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        at = f", line {line}" if line else ""
        words = getattr(error, "msg", None) or error
        return _refused(f"{flags.file} is no valid Python: {words}{at}")
    if not source_requirements.may_compile(source):
        return _refused(f"{flags.file} calls neither load nor load_inline: nothing to build")
    try:
        return _built(file, source, flags)
    except OSError as error:
        return _refused(f"{error.filename or flags.store}: {error.strerror}")
    except BuildTimeoutError as error:
        sys.stderr.write(f"build: {error}\n")
        return 1


def _refused(words: str) -> int:
    sys.stderr.write(f"build: {words}\n")
    return 2


def _built(file: Path, source: str, flags: argparse.Namespace) -> int:
    toolkit = None
    store = BuildStore(flags.store)
    if not flags.torch:
        families = source_requirements.flag_sets(source, cuda=torch.version.cuda is not None)
        try:
            toolkit = prepare_toolkit(store.toolkits, families)
        except (ToolkitMissingError, PrecompiledHeaderError) as error:
            sys.stderr.write(f"fast builds are off: {error}\n")
    result_cache = ResultCache(store.results)
    key = result_cache.key(source, toolkit.key) if toolkit else ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "extensions").mkdir()
        if key and not flags.again:
            result_cache.copy_to(key, folder / "extensions")
        began = time.monotonic()
        with BuildSlots(store.slots, slots_here()).acquired(flags.limit_s):
            report = build(file, store.toolkits if toolkit else None, folder, flags.limit_s)
        if key and not report.error:
            result_cache.store(key, folder / "extensions")
    if flags.json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        whole = time.monotonic() - began
        sys.stdout.write(f"{build_table(report)}\nwith starting Python and torch: {whole:.2f} s\n")
    return 1 if report.error else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
