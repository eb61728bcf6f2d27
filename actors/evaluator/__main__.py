"""`python -m actors.evaluator`: judges by hand, or is an actor of a run.

By hand: --task and --candidate; exit status 0 correct, 1 any other verdict, 2 usage, 4 could not
judge.  In a run: --connect, --slot, --incarnation, --run-dir, written by the supervisor.
"""

from __future__ import annotations

import sys

from actors.startup_packages import end_without_packages
from actors.startup_signals import end_when_interrupted

if __name__ == "__main__":
    end_when_interrupted()  # the imports below take a while
    # `-m` puts the working directory first, where a user's random.py would hide the real one.
    if not sys.flags.safe_path and sys.path[0] != __file__.rpartition("/actors/")[0]:
        del sys.path[0]
    end_without_packages()

import argparse
import math
from pathlib import Path
from typing import get_args

import msgspec

from actors.cli import OneLineParser
from actors.commands import typed_command
from actors.evaluator import judge_cli
from actors.evaluator.devices import compute_mode, device_description
from actors.evaluator.sandbox import probe, scratch
from actors.exit_status import ExitStatus
from protocol import settings
from protocol.values import DeviceKind


def _seconds(text: str) -> float:
    """Return a time; raise ArgumentTypeError when the text is not one."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= settings.MAX_COUNT:
        expected = f"expected seconds above 0, at most {settings.MAX_COUNT}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: {expected}")
    return seconds


def _level(text: str) -> int:
    """Return a sandbox level; raise ArgumentTypeError when the text is not one."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a sandbox level: expected 0 to 3")
    return int(text)


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog=typed_command("evaluate"),
        description="Judge candidates of a task by hand: build, check, time.",
        epilog="Exit status: 0 all are correct, 1 any other verdict, 2 usage, 4 could not judge.",
    )
    _add_judge_arguments(parser)
    _add_actor_arguments(parser)
    return parser


def _add_judge_arguments(parser: OneLineParser) -> None:
    _add_task_arguments(parser)
    parser.add_argument(
        "--candidate",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a file that defines ModelNew; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON for each candidate")
    _add_rule_arguments(parser)
    _add_machine_arguments(parser)


def _add_rule_arguments(parser: OneLineParser) -> None:
    parser.add_argument(
        "--precision",
        choices=get_args(settings.Precision),
        default="task",
        help="the lowest precision that may count as correct (default: the task's own)",
    )
    parser.add_argument(
        "--require-custom-kernel",
        action="store_true",
        help="reject candidates that use the library alone, fall back, or never run their kernel",
    )
    parser.add_argument(
        "--baselines",
        choices=("eager", "all"),
        default="eager",
        help="all: also measure torch.compile's two modes, once for each device and task",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="run the profilers and checkers that are installed on correct candidates",
    )
    parser.add_argument(
        "--release",
        type=Path,
        metavar="FILE",
        help="check a correct candidate as a drop-in module and write its file to FILE",
    )


def _add_machine_arguments(parser: OneLineParser) -> None:
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="default: cuda where there is one"
    )
    parser.add_argument(
        "--min-sandbox", type=_level, metavar="N", help="refuse to run below this sandbox level"
    )
    parser.add_argument(
        "--time-s",
        type=_seconds,
        metavar="S",
        help=f"seconds of timing at most (default {settings.Limits().time_s:g})",
    )


def _add_task_arguments(parser: OneLineParser) -> None:
    parser.add_argument("--task", type=Path, metavar="FILE", help="the task, a KernelBench file")
    parser.add_argument(
        "--shapes", type=Path, metavar="FILE", help="the task's cases (NAME.cases.toml beside it)"
    )
    parser.add_argument(
        "--dtype",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="WORD",
        help="judge the task in this dtype: float16, bfloat16, float32, float64, or several",
    )
    parser.add_argument(
        "--backward", action="store_true", help="judge forward and backward, as one call"
    )
    parser.add_argument(
        "--import-path",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder with a package that the task imports; candidates can read it",
    )


def _add_actor_arguments(parser: OneLineParser) -> None:
    group = parser.add_argument_group("as an actor of a run", "The supervisor writes these.")
    group.add_argument("--connect", metavar="ADDR", help="the coordinator's address")
    group.add_argument("--slot", default="evaluator-0", help="the supervised slot")
    group.add_argument(
        "--incarnation", default="", metavar="WORD", help="a new name for every process"
    )
    group.add_argument("--run-dir", type=Path, default=Path(), metavar="DIR", help="the run folder")
    group.add_argument(
        "--ticket", type=Path, metavar="FILE", help="the file with the evaluator's key"
    )


def main() -> int:
    """Return the exit status."""
    arguments = _parser().parse_args()
    if arguments.connect:
        return _serve_run(arguments)
    is_question = arguments.task is None and not arguments.candidate and arguments.min_sandbox
    if not is_question:
        _refuse_incomplete(arguments)
    kind = arguments.device or device_description.default_kind()
    _require_level(arguments.min_sandbox or 0, kind)
    if is_question:  # the supervisor asks this before it makes a run
        refusal = compute_mode.refusal_of_all_cards() if kind == "cuda" else None
        if refusal:
            _parser().error(refusal)
        return ExitStatus.DONE
    return judge_cli.run(_judge_options(arguments, kind))


def _refuse_incomplete(arguments: argparse.Namespace) -> None:
    """End with one line where a file to judge is missing, or a file to write can't be written."""
    if arguments.task is None or not arguments.candidate:
        _parser().error("--task FILE and --candidate FILE are needed (or --connect for an actor)")
    release = arguments.release
    if release is None:
        return
    if len(arguments.candidate) > 1:
        _parser().error("--release FILE takes one --candidate")
    if release.exists():
        _parser().error(f"--release {release}: it exists, and is not overwritten")
    if not release.absolute().parent.is_dir():
        _parser().error(f"--release {release}: there is no such folder")


def _judge_options(arguments: argparse.Namespace, kind: DeviceKind) -> judge_cli.JudgeOptions:
    limits = settings.Limits()
    if arguments.time_s is not None:
        limits = msgspec.structs.replace(limits, time_s=arguments.time_s)
    return judge_cli.JudgeOptions(
        task=arguments.task,
        candidates=tuple(arguments.candidate),
        shapes=arguments.shapes,
        dtypes=arguments.dtype,
        backward=arguments.backward,
        device=kind,
        limits=limits,
        min_level=arguments.min_sandbox or 0,
        rules=settings.JudgeRules(
            precision=arguments.precision,
            require_custom_kernel=arguments.require_custom_kernel,
            baselines=arguments.baselines,
            import_paths=tuple(arguments.import_path),
        ),
        json=arguments.json,
        profiled=arguments.profile,
        drop_in=arguments.release,
    )


def _require_level(least: int, kind: DeviceKind) -> None:
    """Exit with one line when the machine's sandbox is weaker than level `least`."""
    refusal = probe.unavailable_reason(least, kind)
    if refusal:
        _parser().error(refusal)


def _serve_run(arguments: argparse.Namespace) -> int:
    # Imported only here: by hand no part of an actor is needed.
    from actors.actor import run_actor
    from actors.evaluator.judge import Judge
    from actors.evaluator.worker import EvaluatorWorker
    from actors.identity import identity_from
    from actors.log import open_log
    from actors.work_context import WorkerUnfitError

    identity = identity_from(arguments)
    try:
        chosen = settings.read(identity.run_dir)
    except ValueError as error:
        _parser().error(str(error))
    least = chosen.min_sandbox if arguments.min_sandbox is None else arguments.min_sandbox
    kind = arguments.device or chosen.device
    _require_level(least, kind)
    folder = scratch.scratch_for_slot(identity.run_dir, identity.slot, identity.incarnation)
    hide = (identity.run_dir.absolute(),)
    log = open_log(identity.run_dir, identity.slot)
    judge = Judge(
        kind,
        chosen.limits,
        folder,
        hide=hide,
        rules=chosen.rules,
        min_level=least,
        log_line=log.warning,
    )
    try:
        return run_actor(EvaluatorWorker(judge), identity)
    except WorkerUnfitError as error:
        sys.stderr.write(f"evaluator: could not judge: {error}\n")
        return ExitStatus.FAULT
    finally:
        judge.close()


if __name__ == "__main__":
    sys.exit(main())
