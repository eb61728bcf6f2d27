"""The checks before anything is made or started: task files, models, device, sandbox, address.

This file does not import torch and runs no task code: task files are parsed, not imported.  Each
refusal is one line (`UsageError`) that names the flag or the file.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import ipaddress
import json
import re
import resource
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from actors.cli import UsageError
from actors.commands import typed_command
from actors.import_paths import ImportPathError, checked_import_paths
from actors.supervisor.processes.environment import child_environment
from actors.supervisor.reporting.run_data import run_folder_integrity
from actors.task_cases import TaskCasesError, TaskOptions, read_options
from actors.task_imports import TaskImportError, task_imports
from protocol.api_key import api_key_variable
from protocol.settings import LOCAL_ADDRESS, Settings
from protocol.user_files import read_text
from protocol.values import AGENT_ROLES, Value

REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
MAX_BYTES = 1024 * 1024
MAX_NAME = 100  # characters; a file system's limit is 255, and we add suffixes
LISTEN_ADDRESS = re.compile(r"tcp://(\[(?P<six>[^\]]+)\]|(?P<host>[0-9.*]+)):(?P<port>[0-9]{1,5})")
OWN_DESCRIPTORS = 40  # open files of a supervisor, or of any other of our processes
DESCRIPTORS_PER_PROCESS = 3  # for each process that it supervises


class TaskFile(Value, frozen=True, kw_only=True):
    """A task as the user's files hold it."""

    name: str
    path: Path
    source: str
    # The modules in the task's folder that it imports: path -> source.
    modules: dict[str, str] = msgspec.field(default_factory=dict)
    options: TaskOptions = TaskOptions()  # its cases


def read_tasks(
    paths: Sequence[Path],
    shapes: Path | None = None,
    dtypes: Sequence[str] = (),
    *,
    backward: bool = False,
) -> tuple[TaskFile, ...]:
    """Return the tasks in `paths`, each parsed and complete, all of different names.

    `shapes`: the file with the cases of the one task.  `dtypes`: what all tasks are judged in.
    """
    if shapes is not None and len(paths) > 1:
        raise UsageError("--shapes FILE is for one --task: put NAME.cases.toml beside each task")
    tasks: dict[str, TaskFile] = {}
    for path in paths:
        task = read_task(path, shapes, dtypes, backward=backward)
        if task.name in tasks and path.resolve() == tasks[task.name].path.resolve():
            raise UsageError(f"{path} is given twice: leave one --task out")
        if task.name in tasks:
            raise UsageError(
                f"{path} and {tasks[task.name].path} are both called {task.name}: rename one"
            )
        tasks[task.name] = task
    return tuple(tasks.values())


def read_task(
    path: Path,
    shapes: Path | None = None,
    dtypes: Sequence[str] = (),
    *,
    backward: bool = False,
) -> TaskFile:
    """Return the task in one file; raise UsageError with one line when it is not a task."""
    source = _text(path)
    missing = [word for word in REQUIRED_NAMES if word not in _defined_names(path, source)]
    if missing:
        raise UsageError(
            f"{path} has no {' and no '.join(missing)}: a task defines Model, get_inputs() and"
            " get_init_inputs()"
        )
    try:
        modules = task_imports(source, path) if path.is_file() else {}
        options = read_options(path, source, shapes, dtypes, backward=backward)
    except (TaskImportError, TaskCasesError) as error:
        raise UsageError(str(error)) from error
    return TaskFile(name=name_of(path), path=path, source=source, modules=modules, options=options)


def name_of(path: Path) -> str:
    """Return the name of a task, which becomes part of work ids and file names.

    A digest of the whole name distinguishes names that are shortened or of another alphabet.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", path.stem).lstrip(".-")
    digest = hashlib.sha256(path.stem.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    if not re.search(r"[A-Za-z0-9]", name):
        return f"task-{digest}"
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}-{digest}"


def _text(path: Path) -> str:
    """Return a task file's text."""
    try:
        return read_text(path, MAX_BYTES)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist: --task wants a KernelBench file") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise UsageError(
                f"{path} is larger than 1 MiB: a task is a small Python file"
            ) from None
        raise UsageError(f"can't read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error


def _defined_names(path: Path, source: str) -> set[str]:
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{path} can't be parsed: {error}") from error
    except (RecursionError, MemoryError):
        raise UsageError(f"{path} can't be parsed: it is nested too deeply") from None
    names: set[str] = set()
    waiting: list[ast.AST] = [module]
    while waiting:
        match waiting.pop():
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)  # but not the names that are defined inside it
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.update(REQUIRED_NAMES if name == "*" else (other or name,))
            case node:
                waiting.extend(ast.iter_child_nodes(node))
    return names


def check_models(settings: Settings, environ: Mapping[str, str], base: Path) -> Settings:
    """Return the settings with the models' files made absolute (from `base`).

    A machine without agents needs no key and no script: the agents may run elsewhere.
    """
    if settings.base_url:
        _check_base_url(settings.base_url)
    changed = {}
    for field in ("model", "planner_model", "coder_model", "debugger_model"):
        model = getattr(settings, field)
        if model:
            changed[field] = _check_model(model, settings, environ, base)
    return replace(settings, **changed)


def _check_model(model: str, settings: Settings, environ: Mapping[str, str], base: Path) -> str:
    kind, colon, rest = model.partition(":")
    agents_here = any(settings.process_count(role) for role in AGENT_ROLES)
    if model == "recipes":
        return model
    if colon and kind == "script":
        path = (base / rest).resolve()
        return f"script:{_check_script(path, rest) if agents_here else path}"
    if colon and kind == "replay":
        return f"replay:{_check_run((base / rest).resolve(), rest)}"
    if settings.base_url:
        return model
    if not re.fullmatch(r"claude-[a-z0-9.@-]+", model):
        raise UsageError(
            f"unknown model {model!r}: use a claude-… name, recipes, script:FILE, or --base-url"
            " with a name that this server knows"
        )
    if agents_here and not api_key_variable(environ):
        raise UsageError(
            f"--model {model} needs a key: set ANTHROPIC_API_KEY, or use --model recipes"
        )
    return model


def _check_base_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(char.isspace() for char in url):
        raise UsageError(
            f"--base-url {url}: expected http://HOST:PORT or https://HOST; /v1/messages is appended"
        )


def _check_run(path: Path, shown: str) -> Path:
    if not path.exists():
        raise UsageError(f"--model replay:{shown}: no such folder")
    try:
        run_folder_integrity.check_run_folder(path)
        with closing(run_folder_integrity.open_read_only(path)) as run:
            (calls,) = run.execute("SELECT COUNT(*) FROM call").fetchone()
    except run_folder_integrity.DamagedRunError as error:
        raise UsageError(f"--model replay:{shown}: {error}") from error
    except (ValueError, sqlite3.DatabaseError) as error:
        raise UsageError(f"--model replay:{shown}: {error}; it needs a run folder") from error
    if not calls:
        raise UsageError(f"--model replay:{shown}: that run holds no calls to a model")
    return path


def check_replayed(settings: Settings, tasks: Sequence[TaskFile]) -> None:
    """Raise UsageError where a stored run has no answers about a task."""
    for model in dict.fromkeys(settings.model_of(role) for role in AGENT_ROLES):
        kind, _, run = model.partition(":")
        if kind != "replay":
            continue
        try:
            known = {
                stored.source: stored.name
                for stored in run_folder_integrity.check_run_folder(Path(run)).tasks
            }
        except ValueError as error:
            raise UsageError(f"--model {model}: {error}") from error
        for task in tasks:
            if task.source not in known:
                name = min(known.values(), default="NAME")
                raise UsageError(
                    f"--model replay:{run} has no answers for {task.path}: that run is of"
                    f" {', '.join(sorted(known.values()))}, with another source; give"
                    f" --task {run}/tasks/{name}.py"
                )


def _check_script(path: Path, shown: str) -> Path:
    try:
        text = read_text(path)
    except OSError as error:
        raise UsageError(f"--model script:{shown}: can't read it: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--model script:{shown}: not UTF-8 text: {error.reason}") from error
    # The script model reads it like this: str.splitlines would split inside JSON strings.
    lines = {
        number: line
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip() and not line.lstrip().startswith("//")
    }
    for number, line in lines.items():
        try:
            is_object = isinstance(json.loads(line), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            raise UsageError(f"{shown}:{number}: not a JSON object; a script has one a line")
    if not lines:
        raise UsageError(f"--model script:{shown}: the file has no replies")
    return path


def check_import_paths(
    settings: Settings, tasks: Sequence[TaskFile], run_dir: Path | None
) -> Settings:
    """Return the settings with absolute folders of `--import-path`; raise UsageError."""
    if not settings.rules.import_paths:
        return settings
    sources = {task.name: (task.source, *task.modules.values()) for task in tasks}
    run_folders = [run_dir if run_dir is not None else Path("runs")]
    try:
        found = checked_import_paths(settings.rules.import_paths, sources, run_folders)
    except ImportPathError as error:
        raise UsageError(str(error)) from error
    return replace(settings, rules=replace(settings.rules, import_paths=found))


def check_device(settings: Settings, gpus: tuple[str, ...]) -> None:
    """Raise UsageError when this machine lacks the device of the settings."""
    if settings.device == "cuda" and settings.evaluators and not gpus:
        raise UsageError(
            "--device cuda: no CUDA card that torch can use was found; use --device cpu,"
            f" --evaluators 0 where others lend theirs, or run {typed_command('doctor')}"
        )


def check_evaluators(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise UsageError when evaluators of this machine would refuse at every start.

    That is below `--min-sandbox`, and on cards that serve one process only.  One of them is asked.
    """
    is_asked = settings.min_sandbox > 1 or settings.device == "cuda"
    if not settings.evaluators or not is_asked:
        return
    level = max(1, settings.min_sandbox)  # every machine has level 1
    probe = subprocess.run(
        [sys.executable, "-P", "-m", "actors.evaluator",
         "--device", settings.device, "--min-sandbox", str(level)],
        env=child_environment(environ, ""), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if probe.returncode:
        lines = probe.stderr.strip().splitlines() or [f"exit status {probe.returncode}"]
        line = lines[-1].removeprefix("evaluator: ").removeprefix("evaluate: ")
        raise UsageError(line.partition("; see ")[0])


def check_address(settings: Settings) -> None:
    """Raise UsageError when the address of `--listen` is in use or not an address."""
    if settings.listen == LOCAL_ADDRESS:
        return
    parts = LISTEN_ADDRESS.fullmatch(settings.listen)
    host, port = (parts["six"] or parts["host"], int(parts["port"])) if parts else ("", 0)
    if not 0 < port < 65536 or not _is_literal(host):
        raise UsageError(
            f"--listen {settings.listen}: expected tcp://ADDR:PORT, ADDR a numeric address of this"
            " machine, or 0.0.0.0 for all of them"
        )
    host = "0.0.0.0" if host == "*" else host  # noqa: S104  # with keys
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            other = "another port" if in_use else "an address of this machine"
            raise UsageError(
                f"--listen {settings.listen}: {error.strerror}; choose {other}"
            ) from error


def check_descriptors(processes: int) -> None:
    """Raise the limit of open files to what `processes` need; raise UsageError if that fails.

    libzmq aborts a process that has no descriptor left.
    """
    needed = OWN_DESCRIPTORS + processes * DESCRIPTORS_PER_PROCESS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < needed:
        raise UsageError(
            f"{needed} open files are needed for {processes} processes and ulimit -n allows {hard}:"
            " raise it, or start fewer processes"
        )
    if resource.RLIM_INFINITY != soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _is_literal(host: str) -> bool:
    try:
        return host == "*" or bool(ipaddress.ip_address(host))
    except ValueError:
        return False
