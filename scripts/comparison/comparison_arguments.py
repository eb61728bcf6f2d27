"""The command line of `compare.py`; each usage error is one line (`UsageError`)."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from actors.cli import OneLineParser, UsageError
from actors.commands import typed_command
from actors.supervisor.cli import gpu_discovery
from actors.supervisor.cli.flags import Arguments
from actors.supervisor.cli.setting_options import OPTIONS
from protocol.settings import MAX_SEED
from scripts.comparison.earlier_rows import FLAG as EARLIER
from scripts.tables.result_rows import short_model
from scripts.tables.run_description import OF_ONE_MACHINE
from scripts.tables.table_arguments import (
    BY_NAME,
    FIRST_LOOKS,
    FIRST_LOOKS_HELP,
    add_run_settings,
    setting_text,
    setting_texts,
)

COMMAND = typed_command("compare")
MAX_RUNS = 200  # of one comparison
SEED = "seed"
Phase = Literal["", "agents", "evaluators", "table"]
PHASES: tuple[Phase, ...] = get_args(Phase)[1:]
PAGE_TEXTS = {  # flags: what no run stores
    "--answered-by": "for the page: what answered behind --base-url",
    "--commit": "for the page: of the judge",
}
WORKERS = ("planners", "coders", "debuggers", "evaluators")


@dataclass(frozen=True, kw_only=True)
class Variation:
    """One combination of the values that vary."""

    texts: tuple[tuple[str, str], ...]  # (setting, its text)

    @property
    def label(self) -> str:
        """The values, as a person names them: `strategy=search, epsilon=0.1`."""
        pairs = (f"{BY_NAME[setting].flag[2:]}={text}" for setting, text in self.texts)
        return ", ".join(pairs) or "as given"

    @property
    def folder(self) -> str:
        """The label as the name of a folder."""
        return re.sub(r"[^\w.=-]+", "_", self.label)


@dataclass(frozen=True, kw_only=True)
class RunChoice:
    """One run of a comparison: a variation with one seed."""

    variation: Variation
    seed: int
    texts: dict[str, str]  # all settings, as typed; a phase's numbers of processes
    phase: Phase = ""
    first_looks: bool = False

    @property
    def folder(self) -> str:
        """The run's folder below the results."""
        return f"{self.variation.folder}/seed-{self.seed}"

    @property
    def label(self) -> str:
        """The variation and the seed, for a person."""
        return f"{self.variation.label}, seed {self.seed}"

    def supervisor_arguments(self) -> Arguments:
        """Return the supervisor's arguments."""
        settings: dict[str, object] = {
            name: BY_NAME[name].read(text) for name, text in self.texts.items()
        }
        settings |= {"until_idle": True} if self.phase else {}
        return Arguments(settings=settings | ({"first_looks": True} if self.first_looks else {}))

    def argv(self, only: Sequence[str] | None = None) -> list[str]:
        """Return the supervisor's flags; `only`: of these settings."""
        named = (one for one in self.texts.items() if only is None or one[0] in only)
        flags = [word for setting, text in named for word in (BY_NAME[setting].flag, text)]
        flags += ["--until-idle"] if self.phase else []
        return [*flags, FIRST_LOOKS] if self.first_looks else flags


@dataclass(frozen=True, kw_only=True)
class ComparisonArguments:
    """The values of the command line."""

    tasks: tuple[Path, ...]
    variations: tuple[Variation, ...]
    seeds: tuple[int, ...]
    results: Path
    texts: dict[str, str] = field(default_factory=dict)  # settings that do not vary, as typed
    phase: Phase = ""  # the processes that run now; "": all
    first_looks: bool = False  # these starts confirm nothing
    references: Path | None = None  # a run that has measured the tasks
    earlier: Path | None = None  # rows of seeds whose runs are gone
    vary: tuple[str, ...] = ()  # as typed
    answered_by: str = ""  # what no run stores, for the page
    commit: str = ""

    @property
    def repeating_command(self) -> str:
        """The command without what is this machine's: paths, addresses, phases, processes."""
        words = [word for path in self.tasks for word in ("--task", path.name)]
        words += [word for one in self.vary for word in ("--vary", one)]
        words += ["--seeds", ",".join(map(str, self.seeds))]
        for name, text in self.texts.items():
            if name not in OF_ONE_MACHINE:
                words += [BY_NAME[name].flag, short_model(text)]
        words += [EARLIER, self.earlier.name] if self.earlier is not None else []
        return f"{COMMAND} {shlex.join(words)}"

    def runs(self) -> list[RunChoice]:
        """Return all runs, seed by seed, so that a stopped comparison has whole seeds."""
        return [
            RunChoice(
                variation=variation,
                seed=seed,
                texts={**self.texts, **dict(variation.texts), SEED: str(seed)},
                phase=self.phase,
                first_looks=self.first_looks,
            )
            for seed in self.seeds
            for variation in self.variations
        ]


def parse_arguments(argv: Sequence[str]) -> ComparisonArguments:
    """Return the parsed `argv`; raise UsageError with one line when it is not valid."""
    parsed = vars(_parser().parse_args(argv))
    texts = setting_texts(parsed, COMMAND)
    if not parsed["task"]:
        raise UsageError("nothing to compare on: give --task FILE, several times if you like")
    if SEED in texts:
        raise UsageError("a comparison has several seeds: give --seeds instead of --seed")
    variations = _variations(parsed["vary"], texts)
    if len({one.folder for one in variations}) < len(variations):
        raise UsageError("--vary: two variations have the same name in a folder; use other values")
    if len(variations) * len(parsed["seeds"]) > MAX_RUNS:
        count = len(variations) * len(parsed["seeds"])
        raise UsageError(f"{count} runs are too many for one comparison (at most {MAX_RUNS})")
    return ComparisonArguments(
        tasks=tuple(parsed["task"]),
        variations=variations,
        seeds=parsed["seeds"],
        results=parsed["results"],
        texts={**texts, **_phase_texts(parsed["phase"], texts)},
        phase=parsed["phase"],
        first_looks=parsed["first_looks"],
        references=parsed["references"],
        earlier=parsed["earlier"],
        vary=tuple(parsed["vary"]),
        answered_by=parsed["answered_by"],
        commit=parsed["commit"],
    )


def _phase_texts(phase: Phase, texts: dict[str, str]) -> dict[str, str]:
    """Return the numbers of processes in a phase; raise UsageError for one that is not its own.

    They are named at each start, since a resumed run has those of its last phase.
    """
    if phase in ("", "table"):
        return {}
    own = ("evaluators",) if phase == "evaluators" else WORKERS[:3]
    for name in WORKERS:
        if name in texts and name not in own:
            raise UsageError(f"--phase {phase}: leave out --{name}: none of them runs in it")
    cards = max(1, len(gpu_discovery.visible_gpus(os.environ)))
    counts = dict.fromkeys(WORKERS[:3], "1") | {"evaluators": str(cards)}
    return {name: texts.get(name, counts[name]) if name in own else "0" for name in WORKERS}


def _variations(given: Sequence[str], texts: dict[str, str]) -> tuple[Variation, ...]:
    by_flag = {option.flag[2:]: option for option in OPTIONS}
    choices: dict[str, list[tuple[str, str]]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        option = by_flag.get(name.strip().removeprefix("--"))
        if option is None or not equals or option.setting == SEED:
            raise UsageError(
                f"--vary {text}: expected a setting and its values, such as"
                " strategy=stark,search; seeds have --seeds"
            )
        if option.setting in choices or option.setting in texts:
            raise UsageError(f"--vary {text}: {option.flag} is given twice")
        names = [value.strip() for value in values.split(",")]
        if len(set(names)) < len(names):
            raise UsageError(f"--vary {text}: a value is named twice")
        choices[option.setting] = [
            (option.setting, setting_text(option, value, COMMAND)) for value in names
        ]
    return tuple(Variation(texts=one) for one in itertools.product(*choices.values()))


def _seeds(text: str) -> tuple[int, ...]:
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last - first >= MAX_RUNS:
            raise argparse.ArgumentTypeError(f"{text} are too many: at most {MAX_RUNS} runs")
        if last < first or last > MAX_SEED:
            raise argparse.ArgumentTypeError(f"expected numbers like 0,1,2 or 0-4, got {text!r}")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"a seed is named twice in {text!r}")
    return tuple(seeds)


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog=COMMAND,
        usage="%(prog)s --task FILE [--task FILE ...] [--vary NAME=A,B] [OPTION ...]",
        description="Compare settings (strategies, policies, models, …) on tasks, over seeds.",
        epilog="Exit status: 0 the table is complete, 2 usage, 3 stopped (the same command"
        " continues), 4 a fault.",
        allow_abbrev=False,
    )
    parser.refusal = UsageError
    _add_comparison_arguments(parser)
    parser.add_argument(
        "--phase", choices=PHASES, default="",
        help="start only these processes, until they have nothing left to do; table: start none",
    )  # fmt: skip
    parser.add_argument(FIRST_LOOKS, action="store_true", help=FIRST_LOOKS_HELP)
    for flag, text in PAGE_TEXTS.items():
        parser.add_argument(flag, default="", metavar="TEXT", help=text)
    parser.add_argument(
        "--references", type=Path, metavar="RUN", help="a run that has measured the tasks"
    )
    parser.add_argument(
        EARLIER, type=Path, metavar="FILE",
        help="an earlier comparison.json: its seeds count, too, without their runs",
    )  # fmt: skip
    add_run_settings(parser)
    return parser


def _add_comparison_arguments(parser: OneLineParser) -> None:
    parser.add_argument(
        "--task", type=Path, action="append", default=[], metavar="FILE",
        help="a module in KernelBench's format; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="NAME=A,B",
        help="a setting and its values; several --vary give all combinations",
    )
    parser.add_argument(
        "--seeds", type=_seeds, default=(0, 1, 2), metavar="LIST",
        help="numbers such as 0-2 or 1,5 (default: 0-2)",
    )  # fmt: skip
    parser.add_argument(
        "--results", type=Path, default=Path("results/comparison"), metavar="DIR",
        help="the folder of the results (default: results/comparison)",
    )  # fmt: skip
