"""`python scripts/examples.py [--copy DIR]`: list the example tasks, or copy them to a folder.

Exit status 2, with one line, when they can't be copied.
"""

from __future__ import annotations

import ast
import shlex
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """List or copy; return the exit status."""
    sys.path.insert(0, str(ROOT))  # works from a checkout that was never installed
    from actors.cli import OneLineParser, exit_when_reader_closes
    from actors.commands import typed_command
    from actors.exit_status import ExitStatus
    from actors.installation import EXAMPLES

    parser = OneLineParser(
        prog=typed_command("examples"), description="List the example tasks, or copy them."
    )
    parser.add_argument("--copy", type=Path, metavar="DIR", help="copy them to this folder")
    target = parser.parse_args().copy
    exit_when_reader_closes()
    examples = tasks(EXAMPLES)
    if target is not None:
        try:
            copy(examples, target)
        except OSError as error:
            file = error.filename2 or error.filename or target
            print(f"examples: --copy {target}: {file}: {error.strerror}", file=sys.stderr)
            return ExitStatus.USAGE
    else:
        width = max(len(path.name) for path in examples)
        for path, about in examples.items():
            print(f"{path.name:{width}}  {about}")
        print(f"\nin {EXAMPLES}; {typed_command('examples')} --copy DIR copies them. Run one with:")
    example = (target or EXAMPLES) / next(iter(examples)).name
    print(f"{typed_command()} --task {shlex.quote(str(example))}")
    return 0


def tasks(folder: Path) -> dict[Path, str]:
    """Return the tasks in a folder, each with the first line of its docstring.

    An installed folder `examples` may hold files of other distributions; a task is recognised by
    the names that it defines.
    """
    docstrings = {}
    for path in sorted(folder.glob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        named = {
            node.name for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        if {"Model", "get_inputs", "get_init_inputs"} <= named:
            docstrings[path] = (ast.get_docstring(module) or "").partition("\n")[0]
    return docstrings


def copy(examples: dict[Path, str], target: Path) -> None:
    """Copy tasks; raise OSError, before anything is written, when a file exists already."""
    target.mkdir(parents=True, exist_ok=True)
    for path in examples:
        if (target / path.name).exists():
            raise FileExistsError(17, "it exists already: choose another folder", str(path.name))
    for path in examples:
        shutil.copyfile(path, target / path.name)


if __name__ == "__main__":
    sys.exit(main())
