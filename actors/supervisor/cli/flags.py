"""The command line: flags become `Arguments`, every mistake becomes one line (`UsageError`).

`STARK_NAME` variables in the environment may set the options of the table `OPTIONS`, too.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from actors.cli import OneLineParser, UsageError
from actors.commands import typed_command
from actors.installation import VERSION
from actors.supervisor.cli.option_readers import nonempty_word, path_name, positive_number
from actors.supervisor.cli.setting_options import OPTIONS, PREFIX, HelpSection

COMMAND = typed_command()
MIN_SIMILARITY = 0.75  # of two names of which one is a typo


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What the command line asks for; `settings` holds the settings that it names, by field."""

    tasks: tuple[Path, ...] = ()
    shapes: Path | None = None  # the file of cases
    dtypes: tuple[str, ...] = ()
    backward: bool = False
    resume: Path | None = None
    references: Path | None = None  # a run whose measured references are taken
    run_dir: Path | None = None
    json: bool = False
    keep_refused: bool = False
    join: str = ""
    metrics: str = ""  # HOST:PORT
    watch: bool = False
    steer: bool = False
    max_wait: float | None = None  # minutes
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def minutes(self) -> float | None:
        """The value of `--max-minutes`."""
        minutes = self.settings.get("max_minutes")
        return minutes if isinstance(minutes, float) else None


# Flags without a value, and the settings that they turn on.
SWITCHES = {
    "until_idle": "until_idle",
    "first_looks": "first_looks",
    "require_custom_kernel": "rules.require_custom_kernel",
}
# The settings of a machine that joins; all others are the run's.
LENDABLE_FLAGS = ("evaluators", "planners", "coders", "debuggers", "min_sandbox", "max_minutes")


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Return what `argv` asks for; raise UsageError with one line when it can't be understood."""
    parsed = vars(_parser().parse_args(argv))
    settings = {
        option.setting: parsed[option.setting]
        for option in OPTIONS
        if parsed[option.setting] is not None
    }
    settings |= {setting: True for name, setting in SWITCHES.items() if parsed[name]}
    if parsed["import_path"]:
        settings["rules.import_paths"] = tuple(parsed["import_path"])
    arguments = Arguments(
        tasks=tuple(parsed["task"]),
        shapes=parsed["shapes"],
        dtypes=tuple(parsed["dtype"].split(",")) if parsed["dtype"] else (),
        backward=parsed["backward"],
        resume=parsed["resume"],
        run_dir=parsed["run_dir"],
        references=parsed["references"],
        json=parsed["json"],
        keep_refused=parsed["keep_refused"],
        join=parsed["join"] or "",
        metrics=parsed["metrics"] or "",
        watch=parsed["watch"],
        steer=parsed["steer"],
        max_wait=parsed["max_wait"],
        settings=settings,
    )
    _refuse_contradictions(arguments)
    return arguments


def settings_from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    """Return the settings in `STARK_…` variables, by field."""
    found: dict[str, object] = {}
    for option in OPTIONS:
        text = environ.get(option.variable, "")
        if text:
            try:
                found[option.setting] = option.read(text)
            except argparse.ArgumentTypeError as error:
                raise UsageError(f"{option.variable}: {error}") from error
    return found


def check_environment(environ: Mapping[str, str], known: Collection[str]) -> None:
    """Raise UsageError for an unknown `STARK_…` variable: a typo would have no effect.

    `known`: variables that are not settings.
    """
    valid = {option.variable for option in OPTIONS} | set(known)
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable not in valid:
            near = difflib.get_close_matches(variable, valid, n=1, cutoff=MIN_SIMILARITY)
            meant = f"did you mean {near[0]}?" if near else "settings are named as flags are"
            raise UsageError(f"{variable} in the environment is not a setting: {meant}")


def _refuse_contradictions(arguments: Arguments) -> None:
    if arguments.steer and not arguments.watch:
        raise UsageError("--steer goes with --watch: it lets the page send directives to the run")
    if arguments.join:
        _refuse_beside_join(arguments)
        return
    if arguments.max_wait is not None:
        raise UsageError("--max-wait goes with --join: only a machine that joins waits for a run")
    if arguments.resume is not None:
        for flag, value in (
            ("--task", arguments.tasks),
            ("--run-dir", arguments.run_dir),
            ("--references", arguments.references),
            ("--shapes", arguments.shapes),
            ("--dtype", arguments.dtypes),
            ("--backward", arguments.backward),
            ("--import-path", arguments.settings.get("rules.import_paths")),
        ):
            if value:
                raise UsageError(f"--resume goes on with the run's own tasks: leave out {flag}")
    elif not arguments.tasks:
        raise UsageError("nothing to do: give --task FILE, --resume runs/NAME or --join TICKET")


def _refuse_beside_join(arguments: Arguments) -> None:
    if arguments.tasks or arguments.resume is not None:
        raise UsageError("--join lends this machine to a run elsewhere: leave out --task, --resume")
    if (
        any((arguments.shapes, arguments.dtypes, arguments.backward))
        or arguments.references is not None
    ):
        raise UsageError(
            "--join obeys the run's own tasks: leave out --shapes, --dtype, --backward and"
            " --references"
        )
    options = {option.setting: option.flag for option in OPTIONS}
    for setting in arguments.settings:
        if setting not in LENDABLE_FLAGS:
            flag = options.get(setting, "--" + setting.replace("_", "-"))
            raise UsageError(f"--join obeys the run's own settings: leave out {flag}")
    if arguments.metrics:
        raise UsageError("--metrics goes with the run's own supervisor, which knows all machines")
    if arguments.watch:
        raise UsageError("--watch goes with the run's own supervisor, which has its run folder")
    if arguments.json:
        raise UsageError("--join has no results to print: leave out --json")


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog=COMMAND,
        usage="\n       ".join(
            f"%(prog)s {what} [OPTION ...]"
            for what in ("--task FILE [--task FILE ...]", "--resume DIR", "--join TICKET")
        ),
        description="Turn PyTorch task files into faster, verified kernels.",
        epilog="Exit status: 0 found a candidate that is confirmed to be faster, 1 found none,"
        " 2 usage, 3 stopped and can be resumed, 4 a fault.",
        allow_abbrev=False,
    )
    parser.refusal = UsageError
    parser.add_argument("--version", action="version", version=f"stark-kernels {VERSION}")
    groups = {section: parser.add_argument_group(section) for section in HelpSection}
    _add_task_arguments(groups[HelpSection.TASK])
    _add_run_arguments(groups[HelpSection.RUN])
    for option in OPTIONS:
        groups[option.section].add_argument(
            option.flag,
            dest=option.setting,
            type=option.read,
            metavar=option.metavar,
            help=option.help,
        )
    groups[HelpSection.JUDGE].add_argument(
        "--require-custom-kernel",
        action="store_true",
        help="reject what computes with the library alone, falls back, or never runs its kernel",
    )
    _add_joining_arguments(groups[HelpSection.MACHINES])
    _add_output_arguments(groups[HelpSection.OUTPUT])
    return parser


def _add_task_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--task",
        action="append",
        type=path_name,
        default=[],
        metavar="FILE",
        help="a module in KernelBench's format; may be given several times",
    )
    group.add_argument(
        "--shapes",
        type=path_name,
        metavar="FILE",
        help="the task's cases (default: NAME.cases.toml)",
    )
    group.add_argument(
        "--dtype",
        type=nonempty_word,
        metavar="WORD",
        help="judge the task in this dtype: float16, bfloat16, float32, float64, or several",
    )
    group.add_argument(
        "--backward", action="store_true", help="judge forward and backward, as one call"
    )
    group.add_argument(
        "--import-path",
        action="append",
        type=nonempty_word,
        metavar="DIR",
        help="a folder with a package that the tasks import; candidates can read it",
    )


def _add_run_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--resume", type=path_name, metavar="DIR", help="continue the run in this folder"
    )
    group.add_argument(
        "--run-dir",
        type=path_name,
        metavar="DIR",
        help="the run's folder (default: runs/TASK-TIME)",
    )
    group.add_argument(
        "--references",
        type=path_name,
        metavar="RUN",
        help="take the references that another run has measured on the same kind of device",
    )
    group.add_argument(
        "--until-idle",
        action="store_true",
        help="end as soon as the roles that run here can do nothing more",
    )
    group.add_argument(
        "--first-looks",
        action="store_true",
        help="like --until-idle, but leave confirmations and baselines to a later start",
    )
    group.add_argument(
        "--keep-refused",
        action="store_true",
        help="keep the run folder also when no task can be measured",
    )


def _add_joining_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--join",
        type=nonempty_word,
        metavar="TICKET",
        help="lend this machine to the run that made the ticket",
    )
    group.add_argument(
        "--max-wait",
        type=positive_number,
        metavar="M",
        help="with --join: leave when the run is not heard of for M minutes (default: 60)",
    )


def _add_output_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", action="store_true", help="print result.json alone on stdout")
    group.add_argument(
        "--metrics",
        type=nonempty_word,
        metavar="HOST:PORT",
        help="serve figures for Prometheus at /metrics",
    )
    group.add_argument(
        "--watch", action="store_true", help="show the run as a page; its address is printed"
    )
    group.add_argument(
        "--steer", action="store_true", help="with --watch: let the page send directives to the run"
    )
