"""The folders of `--import-path`: what they may be, and that the tasks need them.

Children may read such a folder, those that run candidates too.  So a folder is refused that would
open more than a package: a home, a run folder, keys.  And a run's tasks must all import from each
of its folders, so that no candidate finds the package of another task.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from actors.task_imports import import_statements

SECRET_NAMES = frozenset(
    [
        *(".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".config", ".netrc", ".pypirc"),
        *(".env", ".git-credentials", ".pgpass", "id_rsa", "id_ed25519", "id_ecdsa", "credentials"),
    ]
)
SYSTEM_FOLDERS = frozenset(
    ["/", "/etc", "/usr", "/var", "/proc", "/sys", "/dev", "/run", "/boot", "/tmp"]  # noqa: S108
)
MAX_ENTRIES = 20_000  # of a folder, that are looked at


class ImportPathError(ValueError):
    """A folder can't be used: one line."""


def checked_import_paths(
    folders: Sequence[str], tasks: Mapping[str, Iterable[str]], run_folders: Sequence[Path] = ()
) -> tuple[str, ...]:
    """Return the folders as absolute paths; raise ImportPathError with one line.

    `tasks`: name -> the sources of a task: its own, and those of the modules beside it.
    `run_folders`: folders of results, which children must not see.
    """
    found = []
    for shown in folders:
        folder = Path(shown).resolve()
        _require_package_folder(shown, folder, run_folders)
        for name, sources in tasks.items():
            if not any(_imports_from(folder, source) for source in sources):
                raise ImportPathError(
                    f"--import-path {shown}: the task {name} imports nothing from it: leave it "
                    "out, or judge that task in a run of its own"
                )
        found.append(str(folder))
    return tuple(dict.fromkeys(found))


def _require_package_folder(shown: str, folder: Path, run_folders: Sequence[Path]) -> None:
    if not folder.is_dir():
        what = "it is a file" if folder.exists() else "there is no such folder"
        raise ImportPathError(f"--import-path {shown}: {what}: give the folder around the package")
    if os.pathsep in str(folder):
        raise ImportPathError(f"--import-path {shown}: a path with {os.pathsep} can't be used")
    home = Path.home().resolve()
    if str(folder) in SYSTEM_FOLDERS or home.is_relative_to(folder):
        raise ImportPathError(
            f"--import-path {shown}: it would open {folder} to candidates: give the folder around"
            " the package, with nothing else in it"
        )
    for run in run_folders:
        inside = run.resolve()
        if inside.is_relative_to(folder) or folder.is_relative_to(inside):
            raise ImportPathError(
                f"--import-path {shown}: the run folder {run} is in it, or around it, and"
                " candidates must not see that: put one of them elsewhere"
            )
    secret = _secret_in(folder)
    if secret is not None:
        raise ImportPathError(
            f"--import-path {shown}: it holds {secret.relative_to(folder)}, which candidates must"
            " not read: move that, or give a folder without it"
        )


def _secret_in(folder: Path) -> Path | None:
    """Return something in the folder that looks like a key or a password."""
    seen = 0
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if name in SECRET_NAMES or name.endswith((".pem", ".key")):
                return Path(place, name)
        seen += len(folders) + len(files)
        if seen > MAX_ENTRIES:
            raise ImportPathError(
                f"--import-path {folder}: it holds more than {MAX_ENTRIES:,} files: give the folder"
                " around the package"
            )
    return None


def _imports_from(folder: Path, source: str) -> bool:
    names = {each.name.partition(".")[0] for each in import_statements(source) if not each.level}
    return any(
        name and ((folder / f"{name}.py").is_file() or (folder / name).is_dir()) for name in names
    )
