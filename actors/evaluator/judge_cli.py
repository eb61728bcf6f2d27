"""Judging by hand: a task and candidates from files, verdicts on stdout."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import TypeVar

import msgspec

from actors.cli import discard_unflushed_output, short_name
from actors.commands import typed_command
from actors.evaluator import verdict_annotations
from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.ordered_judging import judge_best_variant, judge_in_order, require_verdict
from actors.evaluator.release_stage import essential_failure
from actors.evaluator.sandbox import scratch
from actors.evaluator.sandbox.child_failures import verdict_json
from actors.evaluator.variant_race import declared_space
from actors.exit_status import ExitStatus
from actors.import_paths import ImportPathError, checked_import_paths
from actors.release.composition import drop_in_source
from actors.task_cases import TaskCasesError, read_options, with_options
from actors.task_imports import TaskImportError, task_imports
from actors.tune_space import variant_source
from actors.work_context import (
    STANDALONE,
    EvaluationContext,
    StandaloneContext,
    WorkerUnfitError,
)
from protocol.cases import result_case_lines
from protocol.fact_lines import verdict_fact_lines
from protocol.settings import JudgeRules, Limits
from protocol.user_files import read_text
from protocol.values import BACKEND_OF, DeviceKind, Outcome, Reference, Task, Value, Verdict
from protocol.variant_lines import variant_lines

MAX_BYTES = 4 << 20  # more than the judge takes: that says so itself, in a verdict
WAIT_S = 5.0  # a shorter wait is not reported

Found = TypeVar("Found", Reference, Verdict)


class OutputClosedError(Exception):
    """A verdict can't be written; the text is one line."""


class InputFileError(Exception):
    """A file that was named can't be used; the text is one line."""


def read(path: Path, what: str) -> str:
    """Return a file's text; raise `InputFileError` when it can't be read."""
    try:
        return read_text(path, MAX_BYTES)
    except OSError as error:
        raise InputFileError(f"can't read the {what} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputFileError(f"the {what} {path} is not UTF-8 text: {error.reason}") from error


def read_task(
    path: Path,
    device: DeviceKind,
    shapes: Path | None = None,
    dtypes: tuple[str, ...] = (),
    *,
    backward: bool = False,
) -> Task:
    """Return the task in `path`; raise `InputFileError` when it is not valid Python."""
    source = read(path, "task")
    try:
        compile(source, str(path), "exec")
    except (RecursionError, MemoryError):
        raise InputFileError(f"the task {path} can't be parsed: it is nested too deeply") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        at = f", line {line}" if line else ""
        reason = getattr(error, "msg", None) or error
        raise InputFileError(f"the task {path} is not valid Python: {reason}{at}") from error
    try:
        modules = task_imports(source, path) if path.is_file() else {}
        options = read_options(path, source, shapes, dtypes, backward=backward)
    except (TaskImportError, TaskCasesError) as error:
        raise InputFileError(str(error)) from error
    backend = BACKEND_OF[device]
    task = Task(name=path.stem, source=source, device=device, backend=backend, modules=modules)
    return with_options(task, options)


class WaitNotice(StandaloneContext):
    """A context that reports which part of the task is waited for, once that takes long."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._timer: Timer | None = None

    def set_activity(self, text: str) -> None:
        """Note what is done from now on."""
        self.close()
        if text.startswith("waiting"):
            notice = text.replace("(limit", f"({WAIT_S:.0f} s; limit")
            self._timer = Timer(WAIT_S, self._report, (notice,))
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Report nothing more."""
        if self._timer is not None:
            self._timer.cancel()


class JudgeOptions(Value, frozen=True, kw_only=True):
    """What is to be judged by hand, and how."""

    task: Path
    candidates: tuple[Path, ...]
    shapes: Path | None = None  # the file with the task's cases
    dtypes: tuple[str, ...] = ()
    backward: bool = False
    device: DeviceKind
    limits: Limits
    min_level: int  # the sandbox level below which nothing is judged
    rules: JudgeRules
    json: bool  # whether verdicts are printed as JSON
    profiled: bool  # whether correct candidates are profiled and inspected
    drop_in: Path | None  # where the drop-in file of a correct candidate is written


def judge_files(options: JudgeOptions) -> int:
    """Judge each candidate; print its verdict; return the exit status."""
    _exit_on_signals()
    task = read_task(
        options.task, options.device, options.shapes, options.dtypes, backward=options.backward
    )
    rules = _with_import_paths(options.rules, task)
    sources = [read(path, "candidate") for path in options.candidates]
    judge = Judge(
        options.device,
        options.limits,
        scratch.scratch_for_process(),
        rules=rules,
        min_level=options.min_level,
        log_line=_progress,
    )
    waits = WaitNotice(_progress)
    try:
        judge.prepare(sources)
        measured = _required(judge.measure(task, waits), options.task)
        is_done = _judge_sources(judge, task, measured, sources, options)
    finally:
        waits.close()
        judge.close()
    return ExitStatus.DONE if is_done else ExitStatus.NEGATIVE


def _with_import_paths(rules: JudgeRules, task: Task) -> JudgeRules:
    """Return the rules with absolute `import_paths`; raise `InputFileError` for a wrong one."""
    texts = {task.name: (task.source, *task.modules.values())}
    try:
        return msgspec.structs.replace(
            rules, import_paths=checked_import_paths(rules.import_paths, texts)
        )
    except ImportPathError as error:
        raise InputFileError(str(error)) from error


def _required(found: Found | TaskProblem, file: Path) -> Found:
    """Return what the judge found; raise `InputFileError` where the task can't be judged."""
    if isinstance(found, TaskProblem):
        raise InputFileError(f"the task {file} can't be judged: {found.reason}")
    return found


def _judge_sources(
    judge: Judge, task: Task, measured: Reference, sources: list[str], options: JudgeOptions
) -> bool:
    """Print each verdict; return whether all are correct, and the drop-in file is written."""
    is_done = True
    verdicts = judge_all(judge, task, sources, profiled=options.profiled)
    for path, source, found in zip(options.candidates, sources, verdicts, strict=True):
        verdict = with_fact_lines(_required(found, options.task), measured)
        _print_verdict(
            verdict_json(verdict) if options.json else _readable(path, verdict, measured)
        )
        if verdict.verdict is not Outcome.CORRECT:
            is_done = False
        elif options.drop_in is not None:
            kept = _kept_source(source, verdict)
            is_done = _release(judge, task, kept, options.drop_in) and is_done
    return is_done


def judge_all(
    judge: Judge, task: Task, sources: Sequence[str], *, profiled: bool
) -> Iterator[Verdict | TaskProblem]:
    """Judge one source after the other, of a candidate with variants the best one."""

    def in_full(source: str, context: EvaluationContext) -> Verdict:
        return require_verdict(
            next(judge_in_order(judge, task, [source], context, profiled=profiled))
        )

    plain = [source for source in sources if declared_space(source) is None]
    verdicts = judge_in_order(judge, task, plain, profiled=profiled)
    for source in sources:
        if declared_space(source) is None:
            yield next(verdicts)
        else:
            yield judge_best_variant(judge, task, source, STANDALONE, in_full)


def with_fact_lines(verdict: Verdict, reference: Reference) -> Verdict:
    """Return the verdict with its facts as text in its profile, which a person reads."""
    lines = verdict_fact_lines(verdict.facts, reference.facts)
    if not lines:
        return verdict
    profile = {**(verdict.profile or {}), "facts": "\n".join(lines)}
    return msgspec.structs.replace(verdict, profile=profile)


def _kept_source(source: str, verdict: Verdict) -> str:
    """Return the text that was judged in full: of a candidate with variants, the kept one's."""
    kept = None if verdict.variant is None else variant_source(source, verdict.variant)
    return source if kept is None else kept


def _release(judge: Judge, task: Task, source: str, file: Path) -> bool:
    """Check a candidate as a drop-in module and write its file; return whether it is one."""
    release = judge.release(task, source)
    if isinstance(release, TaskProblem):
        raise InputFileError(f"the task {task.name} can't be judged: {release.reason}")
    for name in release.passed:
        _progress(f"release check {name}: passed")
    for name in release.limits:
        _progress(f"release check {name}: the plain forward runs there, the kernels were not right")
    for kind, found in (("failed", release.failed), ("not run", release.skipped)):
        for name, reason in found.items():
            _progress(f"release check {name}: {kind}: {reason}")
    reason = essential_failure(release)
    if reason:
        _progress(reason)
        return False
    try:
        file.write_text(drop_in_source(task.source, source, release), encoding="utf-8")
    except OSError as error:
        raise OutputClosedError(f"can't write {file}: {error.strerror}") from error
    return True


def _print_verdict(text: str) -> None:
    try:
        print(text, flush=True)  # noqa: T201  # what was asked for
    except OSError as error:
        raise OutputClosedError(f"stdout takes no verdict: {error.strerror}") from error


def _name() -> str:
    """Return the short name of the command that was typed: `evaluate` of `stark evaluate`."""
    return short_name(typed_command("evaluate"))


def _progress(line: str) -> None:
    sys.stderr.write(f"{_name()}: {line}\n")


def _readable(path: Path, verdict: Verdict, reference: Reference) -> str:
    head = f"{path.name}: {verdict.verdict}"
    if verdict.is_correct and verdict.median_us is not None and verdict.speedup is not None:
        facts = (verdict.profile or {}).get("facts", "").splitlines()
        notes = "".join(f"\n{path.name}: {note}" for note in (*reference.notes, *facts))
        return (
            f"{head}, {verdict.median_us:.4g} µs against {verdict.reference_us:.4g} µs, "
            f"{verdict.speedup:.3f}× ({_interval_text(verdict)}) on "
            f"{reference.device.name}{_case_text(path, verdict)}{notes}"
            f"{_variant_text(path, verdict)}"
        )
    at = f" ({verdict.stage})" if verdict.stage else ""
    texts = ((verdict.profile or {}).get("facts", ""), verdict.log)
    more = "".join(f"\n{text}" for text in texts if text)
    return f"{head}{at}: {verdict.reason}{more}{_variant_text(path, verdict)}"


def _interval_text(verdict: Verdict) -> str:
    if verdict.speedup_ci95 is None:
        return "no interval"
    low, high = verdict.speedup_ci95
    if high > verdict_annotations.IMPRECISE_RATIO * low:
        return f"95 %: {low:.3g} to {high:.3g}, which says nothing"
    return f"95 %: {low:.3f} to {high:.3f}"


def _variant_text(path: Path, verdict: Verdict) -> str:
    return "".join(f"\n{path.name}: {line}" for line in variant_lines(verdict))


def _case_text(path: Path, verdict: Verdict) -> str:
    return "".join(f"\n{path.name}: {line}" for line in result_case_lines(verdict.cases))


def _exit_on_signals() -> None:
    def exit_now(number: int, _frame: FrameType | None) -> None:
        # Runs every `finally`: children end and the scratch folder is removed.
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, exit_now)


def run(options: JudgeOptions) -> int:
    """Do what `judge_files` does; write one line to stderr for what can't be done."""
    try:
        return judge_files(options)
    except InputFileError as error:
        sys.stderr.write(f"{_name()}: {error}\n")
        return ExitStatus.USAGE
    except WorkerUnfitError as error:
        sys.stderr.write(f"{_name()}: could not judge: {error}\n")
        return ExitStatus.FAULT
    except OutputClosedError as error:
        sys.stderr.write(f"{_name()}: {error}\n")
        discard_unflushed_output()
        return ExitStatus.FAULT
