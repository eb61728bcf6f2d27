"""Learning across runs: for each operation, architecture and lever, promised against measured.

A lever is one change of a working kernel: the one technique that an attempt's source has and its
parent's lacks (`techniques.py`), or fewer launches, where the idea of its plan names it, too.  The
measured gain is the parent's time over the attempt's, the promise is the speed-up that the plan
states.  A first kernel in place of PyTorch's is a whole design, and of a step with several levers
no share is known: neither is counted.  A line becomes knowledge only when a person accepts it
(`scripts/cards.py accept`): then it is in `prompts/cards/lessons.json`, and requests show it only
in runs with `--lessons`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from statistics import median

import msgspec

import prompts
from actors.agents.cards.card import FOLDER
from actors.agents.cards.selection import CPU_RANKS
from actors.agents.cards.task_operations import task_operations
from actors.agents.cards.techniques import techniques_in
from protocol.atomic_file import write_atomically
from protocol.values import Device, Reference, Task, Value

FILE = "lessons.json"
MAX_SHOWN = 6
MIN_CORRECT = 2  # measured gains of a line that is told: one step tells too little
MAX_PROMISE = 1000.0
SAME_TIME = 0.05  # up to which difference a stated time is eager's
MIN_GAIN = 1.02  # from here on a step is faster
FEWER_LAUNCHES = "fewer launches"
_FEWER_NAMED = re.compile(
    r"\bfus(e|es|ed|ing|ion)\b|(one|single|fewer) (pass|kernel|launch)|cooperative|persistent",
    re.IGNORECASE,
)
IDEA = re.compile(r".+?\.(?=\s|$)", re.DOTALL)  # the first sentence of a plan
_TIME = r"(?P<{0}>\d[\d.,]*)\s*(?P<{0}_unit>µs|us|ms)"
_OLD = r"(?P<old>\d[\d.,]*\d|\d)(?:\s*(?P<old_unit>µs|us|ms)\b|(?=[.,;:)]|\s*$))"
PROMISES = (
    re.compile(rf"from\s+~?{_TIME.format('old')}\s+(?:down )?to\s+~?{_TIME.format('new')}"),
    re.compile(
        rf"{_TIME.format('new')}(?: in all)?,? (?:instead of|against|where [^.;]{{0,40}})\s*"
        rf"{_OLD}"
    ),
    # A size, "256 x 128" or "m16n8k16", is not a promise.
    re.compile(
        r"(?<![\dx×.])(?<!x )(?P<times>\d+(?:\.\d+)?)\s*(?:x\b|×|times (?:as fast|faster))(?!\s*\d)"
    ),
    re.compile(r"(?P<faster>\d+(?:\.\d+)?)\s*%\s*(?:faster|speed)"),
    re.compile(r"(?P<less>\d+(?:\.\d+)?)\s*%\s*(?:less|fewer|of the time|shorter|saved)"),
)


LessonKey = tuple[str, str, str]  # operation, architecture, lever


class LessonError(Exception):
    """A file of lessons can't be used; the message is one line."""


class Step(Value, frozen=True, kw_only=True):
    """A judged attempt, and the correct source that it changed."""

    run: str
    task: str
    operations: tuple[str, ...]  # of its task, the likely dearest first
    architecture: str
    advice: str
    added: frozenset[str]  # techniques that its source has and its parent's lacks
    has_fewer_launches: bool = False
    is_design: bool = False  # whether it took the place of the task's own module
    eager_us: float | None = None
    parent_us: float | None  # None: the parent is not correct
    us: float | None  # None: not correct


class Lesson(Value, frozen=True, kw_only=True):
    """What one lever gave for one operation on one architecture."""

    operation: str
    architecture: str
    lever: str
    steps: int
    promised: float | None = None  # the median of the promises that were stated
    gains: tuple[float, ...] = ()  # old time / new time of each correct step, in their order
    runs: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def is_told(self) -> bool:
        """Whether enough steps were measured to say something."""
        return len(self.gains) >= MIN_CORRECT

    @property
    def measured(self) -> float | None:
        """The median gain; None where no step was correct."""
        return median(self.gains) if self.gains else None

    @property
    def line(self) -> str:
        promised = f"promised {self.promised:.3g}x" if self.promised else "nothing promised"
        measured = "none correct"
        if self.gains:
            faster = sum(gain >= MIN_GAIN for gain in self.gains)
            measured = (
                f"measured {median(self.gains):.3g}x ({min(self.gains):.3g} to"
                f" {max(self.gains):.3g}), faster in {faster}"
            )
        steps = f"{self.steps} {'step' if self.steps == 1 else 'steps'}"
        tasks = f"{len(self.tasks)} {'task' if len(self.tasks) == 1 else 'tasks'}"
        return (
            f"{self.operation}, {self.architecture}, {self.lever} in a kernel that worked:"
            f" {promised}, {measured}; {steps} of {tasks}, {len(self.gains)} correct"
        )


def levers_of(step: Step) -> tuple[str, ...]:
    """Return the levers of a step that are known from its source and its measured launches."""
    fewer = (FEWER_LAUNCHES,) if step.has_fewer_launches else ()
    return (*sorted(step.added), *fewer)


def lever_of(step: Step) -> str:
    """Return the one lever of a step that its plan's idea names; "" where there is none."""
    levers = levers_of(step)
    if step.is_design or step.parent_us is None or len(levers) != 1:
        return ""
    found = IDEA.match(step.advice.strip())
    idea = found[0] if found else step.advice
    named = techniques_in(idea) | ({FEWER_LAUNCHES} if _FEWER_NAMED.search(idea) else set())
    return levers[0] if levers[0] in named else ""


def left_out(steps: Sequence[Step]) -> str:
    """Return in a line which steps no lesson counts; "" for none."""
    kinds = Counter(_why_left_out(one) for one in steps if not lever_of(one))
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"not counted: {told}" if told else ""


def _why_left_out(step: Step) -> str:
    if step.is_design:
        return "first kernels (a whole design)"
    if step.parent_us is None:
        return "repairs"
    levers = levers_of(step)
    if len(levers) > 1:
        return "steps with several levers (no share is known)"
    return "steps whose idea does not name the lever" if levers else "steps with no known lever"


def promise_of(
    advice: str, eager_us: float | None = None, parent_us: float | None = None
) -> float | None:
    """Return the speed-up that a plan states, old time / new time; None if it states none.

    Beside eager's time a plan states what the task gains, so its new time is compared with the
    parent's; a parent that failed has none.
    """
    for pattern in PROMISES:
        found = pattern.search(advice)
        if found is None:
            continue
        numbers = _numbers(found.groupdict())
        if eager_us and abs(numbers.get("old", 0.0) / eager_us - 1) < SAME_TIME:
            if parent_us is None:
                return None
            numbers["old"] = parent_us
        promise = _promise(numbers)
        if promise is not None and 1.0 <= promise <= MAX_PROMISE:
            return promise
    return None


def _numbers(named: dict[str, str | None]) -> dict[str, float]:
    """Return the numbers of a promise, all times in microseconds; one unit may serve for two."""
    numbers = {}
    for name, text in named.items():
        if not name.endswith("_unit"):
            unit = named.get(f"{name}_unit") or named.get("new_unit")
            scale = 1000.0 if unit == "ms" else 1.0
            numbers[name] = scale * float((text or "").replace(",", "").rstrip(".") or 0)
    return numbers


def _promise(named: dict[str, float]) -> float | None:
    match named:
        case {"old": old, "new": new}:
            return old / new if new else None
        case {"times": times}:
            return times
        case {"faster": percent}:
            return 1 + percent / 100
        case {"less": percent}:
            return 1 / (1 - percent / 100) if percent < 100 else None
    return None


def architecture_of(device: Device) -> str:
    """Return a device's architecture as cards name it: "sm_90", "avx512f"."""
    capability = device.facts.get("compute capability", "")
    if device.kind == "cuda":
        return f"sm_{capability.replace('.', '')}" if capability else "unknown"
    vector = device.facts.get("vector", "").replace(",", " ").split()
    return max((word for word in vector if word in CPU_RANKS), key=CPU_RANKS.__getitem__,
               default="cpu")  # fmt: skip


def mine(steps: Iterable[Step]) -> list[Lesson]:
    """Return the lessons of steps with one lever, those of most steps first."""
    groups: dict[LessonKey, list[Step]] = defaultdict(list)
    for step in steps:
        lever = lever_of(step)
        if lever:
            operation = step.operations[0] if step.operations else "unknown"
            groups[operation, step.architecture, lever].append(step)
    found = [_lesson(key, group) for key, group in groups.items()]
    return sorted(found, key=lambda one: (-one.steps, _key(one)))


def _lesson(key: LessonKey, group: Sequence[Step]) -> Lesson:
    stated = [promise_of(one.advice, one.eager_us, one.parent_us) for one in group]
    promises = [promise for promise in stated if promise is not None]
    operation, architecture, lever = key
    return Lesson(
        operation=operation,
        architecture=architecture,
        lever=lever,
        steps=len(group),
        promised=median(promises) if promises else None,
        gains=tuple(
            round(one.parent_us / one.us, 3)
            for one in group
            if one.us is not None and one.parent_us is not None
        ),
        runs=tuple(sorted({one.run for one in group})),
        tasks=tuple(sorted({one.task for one in group})),
    )


def write(path: Path, lessons: Sequence[Lesson]) -> None:
    """Write lessons as JSON, one a line, for a person to read."""
    rows = ",\n".join(f"  {msgspec.json.encode(one).decode()}" for one in lessons)
    write_atomically(path, f"[\n{rows}\n]\n" if rows else "[]\n")


def read(path: Path) -> list[Lesson]:
    """Return the lessons of a file; raises `LessonError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Lesson])
    except OSError as error:
        raise LessonError(f"can't read {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise LessonError(f"{path} is not a file that `mine --write` made: {error}") from error


def accept(path: Path, numbers: Sequence[int], folder: Path) -> list[Lesson]:
    """Put lines of a proposal (all, or by number from 1) into a folder's lessons; returns all.

    A line replaces the kept line of the same operation, architecture and lever.
    """
    proposed = read(path)
    wrong = [number for number in numbers if not 1 <= number <= len(proposed)]
    if wrong:
        raise LessonError(f"{path} has lines 1 to {len(proposed)}, and no line {wrong[0]}")
    chosen = [proposed[number - 1] for number in numbers] or proposed
    target = folder / FILE
    kept = {_key(one): one for one in (read(target) if target.is_file() else [])}
    kept |= {_key(one): one for one in chosen}
    lessons = [kept[key] for key in sorted(kept)]
    write(target, lessons)
    return lessons


def _key(lesson: Lesson) -> LessonKey:
    return lesson.operation, lesson.architecture, lesson.lever


def accepted_lessons() -> list[Lesson]:
    """Return the lessons that a person accepted, of this installation; [] for none."""
    file = resources.files(prompts).joinpath(FOLDER, FILE)
    if not file.is_file():
        return []
    return msgspec.json.decode(file.read_bytes(), type=list[Lesson])


def lesson_lines(
    task: Task, reference: Reference, lessons: Iterable[Lesson] | None = None
) -> list[str]:
    """Return the lines of a request about a task's operations on its device; [] for none."""
    architecture = architecture_of(reference.device)
    operations = task_operations(task.source, reference.inputs)
    fitting = [
        one
        for one in (accepted_lessons() if lessons is None else lessons)
        if one.architecture == architecture and one.operation in operations and one.is_told
    ]
    fitting.sort(key=lambda one: (-(one.measured or 0.0), _key(one)))
    if not fitting:
        return []
    heading = "Steps from one working kernel to the next in earlier runs (old time / new time):"
    return [heading, *(f"- {one.line}" for one in fitting[:MAX_SHOWN])]
