"""The Python files in a task's folder that the task imports, found by import statements.

A task is judged away from its folder: in a sandbox that hides it, perhaps on another machine or in
a resumed run.  So no process that judges it opens the folder: the text of the imported files, and
of the files that these import, travels with the task's source.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

from protocol import settings
from protocol.user_files import read_text

MAX_BYTES = 1 << 20  # of all modules of one task
MAX_FILES = 500
# Names of other modules in the processes that judge: ours, and files made there.
RESERVED_NAMES = frozenset(["actors", "protocol", "task", "candidate", "torch", "numpy"])
IMPORT_FUNCTIONS = frozenset(["import_module", "__import__"])


class TaskImportError(ValueError):
    """A task's import can't be used: one line that names the file and what to do."""


@dataclass(frozen=True, kw_only=True)
class ImportStatement:
    """One import statement."""

    line: int
    level: int  # dots in front
    name: str  # dotted; "" in `from . import x`
    imported_names: tuple[str, ...]  # of `from name import …`
    is_optional: bool  # in a `try` with handlers

    def text(self) -> str:
        """Return the statement, about as it is in the source."""
        module = "." * self.level + self.name
        if not self.imported_names:
            return f"import {module}"
        return f"from {module} import {', '.join(self.imported_names)}"


def task_imports(source: str, file: Path) -> dict[str, str]:
    """Return the modules that a task imports from its file's folder: path in the folder -> source.

    Raises TaskImportError.
    """
    absolute = file.resolve()
    # A run stores each task's modules in a folder of their own: names may be the same.
    run = absolute.parents[1] if len(absolute.parents) > 1 else absolute.parent
    stored = run / settings.MODULES / absolute.stem
    is_copy = absolute.parent == run / "tasks" and (run / settings.FILE_NAME).exists()
    folder = stored if is_copy and stored.is_dir() else absolute.parent
    return _ImportSearch(folder).run(source, str(file))


class _ImportSearch:
    """One search from file to file, along the import statements."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, str] = {}
        # (path in the folder, path in messages, source) of files still to read
        self._waiting: list[tuple[str, str, str]] = []

    def run(self, source: str, displayed_path: str) -> dict[str, str]:
        self._waiting.append(("", displayed_path, source))
        while self._waiting:
            path, displayed_path, text = self._waiting.pop()
            for statement in import_statements(text):
                try:
                    self._follow(statement, path, displayed_path)
                except TaskImportError:
                    if not statement.is_optional:
                        raise
        return dict(sorted(self._found.items()))

    def _follow(self, statement: ImportStatement, path: str, displayed_path: str) -> None:
        """Add the modules that one statement in the file at `path` imports."""
        where = f"{displayed_path}:{statement.line}: {statement.text()}"
        parts = tuple(filter(None, statement.name.split(".")))
        if statement.level:
            package = Path(path).parent.parts
            if statement.level > len(package):
                raise TaskImportError(f"{where}: {_relative_import_advice(statement, package)}")
            parts = package[: len(package) - statement.level + 1] + parts
        elif not self._is_in_folder(parts[0], where):
            return
        self._add_module(parts, where)
        for name in statement.imported_names:
            self._add_module((*parts, name), where)

    def _is_in_folder(self, name: str, where: str) -> bool:
        """Whether a module of that name is in the task's folder; raise when it can't be used."""
        path = self._folder / name
        if not (path.with_name(f"{name}.py").is_file() or (path / "__init__.py").is_file()):
            compiled = _compiled_module(path)
            if compiled is not None:
                raise TaskImportError(
                    f"{where}: {compiled.name} is compiled, and a task travels as text: install it"
                    " as a package, or give its Python source"
                )
            if not path.is_dir() or not any(path.glob("*.py")) or _is_installed(name):
                return False
        if name in RESERVED_NAMES or name in sys.stdlib_module_names:
            raise TaskImportError(
                f"{where}: {name} in the folder of the task's file hides a module that is needed to"
                " judge it: give it another name"
            )
        return True

    def _add_module(self, parts: tuple[str, ...], where: str) -> None:
        """Add a module and its packages; a name that is not a module is ignored."""
        for length in range(1, len(parts) + 1):
            path = Path(*parts[:length])
            package = path / "__init__.py"
            if (self._folder / package).is_file():
                self._add_file(package, where)
            elif (self._folder / path).with_name(f"{path.name}.py").is_file():
                self._add_file(path.with_name(f"{path.name}.py"), where)
                return
            elif not (self._folder / path).is_dir():
                return

    def _add_file(self, path: Path, where: str) -> None:
        if str(path) in self._found:
            return
        file = self._folder / path
        try:
            text = read_text(file, 2 * MAX_BYTES)
            ast.parse(text)
        except OSError as error:
            raise TaskImportError(f"{where}: can't read {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise TaskImportError(
                f"{where}: {file} is not UTF-8 text (byte {error.start})"
            ) from error
        except SyntaxError as error:
            raise TaskImportError(f"{file}:{error.lineno}: {error.msg}") from error
        except (ValueError, RecursionError, MemoryError) as error:
            reason = str(error) or "it is nested too deeply"
            raise TaskImportError(f"{file} can't be parsed: {reason}") from error
        self._found[str(path)] = text
        size = sum(len(each.encode()) for each in self._found.values())
        if size > MAX_BYTES or len(self._found) > MAX_FILES:
            raise TaskImportError(
                f"{where}: with {path} the task imports more than {MAX_BYTES >> 20} MiB or"
                f" {MAX_FILES} files from its folder: install them as a package, or put the code"
                " that the task needs into a file of its own"
            )
        self._waiting.append((str(path), str(file), text))


def import_statements(source: str) -> Iterator[ImportStatement]:
    """Yield the import statements anywhere in a source, with calls of import functions."""
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while waiting:
        node, is_optional = waiting.pop()
        yield from _statements_at(node, is_optional=is_optional)
        body = {id(each) for each in node.body} if isinstance(node, ast.Try) else set()
        for child in ast.iter_child_nodes(node):
            is_caught = isinstance(node, ast.Try) and bool(node.handlers) and id(child) in body
            waiting.append((child, is_optional or is_caught))


def _statements_at(node: ast.AST, *, is_optional: bool) -> Iterator[ImportStatement]:
    def statement(
        line: int, name: str, level: int = 0, imported_names: tuple[str, ...] = ()
    ) -> ImportStatement:
        return ImportStatement(
            line=line,
            level=level,
            name=name,
            imported_names=imported_names,
            is_optional=is_optional,
        )

    match node:
        case ast.Import(names=names, lineno=line):
            for each in names:
                yield statement(line, each.name)
        case ast.ImportFrom(module=module, names=names, level=level, lineno=line):
            yield statement(line, module or "", level, tuple(each.name for each in names))
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_], lineno=line):
            called = getattr(function, "attr", getattr(function, "id", ""))
            if called in IMPORT_FUNCTIONS and name and not name.startswith("."):
                yield statement(line, name)


def _relative_import_advice(statement: ImportStatement, package: tuple[str, ...]) -> str:
    """Return what to write instead of a relative import that leads out of the task's folder."""
    if package or statement.level > 1:
        return (
            "it leads out of the folder of the task's file: only modules in that folder can be"
            " used, so move the file up, or install what it imports as a package"
        )
    instead = f"from {statement.name} import" if statement.name else "import"
    return (
        "a task's file is run by itself, outside of any package, with its folder on the path: write"
        f" {instead} {', '.join(statement.imported_names)}"
    )


def _compiled_module(path: Path) -> Path | None:
    """Return the compiled module of that name, if there is one and no source."""
    for suffix in (*EXTENSION_SUFFIXES, ".pyc", ".pyd"):
        file = path.with_name(f"{path.name}{suffix}")
        if file.is_file():
            return file
    return None


def _is_installed(name: str) -> bool:
    """Whether Python finds an installed package of that name with an `__init__.py`."""
    try:
        spec = PathFinder.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and spec.origin is not None
