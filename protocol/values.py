"""The values in messages and in `run.db`: task, plan, candidate, verdict, reference, model call.

Every struct is frozen and keyword-only.  A new field gets a default and no field ever changes its
type, so that peers of different minor versions understand each other.  A figure that was not
measured is None, never 0.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Literal, get_args

import msgspec

from protocol.cases import CaseReference as CaseReference
from protocol.cases import CaseResult as CaseResult
from protocol.cases import TaskCase as TaskCase
from protocol.facts import ReferenceFacts, UnitShare, VerdictFacts
from protocol.frozen_struct import Value as Value
from protocol.release import DeviceKind as DeviceKind
from protocol.release import Judged, Release


class Role(StrEnum):
    """The role of a process that connects to the coordinator."""

    PLANNER = "planner"
    CODER = "coder"
    DEBUGGER = "debugger"
    EVALUATOR = "evaluator"
    SUPERVISOR = "supervisor"


AGENT_ROLES = (Role.PLANNER, Role.CODER, Role.DEBUGGER)
WORKER_ROLES = (*AGENT_ROLES, Role.EVALUATOR)


class Outcome(StrEnum):
    """The outcome of a verdict."""

    CORRECT = "correct"
    WRONG = "wrong"
    COMPILE_FAILED = "compile_failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    REJECTED = "rejected"
    NO_CANDIDATE = "no_candidate"


Stage = Literal["", "build", "import", "check", "time"]
Backend = Literal["cpp", "cuda", "triton"]  # what candidates' kernels are written in
BACKENDS: tuple[Backend, ...] = get_args(Backend)
BACKEND_OF: dict[DeviceKind, Backend] = {"cpu": "cpp", "cuda": "cuda"}  # the defaults
# What `--backend` takes: "mixed" lets the agents choose among the languages for a card.
BackendChoice = Literal[Backend, "mixed"]
BACKEND_CHOICES: tuple[BackendChoice, ...] = (*BACKENDS, "mixed")
MIXED_BACKENDS: tuple[Backend, ...] = ("cuda", "triton")
# What an agent gives up on: this attempt only, the node that was to grow, or the whole task.
GiveUpScope = Literal["attempt", "node", "task"]


METRIC_TABLE = "ncu table"  # of a verdict's profile: raw figures, for people only
RENAMED_REFERENCE = "renamed_reference"  # the label of a candidate that is the task's own module
MAX_SHOWN_GROUPS = 60  # of a verdict, for people
MAX_INTERVAL_WIDTH = 0.08  # to either side, as a share of the figure; beyond it an interval is wide


class Seconds(Value, frozen=True, kw_only=True):
    """Wall seconds that an evaluation spent in each stage."""

    build: float = 0.0
    check: float = 0.0
    time: float = 0.0


class TimedGroups(Value, frozen=True, kw_only=True):
    """The groups of a paired benchmark that figures are made of, microseconds a call.

    Each value is the mean of two blocks of one side.  Of more than `MAX_SHOWN_GROUPS`, some are
    kept, evenly chosen.
    """

    reference_us: tuple[float, ...] = ()
    candidate_us: tuple[float, ...] = ()


class VariantResult(Value, frozen=True, kw_only=True):
    """What one variant of a candidate gave (`actors/tune_space.py`), in its last round."""

    values: dict[str, str]  # name -> value, printable
    verdict: Outcome | None = None  # None: it was not raced
    reason: str = ""
    median_us: float | None = None
    speedup: float | None = None


class Verdict(Value, frozen=True, kw_only=True):
    """The judge's result for one candidate: always a value, also for a crash."""

    verdict: Outcome
    reason: str = ""  # one line for a person
    stage: Stage = ""  # the stage that decided; "" for correct
    median_us: float | None = None  # the candidate's median time a call, microseconds
    reference_us: float | None = None  # eager PyTorch's, measured in turn with the candidate's
    speedup: float | None = None  # reference / candidate, the median of paired ratios
    speedup_ci95: tuple[float, float] | None = None
    max_error: float | None = None  # largest elementwise error, in units of the tolerance
    log: str = ""  # of the compiler or the runtime, bounded and cleaned
    profile: dict[str, str] | None = None  # name -> printable figure
    seconds: Seconds = Seconds()
    sandbox_level: int = 0
    device: str = ""  # fingerprint of the device that ran it
    release: Release | None = None  # of a winner: the checks of its file as a drop-in module
    gives_up_on: GiveUpScope = "attempt"  # of no_candidate: no further attempt is made on that
    groups: TimedGroups | None = None  # what was timed, as measured; None in older runs
    facts: VerdictFacts | None = None  # what is known besides; None in older runs
    variants: tuple[VariantResult, ...] = ()  # of a candidate that declared a space of values
    variant: int | None = None  # the place of the one that is the node's source
    cases: tuple[CaseResult, ...] = ()  # of a task with cases: the figures above are of all
    # Why the agent's first candidate failed, which it mended before it became a node.  The
    # coordinator sets it.
    amended: str = ""

    @property
    def is_correct(self) -> bool:
        return self.verdict is Outcome.CORRECT

    @property
    def labels(self) -> tuple[str, ...]:
        """The evaluator's labels: how the candidate gets its result."""
        joined = (self.profile or {}).get("labels", "")
        return tuple(label for label in joined.split(", ") if label) if joined else ()

    @property
    def is_renamed_reference(self) -> bool:
        """Whether the candidate is the task's own module under another name."""
        return RENAMED_REFERENCE in self.labels

    @property
    def is_faster(self) -> bool:
        """Whether the candidate is correct and measured to be faster than the reference.

        This is the one definition of "faster": the whole 95 % interval of the speed-up is above 1.
        The reference under another name is never faster.
        """
        low = self.speedup_ci95[0] if self.speedup_ci95 is not None else 0.0
        return self.is_correct and low > 1.0 and not self.is_renamed_reference

    @property
    def is_slower(self) -> bool:
        """Whether the whole 95 % interval of the speed-up is below 1."""
        return self.speedup_ci95 is not None and self.speedup_ci95[1] < 1.0

    @property
    def is_wide(self) -> bool:
        """Whether the interval is too wide for the figure, so that a further measurement helps.

        An interval is wide when it reaches more than 8 % to a side, or down to 1 or below although
        the figure is above 1.  A figure without an interval counts as wide.
        """
        if not self.is_correct or self.speedup is None:
            return False
        if self.speedup_ci95 is None:
            return True
        low, high = self.speedup_ci95
        return (high - low) / 2 > MAX_INTERVAL_WIDTH * self.speedup or low <= 1.0 < self.speedup

    @property
    def is_compiled(self) -> bool:
        """Whether the candidate built and imported, correct or not."""
        return self.verdict not in (
            Outcome.COMPILE_FAILED,
            Outcome.NO_CANDIDATE,
        ) and self.stage not in (
            "build",
            "import",
        )


TRITON_FACT = "Triton"  # its version: told where kernels are written in it, but not by the paper


class Device(Value, frozen=True, kw_only=True):
    """The device of a measurement; runtimes of different fingerprints are never ranked."""

    kind: DeviceKind = "cpu"
    name: str = ""  # "AMD EPYC, 2 cores" or "NVIDIA H100 80GB HBM3"
    fingerprint: str = ""  # name, driver, torch and CUDA versions in one line
    # The table of hardware facts in prompts, in order.
    facts: dict[str, str] = msgspec.field(default_factory=dict)


class Reference(Value, frozen=True, kw_only=True):
    """The measured figures of the task's own module, which candidates are compared with."""

    eager_us: float
    compile_us: float | None = None
    max_autotune_us: float | None = None
    device: Device = Device()
    inputs: str = ""  # "float32[64, 1024], float32[64, 1024]"
    outputs: str = ""
    notes: tuple[str, ...] = ()
    judged: Judged | None = None  # device and layouts of the figures; None in older runs
    floor_us: float | None = None  # what no device like this can beat; None: not known
    baselines_pending: bool = False  # torch.compile's times are still to be measured
    baselines_note: str = ""  # why one of them is missing
    # The number of the run's decisions when these times arrived after the others: requests of
    # those decisions do not show them.
    baselines_decided: int = 0
    facts: ReferenceFacts | None = None  # what is known of the task; None in older runs
    # Of a task with cases: the times above are their means, all else is of the first one.
    cases: tuple[CaseReference, ...] = ()


class Task(Value, frozen=True, kw_only=True):
    """One PyTorch module to make faster: a KernelBench file, as text."""

    name: str
    source: str
    device: DeviceKind = "cpu"
    backend: Backend = "cpp"
    other_backends: tuple[Backend, ...] = ()  # that a candidate may be written in, too
    checks: int = 3  # fresh inputs that a candidate is checked on
    # Modules next to the task's file that it imports: path -> source.
    modules: dict[str, str] = msgspec.field(default_factory=dict)
    cases: tuple[TaskCase, ...] = ()  # what it is judged on; (): what get_inputs() draws
    backward: bool = False  # whether it is judged with its backward pass, too
    case: TaskCase | None = None  # inside of a judge: the one that this text was made for


class Plan(Value, frozen=True, kw_only=True):
    """One optimisation, and the node's source with anchors around the lines to change."""

    advice: str
    scaffold: str  # the shown source with anchors; never shown to the evaluator
    spans: tuple[tuple[int, int], ...] = ()  # anchored [first, last] lines of scaffold, from 1


class Candidate(Value, frozen=True, kw_only=True):
    """A whole Python file that defines ModelNew."""

    source: str
    outside: tuple[str, ...] = ()  # diff hunks outside the plan's anchors
    # What the answer changed in the source that was shown, a line each; () for a whole file.
    edits: tuple[str, ...] = ()


class FailedCandidate(Value, frozen=True, kw_only=True):
    """A candidate that failed before it was timed, for the agent that wrote it."""

    source: str
    reply: str  # the answer that it came from
    verdict: Verdict


class AttemptView(Value, frozen=True, kw_only=True):
    """An earlier attempt as an agent sees it."""

    node: int
    parent: int | None = None
    advice: str = ""
    source: str = ""
    verdict: Verdict
    score_us: float | None = None


class LedgerEntry(Value, frozen=True, kw_only=True):
    """One attempt in the ledger that agents see: every attempt, also those under way."""

    number: int
    parent: int
    idea: str = ""  # of its plan, in one line; "" while it is being planned
    # None: under way.
    outcome: Outcome | None = None
    stage: Literal["", "plan", "write", "judge"] = ""  # of one under way
    score_us: float | None = None
    reason: str = ""  # of a failure, in one line
    units: tuple[UnitShare, ...] = ()  # how busy they were, of one that was profiled


STOP_LOST = "lost"  # the stop of a call without a whole reply: it may have been paid for


class Call(Value, frozen=True, kw_only=True):
    """One request to a model, its reply and its cost, as stored."""

    model: str
    request: str  # the rendered prompt, system first
    reply: str
    stop: str = "end_turn"
    temperature: float | None = None  # as sent; None when none was
    effort: str = ""  # likewise
    # Of the texts and the code that wrote the request; "": of an older version, which stored none.
    request_version: str = ""
    input_tokens: int = 0  # cached ones included
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None  # None: no price is known; 0.0 for a model that costs nothing
    seconds: float = 0.0


def request_key(request: str) -> str:
    """Return the key of a request's text; a call and its reservation have the same key."""
    return hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()


def source_key(source: str) -> str:
    """Return the key of a candidate's text without its leading comments."""
    lines = source.splitlines()
    first = next((n for n, line in enumerate(lines) if line and not line.startswith("#")), 0)
    text = "\n".join(lines[first:])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
