"""The table of settings: the flag of each, its `STARK_…` variable, how its text is read, its help.

`scripts/kernelbench.py` and `scripts/compare.py` take the same settings and pass them on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from actors.supervisor.cli.option_readers import (
    launch_file,
    nonempty_word,
    one_of,
    positive_number,
    price_file,
    sandbox_level,
    whole_number,
)
from protocol.settings import (
    EFFORTS,
    KNOWLEDGE,
    LESSONS,
    MAX_IN_FLIGHT,
    MAX_SEED,
    POLICIES,
    PRECHECK,
    PRECISIONS,
    PROFILE_WHEN,
    PROMPT_STYLES,
    STRATEGIES,
)
from protocol.values import BACKEND_CHOICES

PREFIX = "STARK_"  # of settings in the environment


class HelpSection(StrEnum):
    """The sections of `--help`, in their order."""

    TASK = "the task"
    RUN = "the run"
    MODELS = "models and their cost"
    SEARCH = "the search, and what models are shown"
    JUDGE = "the judge"
    PROCESSES = "processes on this machine"
    MACHINES = "other machines"
    OUTPUT = "output"


@dataclass(frozen=True, kw_only=True)
class SettingOption:
    """One setting: its flag, its field in Settings (`search.budget`), the reader of its text."""

    section: HelpSection
    flag: str
    setting: str
    read: Callable[[str], object]
    metavar: str
    help: str

    @property
    def variable(self) -> str:
        """The variable of the environment that sets it, too."""
        return PREFIX + self.flag.removeprefix("--").replace("-", "_").upper()


# Field in Settings, reader, metavar, help; the flag is the field's last word.
_Row = tuple[str, Callable[[str], object], str, str]
_ROWS: dict[HelpSection, tuple[_Row, ...]] = {
    HelpSection.RUN: (
        ("search.budget", whole_number(1), "N", "attempts for each task (default: 30)"),
        ("seed", whole_number(0, MAX_SEED), "N", "seed of every random choice (default: 0)"),
        ("max_minutes", positive_number, "M", "stop after M minutes; --resume continues the run"),
    ),
    HelpSection.MODELS: (
        (
            "model",
            nonempty_word,
            "NAME",
            "claude-…, recipes (the rule book), script:FILE, replay:RUN, or a name that --base-url"
            " serves (default: a Claude model if ANTHROPIC_API_KEY is set, else recipes)",
        ),
        ("planner_model", nonempty_word, "NAME", "another model for the planner"),
        ("coder_model", nonempty_word, "NAME", "another model for the coder"),
        ("debugger_model", nonempty_word, "NAME", "another model for the debugger"),
        ("base_url", nonempty_word, "URL", "a server that speaks the Messages API"),
        ("effort", one_of(*EFFORTS), "WORD", f"how hard models think: {', '.join(EFFORTS)}"),
        (
            "at_once",
            whole_number(1),
            "N",
            "calls that an agent makes at the same time (default: 8)",
        ),
        ("max_cost", positive_number, "USD", "make no call that could pass this cap"),
        ("prices", price_file, "FILE", "prices of models, as in protocol/prices.toml"),
        (
            "ask_person",
            positive_number,
            "SECONDS",
            "how long a person may answer a request, before the model is asked (default: 0)",
        ),
    ),
    HelpSection.SEARCH: (
        (
            "strategy",
            one_of(*STRATEGIES),
            "WORD",
            f"which agents make an attempt: {', '.join(STRATEGIES)} (default: stark)",
        ),
        (
            "policy",
            one_of(*POLICIES),
            "WORD",
            f"which node grows next: {', '.join(POLICIES)} (default: epsilon-greedy)",
        ),
        (
            "search.in_flight",
            whole_number(1, MAX_IN_FLIGHT),
            "K",
            "attempts of a task under way at once (default: as many as keep evaluators busy)",
        ),
        (
            "tasks_at_once",
            whole_number(1),
            "N",
            "tasks that grow at the same time (default: 4 for each evaluator)",
        ),
        (
            "prompts",
            one_of(*PROMPT_STYLES),
            "WORD",
            "compact: short requests, answers as edits; paper: the paper's requests (default:"
            " compact)",
        ),
        (
            "knowledge",
            one_of(*KNOWLEDGE),
            "WORD",
            f"what compact requests tell besides the attempts: {', '.join(KNOWLEDGE)} (default:"
            " all)",
        ),
        (
            "lessons",
            one_of(*LESSONS),
            "WORD",
            "accepted: compact requests show what earlier runs taught (default: none)",
        ),
        (
            "precheck",
            one_of(*PRECHECK),
            "WORD",
            "on: a model mends a candidate that fails once, before it counts as an attempt"
            " (default: on for language models, with compact requests)",
        ),
    ),
    HelpSection.JUDGE: (
        (
            "device",
            one_of("cuda", "cpu"),
            "WORD",
            "cuda or cpu (default: cuda where there is a GPU)",
        ),
        (
            "backend",
            one_of(*BACKEND_CHOICES),
            "WORD",
            f"language of the kernels: {', '.join(BACKEND_CHOICES)} (default: the device's)",
        ),
        (
            "min_sandbox",
            sandbox_level,
            "LEVEL",
            "refuse a machine with a weaker sandbox (default: 1)",
        ),
        (
            "rules.precision",
            one_of(*PRECISIONS),
            "WORD",
            "lowest precision that may count as correct: "
            f"{', '.join(PRECISIONS)} (default: task, its own)",
        ),
        (
            "rules.baselines",
            one_of("eager", "all"),
            "WORD",
            "all: measure torch.compile, too (default: all on a GPU, else eager)",
        ),
        (
            "rules.profile",
            one_of(*PROFILE_WHEN),
            "WHICH",
            "candidates that run under profilers: none, winners or contenders (default:"
            " contenders)",
        ),
    ),
    HelpSection.PROCESSES: (
        ("evaluators", whole_number(0), "N", "evaluator processes (default: one for each GPU)"),
        ("planners", whole_number(0), "N", "planner processes (default: 1)"),
        ("coders", whole_number(0), "N", "coder processes (default: 1)"),
        ("debuggers", whole_number(0), "N", "debugger processes (default: 1)"),
    ),
    HelpSection.MACHINES: (
        ("listen", nonempty_word, "ADDR", "tcp://ADDR:PORT where other machines join the run"),
        (
            "launch",
            launch_file,
            "KIND:FILE",
            "start evaluators by slurm, k8s, pbs, lsf or ssh; FILE has the options",
        ),
    ),
}


def _flag_of(setting: str) -> str:
    return "--" + setting.rpartition(".")[2].replace("_", "-")


OPTIONS = tuple(
    SettingOption(
        section=section,
        flag=_flag_of(setting),
        setting=setting,
        read=read,
        metavar=metavar,
        help=text,
    )
    for section, rows in _ROWS.items()
    for setting, read, metavar, text in rows
)
