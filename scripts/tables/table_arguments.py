"""The command line of `kernelbench.py`; each usage error is one line (`UsageError`).

Its own flags choose problems and a folder.  All settings of a run are the supervisor's flags, which
are read by the supervisor's table of options and passed on.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors.cli import OneLineParser, UsageError
from actors.commands import typed_command
from actors.supervisor.cli.flags import Arguments
from actors.supervisor.cli.setting_options import OPTIONS, SettingOption
from protocol.settings import STRATEGIES, TREE_SEARCH_STRATEGIES

COMMAND = typed_command("kernelbench")
FIRST_LOOKS = "--first-looks"
FIRST_LOOKS_HELP = "end without confirmations and baselines: a later start makes them"
BY_NAME = {option.setting: option for option in OPTIONS}


@dataclass(frozen=True, kw_only=True)
class TableArguments:
    """The values of the command line."""

    root: Path | None = None
    levels: tuple[int, ...] = ()
    problem_selection: str = "representative"
    results: Path | None = None
    strategies: tuple[str, ...] = ()  # to be run; empty where folders are compared
    folders: tuple[Path, ...] = ()  # to be compared as they are
    texts: dict[str, str] = field(default_factory=dict)  # the supervisor's settings, as typed
    require_custom_kernel: bool = False
    first_looks: bool = False  # this start confirms nothing

    def supervisor_arguments(self, strategy: str) -> Arguments:
        """Return the supervisor's arguments for one strategy."""
        given: dict[str, object] = {
            setting: BY_NAME[setting].read(text) for setting, text in self._texts(strategy).items()
        }
        if self.require_custom_kernel:
            given["rules.require_custom_kernel"] = True
        if self.first_looks:
            given["first_looks"] = True
        return Arguments(settings=given)

    def arguments(self, strategy: str, only: Sequence[str] | None = None) -> list[str]:
        """Return the supervisor's flags; `only`: of these settings."""
        argv = []
        for setting, text in self._texts(strategy).items():
            if only is None or setting in only:
                argv += [BY_NAME[setting].flag, text]
        if self.require_custom_kernel and only is None:
            argv.append("--require-custom-kernel")
        return [*argv, FIRST_LOOKS] if self.first_looks else argv

    def _texts(self, strategy: str) -> dict[str, str]:
        texts = {**self.texts, "strategy": strategy}
        if strategy not in TREE_SEARCH_STRATEGIES and any(
            other in TREE_SEARCH_STRATEGIES for other in self.strategies
        ):
            texts.pop("policy", None)  # only for the strategies that use one
        return texts

    @property
    def results_folder(self) -> Path:
        """The folder of the results: the same command finds the same folder."""
        if self.results is not None:
            return self.results
        levels = "+".join(map(str, self.levels))
        return (
            Path("results")
            / f"level{levels}-{self.problem_selection.replace(' ', '').replace(',', '+')}"
        )


def parse_arguments(argv: Sequence[str]) -> TableArguments:
    """Return the parsed `argv`; raise UsageError with one line when it is not valid."""
    parsed = vars(_parser().parse_args(argv))
    texts = setting_texts(parsed, COMMAND)
    strategies, folders = _compared(parsed["compare"])
    if strategies and "strategy" in texts:
        raise UsageError("--compare names the strategies: leave out --strategy")
    if folders:
        _refuse_with_folders(parsed, texts)
    else:
        _require_choice(parsed)
    return TableArguments(
        root=parsed["root"],
        levels=tuple(parsed["level"]),
        problem_selection=parsed["problems"],
        results=parsed["results"],
        strategies=() if folders else strategies or (texts.pop("strategy", "stark"),),
        folders=folders,
        texts=texts,
        require_custom_kernel=parsed["require_custom_kernel"],
        first_looks=parsed["first_looks"],
    )


def _require_choice(parsed: dict[str, object]) -> None:
    if parsed["root"] is None:
        raise UsageError("nothing to do: give --root CHECKOUT, a checkout of KernelBench")
    if not parsed["level"]:
        raise UsageError("which level? give --level 1, or several: --level 1 --level 2")


def _refuse_with_folders(parsed: dict[str, object], texts: dict[str, str]) -> None:
    flags = [flag for flag in ("root", "level") if parsed[flag]]
    flags += [BY_NAME[setting].flag.removeprefix("--") for setting in texts]
    if flags:
        raise UsageError(f"--compare of folders runs nothing: leave out --{flags[0]}")


def _compared(text: str | None) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Return the strategies or the folders that --compare names."""
    if text is None:
        return (), ()
    names = [name.strip() for name in text.split(",")]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise UsageError(f"--compare {text}: {repeated or 'nothing'} is named twice")
    if all(name in STRATEGIES for name in names):
        return tuple(names), ()
    if all(name and Path(name).is_dir() for name in names):
        return (), tuple(map(Path, names))
    unknown = next(
        (n for n in names if n not in STRATEGIES and not (n and Path(n).is_dir())), names[0]
    )
    raise UsageError(
        f"--compare {text}: {unknown or 'nothing'} is neither a strategy ({', '.join(STRATEGIES)})"
        " nor a results folder; give strategies alone or folders alone"
    )


def setting_text(option: SettingOption, text: str, command: str) -> str:
    """Return the text of a setting as a run stores it; raise UsageError where it is not valid."""
    try:
        option.read(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{option.flag}: {error}; see {command} --help") from error
    kind, colon, rest = text.partition(":")
    # The supervisor stores a file's whole path; so must the command that resumes its run.
    if option.setting.endswith("model") and colon and kind in ("script", "replay"):
        return f"{kind}:{Path(rest).resolve()}"
    return text


def setting_texts(parsed: Mapping[str, Any], command: str) -> dict[str, str]:
    """Return the texts of the settings that a command line has, by their names."""
    return {
        option.setting: setting_text(option, parsed[option.setting], command)
        for option in OPTIONS
        if parsed[option.setting] is not None
    }


def _level(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number, 1 or more, got {text!r}")
    return int(text)


def add_run_settings(parser: OneLineParser) -> None:
    """Add the supervisor's settings to a command that starts runs."""
    group = parser.add_argument_group("settings of each run, as of the main command")
    for option in OPTIONS:
        group.add_argument(
            option.flag, dest=option.setting, metavar=option.metavar, help=option.help
        )


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog=COMMAND,
        usage="%(prog)s --root CHECKOUT --level N [OPTION ...]\n"
        "       %(prog)s --compare FOLDER,FOLDER [OPTION ...]",
        description="Run KernelBench problems and print the paper's tables.",
        epilog="Exit status: 0 the table is complete, 2 usage, 3 stopped (the same command"
        " continues), 4 a fault.",
        allow_abbrev=False,
    )
    parser.refusal = UsageError
    _add_problem_arguments(parser)
    parser.add_argument(
        "--compare", metavar="LIST", help="strategies to run, or results folders to compare"
    )
    parser.add_argument(
        "--require-custom-kernel",
        action="store_true",
        help="reject candidates without a kernel of their own, with a fallback or an unused kernel",
    )
    parser.add_argument(FIRST_LOOKS, action="store_true", help=FIRST_LOOKS_HELP)
    add_run_settings(parser)
    return parser


def _add_problem_arguments(parser: OneLineParser) -> None:
    parser.add_argument("--root", type=Path, metavar="CHECKOUT", help="a checkout of KernelBench")
    parser.add_argument(
        "--level",
        type=_level,
        action="append",
        default=[],
        metavar="N",
        help="a level of the checkout; may be given several times",
    )
    parser.add_argument(
        "--problems",
        metavar="LIST",
        default="representative",
        help="representative, all, or numbers such as 1,3,6-9 (default: representative)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="the folder of the results (default: results/levelN-PROBLEMS)",
    )
