"""The Python files beside a task that it imports, found by import statements and taken as text.

A task is judged away from its folder: in a sandbox that hides it, maybe on another machine, maybe
when the run is resumed later.  So the folder itself is never opened to anybody; what the imports
lead to, and what those files import in turn, travels with the task's source.
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
# Names that mean something else in the processes that judge: ours, and the files made there.
RESERVED_NAMES = frozenset(["actors", "protocol", "task", "candidate", "torch", "numpy"])
IMPORT_FUNCTIONS = frozenset(["import_module", "__import__"])


class TaskImportError(ValueError):
    """What a task imports can't be taken along: one line that names the file and what to do."""


@dataclass(frozen=True, kw_only=True)
class ImportStatement:
    """One import statement."""

    line: int
    level: int  # dots in front
    name: str  # dotted; "" in `from . import x`
    taken: tuple[str, ...]  # what is imported from it
    tried: bool  # something else is done where it fails

    def written(self) -> str:
        """Return it as it stands in the source, more or less."""
        whole = "." * self.level + self.name
        return f"from {whole} import {', '.join(self.taken)}" if self.taken else f"import {whole}"


def task_imports(source: str, file: Path) -> dict[str, str]:
    """Return what a task's source imports from the folder of its file, by path in it.

    Raises TaskImportError.
    """
    whole = file.resolve()
    # A run's own copy: its modules lie apart, since two tasks may have some of the same name.
    run = whole.parents[1] if len(whole.parents) > 1 else whole.parent
    kept = run / settings.MODULES / whole.stem
    is_copy = whole.parent == run / "tasks" and (run / settings.FILE_NAME).exists()
    folder = kept if is_copy and kept.is_dir() else whole.parent
    return _Search(folder).run(source, str(file))


class _Search:
    """One walk from file to file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, str] = {}
        self._waiting: list[tuple[str, str, str]] = []  # path in the folder, shown, source

    def run(self, source: str, shown: str) -> dict[str, str]:
        self._waiting.append(("", shown, source))
        while self._waiting:
            path, at, text = self._waiting.pop()
            for imported in import_statements(text):
                try:
                    self._follow(imported, path, at)
                except TaskImportError:
                    if not imported.tried:
                        raise
        return dict(sorted(self._found.items()))

    def _follow(self, imported: ImportStatement, path: str, at: str) -> None:
        """Take along what one statement in the file at `path` leads to."""
        where = f"{at}:{imported.line}: {imported.written()}"
        parts = tuple(filter(None, imported.name.split(".")))
        if imported.level:
            package = Path(path).parent.parts
            if imported.level > len(package):
                raise TaskImportError(f"{where}: {_outside(imported, package)}")
            parts = package[: len(package) - imported.level + 1] + parts
        elif not self._is_beside(parts[0], where):
            return
        self._take(parts, where)
        for name in imported.taken:
            self._take((*parts, name), where)

    def _is_beside(self, name: str, where: str) -> bool:
        """Whether a module of that name lies in the task's folder, and can be used from there."""
        path = self._folder / name
        if not (path.with_name(f"{name}.py").is_file() or (path / "__init__.py").is_file()):
            compiled = _compiled(path)
            if compiled is not None:
                raise TaskImportError(
                    f"{where}: {compiled.name} is compiled, and a task travels as text: install it"
                    " as a package, or give its Python source"
                )
            if not path.is_dir() or not any(path.glob("*.py")) or _is_installed(name):
                return False
        if name in RESERVED_NAMES or name in sys.stdlib_module_names:
            raise TaskImportError(
                f"{where}: {name} beside the task's file hides a module that is needed to judge it:"
                " give it another name"
            )
        return True

    def _take(self, parts: tuple[str, ...], where: str) -> None:
        """Take along a module and the packages that it lies in; what is no module is left."""
        for length in range(1, len(parts) + 1):
            path = Path(*parts[:length])
            package = path / "__init__.py"
            if (self._folder / package).is_file():
                self._add(package, where)
            elif (self._folder / path).with_name(f"{path.name}.py").is_file():
                self._add(path.with_name(f"{path.name}.py"), where)
                return
            elif not (self._folder / path).is_dir():
                return

    def _add(self, path: Path, where: str) -> None:
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
                f"{where}: {file} is no UTF-8 text (byte {error.start})"
            ) from error
        except SyntaxError as error:
            raise TaskImportError(f"{file}:{error.lineno}: {error.msg}") from error
        except (ValueError, RecursionError, MemoryError) as error:
            why = str(error) or "it is nested too deeply"
            raise TaskImportError(f"{file} can't be parsed: {why}") from error
        self._found[str(path)] = text
        size = sum(len(each.encode()) for each in self._found.values())
        if size > MAX_BYTES or len(self._found) > MAX_FILES:
            raise TaskImportError(
                f"{where}: with {path} the modules beside the task are more than"
                f" {MAX_BYTES >> 20} MiB or {MAX_FILES} files: install them as a package, or keep"
                " what the task needs in a file of its own"
            )
        self._waiting.append((str(path), str(file), text))


def import_statements(source: str) -> Iterator[ImportStatement]:
    """Yield the import statements of a source, wherever in it, that can be read off its text."""
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while waiting:
        node, tried = waiting.pop()
        yield from _imported(node, tried=tried)
        inside = {id(each) for each in node.body} if isinstance(node, ast.Try) else set()
        for child in ast.iter_child_nodes(node):
            caught = isinstance(node, ast.Try) and bool(node.handlers) and id(child) in inside
            waiting.append((child, tried or caught))


def _imported(node: ast.AST, *, tried: bool) -> Iterator[ImportStatement]:
    match node:
        case ast.Import(names=names, lineno=line):
            for each in names:
                yield ImportStatement(line=line, level=0, name=each.name, taken=(), tried=tried)
        case ast.ImportFrom(module=module, names=names, level=level, lineno=line):
            taken = tuple(each.name for each in names)
            name = module or ""
            yield ImportStatement(line=line, level=level, name=name, taken=taken, tried=tried)
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_], lineno=line):
            called = getattr(function, "attr", getattr(function, "id", ""))
            if called in IMPORT_FUNCTIONS and name and not name.startswith("."):
                yield ImportStatement(line=line, level=0, name=name, taken=(), tried=tried)


def _outside(imported: ImportStatement, package: tuple[str, ...]) -> str:
    """Say what to write instead of a relative import that leads out of the task's folder."""
    if package or imported.level > 1:
        return (
            "it leads out of the folder of the task's file: a task takes along what lies in its"
            " folder, so move the file up, or install what it imports as a package"
        )
    instead = f"from {imported.name} import" if imported.name else "import"
    return (
        "a task's file is run by itself, in no package, with its folder on the path: write"
        f" {instead} {', '.join(imported.taken)}"
    )


def _compiled(path: Path) -> Path | None:
    """Return the compiled module of that name, if there is one and no source."""
    for suffix in (*EXTENSION_SUFFIXES, ".pyc", ".pyd"):
        file = path.with_name(f"{path.name}{suffix}")
        if file.is_file():
            return file
    return None


def _is_installed(name: str) -> bool:
    """Whether Python finds a package of that name that is more than a folder without a mark."""
    try:
        spec = PathFinder.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and spec.origin is not None
