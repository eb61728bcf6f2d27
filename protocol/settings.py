"""The settings of a run: what flags, `stark.toml` and the environment fix, and nothing else.

`stark.toml` in the run directory holds the settings that were really used; every actor reads it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from protocol.prices import Price
from protocol.values import WORKERS, Backend, DeviceKind, Role, Value

FILE_NAME = "stark.toml"
# Around what a run writes: a file that was cut short is told from one of an older version.
HEAD, TAIL = "# the settings that this run uses\n", "# end\n"
MODULES = "tasks/modules"  # in a run folder: NAME/… holds what lay beside the task NAME
LOCAL = "ipc://coordinator.sock"  # relative: actors run in the run directory

# The names that `--strategy` and `--policy` take.  The coordinator's tables hold a class for each:
# `actors/coordinator/strategy.py` and `actors/coordinator/policy.py`.
StrategyName = Literal["stark", "search", "team", "sampling", "reflexion"]
PolicyName = Literal["epsilon-greedy", "greedy", "mcts", "evolutionary"]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
SEARCHING = ("stark", "search")  # the strategies that ask a policy which node to grow
COMPUTED = ("recipes", "script:", "replay:")  # models that give the same answer to the same work
ALONE = ("search", "sampling", "reflexion")  # those in which one agent, the coder, does all

# No count or time is larger: what is stored, drawn from and waited for bears these.
MOST = 1_000_000_000
MOST_IN_FLIGHT = 100_000  # all of them are made and offered at once
MOST_SEED = 2**63 - 1  # what a column of run.db holds

Count = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Number = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Expansions = Annotated[int, msgspec.Meta(ge=1, le=MOST_IN_FLIGHT)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=MOST_SEED)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Level = Annotated[int, msgspec.Meta(ge=0, le=3)]  # of a sandbox
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=MOST)]  # NaN and infinity are none
Positive = Annotated[float, msgspec.Meta(gt=0, le=MOST)]


class SearchSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The method's numbers; `docs/method.md` has the symbols."""

    budget: Count = 30  # B, attempts a task
    epsilon: Share = 0.3
    root_children: Count = 5  # n_root
    failed_children: Number = 3  # n_child: more than this many, all failed, and a node is pruned
    leaders: Number = 2  # r
    window_cap: Number = 5
    in_flight: Annotated[int, msgspec.Meta(ge=1, le=MOST_IN_FLIGHT)] = (
        1  # K, expansions under way at once, a task
    )
    # The other strategies' numbers.
    repairs: Number = 1  # team: repairs in a row of a sample that failed
    memory: Number = 3  # reflexion: so many of its last reflections are shown
    # The other policies' numbers.
    mcts_c: NotNegative = 0.5  # weight of exploration; rewards lie between 0 and 1
    mcts_width: Count = 5  # children of a node before the walk goes below it
    population: Count = 10  # evolutionary: the youngest so many correct nodes are alive
    tournament: Count = 3  # evolutionary: so many of them are drawn, and the fastest grows


class Limits(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one candidate may take, enforced by killing its whole process tree."""

    build_s: Positive = 180.0
    import_s: Positive = 60.0
    check_s: Positive = 120.0
    time_s: Positive = 10.0  # or until the ratio's 95 % interval is under 1 %
    memory_gib: Positive = 8.0
    output_kib: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 64


Precision = Literal["task", "tf32", "float16", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


class Rules(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the judge accepts, and what it measures besides."""

    precision: Precision = "task"  # the lowest that may count as correct
    require_custom_kernel: bool = False  # what computes with the library alone is rejected
    baselines: Literal["eager", "all"] = "eager"  # "all": torch.compile's two modes, too


Effort = Literal["", "low", "medium", "high", "xhigh", "max"]  # "": the model's own
EFFORTS: tuple[Effort, ...] = get_args(Effort)[1:]


class Settings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a run was started with."""

    tasks: tuple[str, ...] = ()  # names; the sources lie in tasks/NAME.py
    model: str = "recipes"
    model_reason: str = ""  # why this model, for people
    planner_model: str = ""
    coder_model: str = ""
    debugger_model: str = ""
    base_url: str = ""
    max_tokens: Count = 16_000  # of one reply, thinking included
    at_once: Count = 8  # calls under way at once, in each agent process
    # Wishes: a model that refuses one is asked without it, and the stored call says so.
    effort: Effort = ""
    planner_effort: Effort = ""
    coder_effort: Effort = ""
    debugger_effort: Effort = ""
    planner_temperature: NotNegative | None = None  # None: the method's 0.8 to plan, 0.1 to code
    coder_temperature: NotNegative | None = None
    debugger_temperature: NotNegative | None = None
    strategy: StrategyName = "stark"
    policy: PolicyName = "epsilon-greedy"
    seed: Seed = 0
    device: DeviceKind = "cpu"
    backend: Backend = "cpp"
    planners: Number = 1
    coders: Number = 1
    debuggers: Number = 1
    evaluators: Number = 1
    tasks_at_once: Number = 0  # tasks whose trees grow at the same time; 0: all
    max_cost: NotNegative | None = None  # US dollars
    max_minutes: Positive | None = None
    until_idle: bool = False
    min_sandbox: Level = 1
    launch: str = ""  # "slurm:/path/to/file.toml": evaluators from a fleet
    listen: str = LOCAL  # or where other machines connect, besides
    beat_s: Positive = 5.0
    lease_s: Positive = 15.0
    search: SearchSettings = SearchSettings()
    limits: Limits = Limits()
    rules: Rules = Rules()
    # Of this run's models; what a stark.toml of yours says wins over the list.
    prices: dict[str, Price] = msgspec.field(default_factory=dict)

    @property
    def local(self) -> str:
        """Where this machine's own actors connect."""
        return self.listen if self.listen.startswith("ipc://") else LOCAL

    @property
    def public(self) -> tuple[str, ...]:
        """Where other machines connect, with keys."""
        return () if self.listen.startswith("ipc://") else (self.listen,)

    @property
    def workers(self) -> int:
        """How many processes work on this machine."""
        return sum(map(self.count, WORKERS))

    def count(self, role: Role) -> int:
        """Return how many processes of a role run on this machine."""
        return {
            Role.PLANNER: self.planners,
            Role.CODER: self.coders,
            Role.DEBUGGER: self.debuggers,
            Role.EVALUATOR: self.evaluators,
        }.get(role, 0)

    @property
    def asked_policy(self) -> str | None:
        """The policy that chooses nodes; None where the strategy's own rule does."""
        return self.policy if self.strategy in SEARCHING else None

    @property
    def roles(self) -> tuple[Role, ...]:
        """The workers without which the strategy can't go on."""
        return (Role.CODER, Role.EVALUATOR) if self.strategy in ALONE else WORKERS

    def model_of(self, role: Role) -> str:
        """Return the name of the model that answers for an agent's role."""
        own = {
            Role.PLANNER: self.planner_model,
            Role.CODER: self.coder_model,
            Role.DEBUGGER: self.debugger_model,
        }
        return own.get(role, "") or self.model

    def effort_of(self, role: Role) -> Effort:
        """Return how hard the model of an agent's role is asked to think."""
        own: dict[Role, Effort] = {
            Role.PLANNER: self.planner_effort,
            Role.CODER: self.coder_effort,
            Role.DEBUGGER: self.debugger_effort,
        }
        return own.get(role, "") or self.effort

    def temperature_of(self, role: Role) -> float | None:
        """Return the temperature that a person wants for an agent's role; None: the method's."""
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
        if text.startswith(HEAD) and not text.endswith(TAIL):
            # What is missing would be taken for its default, silently.
            raise ValueError(f"it is cut short: its last line was {TAIL.strip()!r}")
        return parse(text)
    except OSError as error:
        raise ValueError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse(text: str) -> Settings:
    """Return the settings in a TOML text; raise ValueError when a word, type or range is wrong."""
    return msgspec.toml.decode(text, type=Settings)


def write(run_dir: Path, settings: Settings) -> None:
    """Write `settings` whole: a reader sees the old file or the new one, never half of one."""
    path = run_dir / FILE_NAME
    scratch = path.with_suffix(".toml.new")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(f"{HEAD}{to_toml(settings)}{TAIL}")
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def to_toml(settings: Settings) -> str:
    """Return `settings` as TOML: plain fields first, then one table for each group."""
    return "".join(_table("", settings)).lstrip("\n")


def _table(name: str, group: msgspec.Struct) -> Iterator[str]:
    """Yield a group's rows, then the groups inside it."""
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
        elif value is not None:  # TOML has no null: an absent word means it was not given
            # JSON's strings, numbers, booleans and arrays are TOML's too.
            yield f"{field} = {json.dumps(value, ensure_ascii=False)}\n"
    for path, value in inner:
        yield from _table(path, value)
