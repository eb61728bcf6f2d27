"""The settings of a run, as flags, `stark.toml` and the environment determine them.

`stark.toml` in the run folder holds the settings in use; every actor reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from protocol.atomic_file import write_atomically
from protocol.prices import Price
from protocol.values import WORKER_ROLES, BackendChoice, DeviceKind, Role, Value

FILE_NAME = "stark.toml"
# Around the settings: they tell a truncated file from one of an older version.
FILE_HEAD, FILE_TAIL = "# the settings that this run uses\n", "# end\n"
MODULES = "tasks/modules"  # in a run folder: NAME/… holds the modules that the task NAME imports
LOCAL_ADDRESS = "ipc://coordinator.sock"  # relative: actors run in the run folder

# The names that `--strategy` and `--policy` take.  The coordinator's tables hold a class for each:
# `actors/coordinator/search/strategy.py` and `actors/coordinator/search/policy.py`.
StrategyName = Literal["stark", "one-answer", "search", "team", "sampling", "reflexion"]
PolicyName = Literal["epsilon-greedy", "greedy", "mcts", "evolutionary"]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
TREE_SEARCH_STRATEGIES = ("stark", "one-answer", "search")  # a policy selects the node that grows
# How models are asked: "compact" requests with answers as edits, or the paper's own requests.
PromptStyle = Literal["paper", "compact"]
PROMPT_STYLES: tuple[PromptStyle, ...] = get_args(PromptStyle)
DEFAULT_PROMPTS: PromptStyle = "compact"  # of a new run
# What compact requests know besides the method's own parts; `facts`, `profile`, `cards`: it alone.
Knowledge = Literal["none", "facts", "profile", "cards", "all"]
KNOWLEDGE: tuple[Knowledge, ...] = get_args(Knowledge)
Lessons = Literal["none", "accepted"]
LESSONS: tuple[Lessons, ...] = get_args(Lessons)
Precheck = Literal["off", "on"]
PRECHECK: tuple[Precheck, ...] = get_args(Precheck)
COMPUTED_MODELS = ("recipes", "script:", "replay:")  # the same work always has the same answer
LEDGER_STRATEGIES = ("stark", "one-answer")  # agents see all attempts; those of others do not
SINGLE_AGENT_STRATEGIES = ("search", "sampling", "reflexion")  # the coder is the only agent

MAX_COUNT = 1_000_000_000  # of any count or time: columns, draws and waits allow it
MAX_IN_FLIGHT = 100_000  # all of them are offered at once
MAX_SEED = 2**63 - 1  # fits into a column of run.db

PositiveInt = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
ExpansionCount = Annotated[int, msgspec.Meta(ge=1, le=MAX_IN_FLIGHT)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEED)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
SandboxLevel = Annotated[int, msgspec.Meta(ge=0, le=3)]
NonNegativeFloat = Annotated[float, msgspec.Meta(ge=0, le=MAX_COUNT)]  # excludes NaN and infinity
PositiveFloat = Annotated[float, msgspec.Meta(gt=0, le=MAX_COUNT)]


class SearchSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The method's numbers; `docs/method.md` has the symbols."""

    budget: PositiveInt = 30  # B, attempts a task
    epsilon: Fraction = 0.3
    root_children: PositiveInt = 5  # n_root
    failed_children: NonNegativeInt = 3  # n_child: a node with more children, all failed, is pruned
    leaders: NonNegativeInt = 2  # r
    window_cap: NonNegativeInt = 5
    in_flight: ExpansionCount = 1  # K, expansions under way at once, a task
    # The other strategies' numbers.
    repairs: NonNegativeInt = 1  # team: repairs in a row of a failed sample
    memory: NonNegativeInt = 3  # reflexion: reflections shown, the latest ones
    # The other policies' numbers.
    mcts_c: NonNegativeFloat = 0.5  # weight of exploration; rewards are between 0 and 1
    mcts_width: PositiveInt = 5  # children of a node before the walk goes below it
    population: PositiveInt = 10  # evolutionary: the youngest correct nodes
    tournament: PositiveInt = 3  # evolutionary: nodes drawn from them; the fastest grows


class Limits(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one candidate; beyond one of them its whole process tree is killed."""

    build_s: PositiveFloat = 180.0
    import_s: PositiveFloat = 60.0
    check_s: PositiveFloat = 120.0
    time_s: PositiveFloat = 5.0  # or until the ratio's 95 % interval is under 1 %
    memory_gib: PositiveFloat = 8.0
    output_kib: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 64


Precision = Literal["task", "tf32", "float16", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


ProfileWhen = Literal["none", "winners", "contenders"]
PROFILE_WHEN: tuple[ProfileWhen, ...] = get_args(ProfileWhen)


class JudgeRules(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the judge accepts, and which baselines it measures."""

    precision: Precision = "task"  # the lowest precision that may count as correct
    require_custom_kernel: bool = False  # reject a candidate that only calls the library
    baselines: Literal["eager", "all"] = "eager"  # "all": torch.compile's two modes, too
    # Which correct candidates are run under profilers; a crash is located unless it is "none".
    profile: ProfileWhen = "contenders"
    # Folders of the user's packages that the tasks import: children may read them.
    import_paths: tuple[str, ...] = ()


Effort = Literal["", "low", "medium", "high", "xhigh", "max"]  # "": the model's own
EFFORTS: tuple[Effort, ...] = get_args(Effort)[1:]


class Settings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of one run."""

    tasks: tuple[str, ...] = ()  # names; the sources are in tasks/NAME.py
    model: str = "recipes"
    model_reason: str = ""  # why this model, for people
    planner_model: str = ""
    coder_model: str = ""
    debugger_model: str = ""
    base_url: str = ""
    max_tokens: PositiveInt = 16_000  # of one reply, thinking included
    at_once: PositiveInt = 8  # calls under way at once, in each agent process
    # Preferences: a call is repeated without one that the model refuses, and its row says so.
    effort: Effort = ""
    planner_effort: Effort = ""
    coder_effort: Effort = ""
    debugger_effort: Effort = ""
    # None: the method's, 0.8 to plan and 0.1 to code.
    planner_temperature: NonNegativeFloat | None = None
    coder_temperature: NonNegativeFloat | None = None
    debugger_temperature: NonNegativeFloat | None = None
    ask_person: NonNegativeFloat = 0.0  # seconds that a person has for each request; 0: none
    strategy: StrategyName = "stark"
    policy: PolicyName = "epsilon-greedy"
    # A run of an older version has no such line: it asked, and asks on, in the paper's style.
    prompts: PromptStyle = "paper"
    knowledge: Knowledge = "all"  # of compact requests
    lessons: Lessons = "none"  # lines of earlier runs that a person accepted
    # on: a candidate that fails before it is timed goes back to its agent once.
    precheck: Precheck = "off"
    seed: Seed = 0
    device: DeviceKind = "cpu"
    backend: BackendChoice = "cpp"
    planners: NonNegativeInt = 1
    coders: NonNegativeInt = 1
    debuggers: NonNegativeInt = 1
    evaluators: NonNegativeInt = 1
    tasks_at_once: NonNegativeInt = 0  # tasks whose trees grow at the same time; 0: all
    max_cost: NonNegativeFloat | None = None  # US dollars
    max_minutes: PositiveFloat | None = None
    until_idle: bool = False
    first_looks: bool = False  # until idle, without confirmations and baselines
    min_sandbox: SandboxLevel = 1
    launch: str = ""  # "slurm:/path/to/file.toml": evaluators from a fleet
    listen: str = LOCAL_ADDRESS  # or the address where other machines connect, too
    beat_s: PositiveFloat = 5.0
    lease_s: PositiveFloat = 15.0
    search: SearchSettings = SearchSettings()
    limits: Limits = Limits()
    rules: JudgeRules = JudgeRules()
    # Of this run's models; a user's stark.toml overrides the listed prices.
    prices: dict[str, Price] = msgspec.field(default_factory=dict)

    @property
    def local_address(self) -> str:
        """The address where this machine's own actors connect."""
        return self.listen if self.listen.startswith("ipc://") else LOCAL_ADDRESS

    @property
    def public_address(self) -> tuple[str, ...]:
        """The addresses where other machines connect, with keys."""
        return () if self.listen.startswith("ipc://") else (self.listen,)

    @property
    def may_have_other_devices(self) -> bool:
        """Whether a device may join that is not there yet: of another machine or evaluator."""
        return bool(self.public_address or self.launch or self.evaluators > 1)

    @property
    def ends_when_idle(self) -> bool:
        """Whether this start ends once its own processes can do nothing more."""
        return self.until_idle or self.first_looks

    @property
    def local_worker_count(self) -> int:
        """The number of worker processes on this machine."""
        return sum(map(self.process_count, WORKER_ROLES))

    def process_count(self, role: Role) -> int:
        """Return the number of a role's processes on this machine."""
        return {
            Role.PLANNER: self.planners,
            Role.CODER: self.coders,
            Role.DEBUGGER: self.debuggers,
            Role.EVALUATOR: self.evaluators,
        }.get(role, 0)

    def is_served(self, role: Role) -> bool:
        """Whether the run's own command brings processes of a role: here, or by `--launch`."""
        return self.process_count(role) > 0 or (role is Role.EVALUATOR and bool(self.launch))

    @property
    def has_ledger(self) -> bool:
        """Whether requests show all attempts of their task in a line each."""
        return self.prompts == "compact" and self.strategy in LEDGER_STRATEGIES

    @property
    def requested_policy(self) -> str | None:
        """The policy that selects nodes; None where the strategy has its own rule."""
        return self.policy if self.strategy in TREE_SEARCH_STRATEGIES else None

    @property
    def required_roles(self) -> tuple[Role, ...]:
        """The workers without which the strategy can't go on."""
        if self.strategy in SINGLE_AGENT_STRATEGIES:
            return (Role.CODER, Role.EVALUATOR)
        if self.strategy == "one-answer":
            return (Role.CODER, Role.DEBUGGER, Role.EVALUATOR)
        return WORKER_ROLES

    def model_of(self, role: Role) -> str:
        """Return the name of an agent role's model."""
        own = {
            Role.PLANNER: self.planner_model,
            Role.CODER: self.coder_model,
            Role.DEBUGGER: self.debugger_model,
        }
        return own.get(role, "") or self.model

    def effort_of(self, role: Role) -> Effort:
        """Return the effort of an agent role's model."""
        own: dict[Role, Effort] = {
            Role.PLANNER: self.planner_effort,
            Role.CODER: self.coder_effort,
            Role.DEBUGGER: self.debugger_effort,
        }
        return own.get(role, "") or self.effort

    def temperature_of(self, role: Role) -> float | None:
        """Return the temperature that the user set for an agent's role; None: the method's."""
        own = {
            Role.PLANNER: self.planner_temperature,
            Role.CODER: self.coder_temperature,
            Role.DEBUGGER: self.debugger_temperature,
        }
        return own.get(role)


def read(run_dir: Path) -> Settings:
    """Return the settings in `run_dir`; raise ValueError with one line when they can't be used."""
    path = run_dir / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
        if text.startswith(FILE_HEAD) and not text.endswith(FILE_TAIL):
            # A missing setting would silently have its default.
            raise ValueError(f"it is cut short: its last line was {FILE_TAIL.strip()!r}")
        return parse(text)
    except OSError as error:
        raise ValueError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse(text: str) -> Settings:
    """Return the settings in a TOML text; raise ValueError when a name, type or range is wrong."""
    return msgspec.toml.decode(text, type=Settings)


def write(run_dir: Path, settings: Settings) -> None:
    """Write `stark.toml` atomically."""
    write_atomically(run_dir / FILE_NAME, f"{FILE_HEAD}{to_toml(settings)}{FILE_TAIL}")


def to_toml(settings: Settings) -> str:
    """Return `settings` as TOML: plain fields first, then one table for each group."""
    return "".join(_table("", settings)).lstrip("\n")


def _table(name: str, group: msgspec.Struct) -> Iterator[str]:
    """Yield a group's lines, then those of the groups inside it."""
    inner: list[tuple[str, msgspec.Struct]] = []
    if name:
        yield f"\n[{name}]\n"
    for field in group.__struct_fields__:
        value = getattr(group, field)
        path = f"{name}.{field}" if name else field
        if isinstance(value, msgspec.Struct):
            inner.append((path, value))
        elif isinstance(value, dict):
            inner += [(f"{path}.{json.dumps(key)}", row) for key, row in value.items()]
        elif value is not None:  # TOML has no null: an absent name means that it was not given
            # JSON's strings, numbers, booleans and arrays are TOML's too.
            yield f"{field} = {json.dumps(value, ensure_ascii=False)}\n"
    for path, value in inner:
        yield from _table(path, value)
