"""Learning across runs: for each operation, architecture and lever, promised against measured.

`mine` reads judged attempts only.  A lever is what a plan names, by fixed patterns; the promise is
the speed-up that the plan states; the measured gain is the parent's time over the attempt's.  A
line becomes knowledge only when a person accepts it (`scripts/cards.py accept`): then it is in
`prompts/cards/lessons.json`, and requests show it only in runs with `--lessons`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from statistics import median

import msgspec

import prompts
from actors.agents.cards.card import FOLDER
from actors.agents.cards.selection import CPU_RANKS
from actors.agents.cards.task_operations import task_operations
from protocol.atomic_file import write_atomically
from protocol.values import Device, Reference, Task, Value

FILE = "lessons.json"
MAX_SHOWN = 6
MIN_CORRECT = 2  # measured gains of a line that is told: one attempt tells too little
MAX_PROMISE = 1000.0
SAME_TIME = 0.05  # up to which difference a stated time is eager's
LEVERS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (lever, re.compile(pattern, re.IGNORECASE))
    for lever, pattern in (
        ("fusion", r"\bfus(e|es|ed|ing|ion)\b|one (pass|kernel|launch)|single (pass|kernel)"),
        ("tensor cores", r"tensor.?cores?|\bwgmma\b|\bmma\b|3xtf32|tf32x3|bf16x3|\bamx\b"),
        ("wide loads", r"float4|vectori[sz]ed (load|access)|16-byte|128-bit|wide loads"),
        ("asynchronous copies", r"cp\.async|\btma\b|bulk cop|double.?buffer|pipelin|prefetch"),
        ("split over blocks", r"split.?k|split (rows|over|across)|two.?phase|last block|partials"),
        ("shared memory tiles", r"shared.?memory|\btil(e|es|ing)\b"),
        ("register tiles", r"register (tile|block)|registers? tiling|accumulators"),
        ("clusters", r"\bclusters?\b|distributed shared"),
        ("fewer launches", r"cooperative|persistent|cuda graph|dependent launch|fewer launches"),
        ("online reduction", r"\bonline\b|welford"),
        ("algebra", r"algebra|need not be computed|closed form|fold(ed|ing)? (the|into)|cancels"),
        ("memory layout", r"layout|channels.?last|coalesc|transpos|\bpack(ed|ing)?\b"),
        ("threads", r"openmp|omp parallel|\bthreads\b.*\bcores?\b"),
        ("vector units", r"avx|simd|vectori[sz]e|vectors? of \d+"),
        ("streaming stores", r"non-?temporal|streaming stores?|_mm512_stream"),
        ("library call", r"cublas|cudnn|onednn|\bmkl\b"),
    )
)
# A sentence that says why a lever does not help: "Tensor cores cannot take a maximum".
REFUSED = re.compile(
    r"\bcan(?:no|')t\b|\bgains? nothing\b|\bnot needed\b|\buseless\b|\bno use\b", re.IGNORECASE
)
_TIME = r"(?P<{0}>\d[\d.,]*)\s*(?P<{0}_unit>µs|us|ms)"
_OLD = r"(?P<old>\d[\d.,]*\d|\d)(?:\s*(?P<old_unit>µs|us|ms)\b|(?=[.,;:)]|\s*$))"
PROMISES = (
    re.compile(rf"from\s+~?{_TIME.format('old')}\s+(?:down )?to\s+~?{_TIME.format('new')}"),
    re.compile(
        rf"{_TIME.format('new')}(?: in all)?,? (?:instead of|against|where [^.;]{{0,40}})\s*"
        rf"{_OLD}"
    ),
    # A size, "256 x 128" or "m16n8k16", is no promise.
    re.compile(
        r"(?<![\dx×.])(?<!x )(?P<times>\d+(?:\.\d+)?)\s*(?:x\b|×|times (?:as fast|faster))(?!\s*\d)"
    ),
    re.compile(r"(?P<faster>\d+(?:\.\d+)?)\s*%\s*(?:faster|speed)"),
    re.compile(r"(?P<less>\d+(?:\.\d+)?)\s*%\s*(?:less|fewer|of the time|shorter|saved)"),
)


LessonKey = tuple[str, str, str, bool]  # operation, architecture, lever, from PyTorch's own


class LessonError(Exception):
    """A file of lessons can't be used; the message is one line."""


class LeverAttempt(Value, frozen=True, kw_only=True):
    """A judged attempt, and the time of the source that it changed."""

    run: str
    task: str = ""
    operations: tuple[str, ...]  # of its task, the likely dearest first
    from_module: bool = False  # whether it changed the task's own module
    architecture: str
    advice: str
    eager_us: float | None = None
    parent_us: float | None  # None: the parent has no time
    us: float | None  # None: not correct


class Lesson(Value, frozen=True, kw_only=True):
    """What one lever gave for one operation on one architecture."""

    operation: str
    architecture: str
    lever: str
    from_module: bool = False  # whether the sources that were changed were the tasks' own modules
    attempts: int
    correct: int
    promised: float | None = None  # the median of the promises that were stated
    measured: float | None = None  # the median of old time / new time, of correct attempts
    gains: int = 0  # attempts that were measured beside a correct parent
    least: float | None = None
    most: float | None = None
    runs: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def is_told(self) -> bool:
        """Whether enough attempts were measured to say something."""
        return self.measured is not None and self.gains >= MIN_CORRECT

    @property
    def line(self) -> str:
        promised = f"promised {self.promised:.3g}x" if self.promised else "nothing promised"
        measured = "nothing measured"
        if self.measured is not None and self.least is not None and self.most is not None:
            measured = f"measured {self.measured:.3g}x ({self.least:.3g} to {self.most:.3g})"
        tries = "attempt" if self.attempts == 1 else "attempts"
        if self.tasks:
            tries += f" of {len(self.tasks)} {'task' if len(self.tasks) == 1 else 'tasks'}"
        start = ", from PyTorch's own" if self.from_module else ""
        return (
            f"{self.operation}, {self.architecture}, {self.lever}{start}: {promised}, {measured}; "
            f"{self.attempts} {tries}, {self.correct} correct"
        )


def levers_of(advice: str) -> tuple[str, ...]:
    """Return the levers that a plan names."""
    sentences = [one for one in re.split(r"(?<=[.;])\s+", advice) if not REFUSED.search(one)]
    return tuple(lever for lever, pattern in LEVERS if any(map(pattern.search, sentences)))


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


def mine(attempts: Iterable[LeverAttempt]) -> list[Lesson]:
    """Return the lessons of judged attempts, those of most attempts first.

    A first kernel in place of PyTorch's and a change of a kernel are different lessons: the gain of
    the first is mostly that of leaving eager operators.
    """
    groups: dict[LessonKey, list[LeverAttempt]] = defaultdict(list)
    for attempt in attempts:
        operation = attempt.operations[0] if attempt.operations else "unknown"
        for lever in levers_of(attempt.advice):
            key = operation, attempt.architecture, lever, attempt.from_module
            groups[key].append(attempt)
    found = [_lesson(key, group) for key, group in groups.items()]
    return sorted(found, key=lambda one: (-one.attempts, _key(one)))


def _lesson(key: LessonKey, group: Sequence[LeverAttempt]) -> Lesson:
    stated = [promise_of(one.advice, one.eager_us, one.parent_us) for one in group]
    promises = [promise for promise in stated if promise is not None]
    gains = [
        one.parent_us / one.us for one in group if one.us is not None and one.parent_us is not None
    ]
    operation, architecture, lever, from_module = key
    return Lesson(
        operation=operation,
        architecture=architecture,
        lever=lever,
        from_module=from_module,
        attempts=len(group),
        correct=sum(one.us is not None for one in group),
        promised=median(promises) if promises else None,
        measured=median(gains) if gains else None,
        least=min(gains, default=None),
        most=max(gains, default=None),
        gains=len(gains),
        runs=tuple(sorted({one.run for one in group})),
        tasks=tuple(sorted({one.task for one in group if one.task})),
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

    A line replaces the kept line of the same operation, architecture, lever and start.
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
    return lesson.operation, lesson.architecture, lesson.lever, lesson.from_module


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
    heading = "Measured in earlier runs (old time / new time):"
    return [heading, *(f"- {one.line}" for one in fitting[:MAX_SHOWN])]
