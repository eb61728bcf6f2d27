"""Honest candidates of all kinds, for `honest_judgments`: each must be correct.

The honest kernels of `truth`, modules of `examples/` and of the corpus against themselves, the
corpus's honest candidates, and places for the rule book's first answers to the examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from protocol.values import DeviceKind, Value
from scripts.benchmarks.honest_kernels import OWN_MODULE, honest_kernels

ROOT = Path(__file__).parents[2]


class HonestCandidate(Value, frozen=True, kw_only=True):
    """A candidate that must be correct."""

    name: str
    task: str
    candidate: str  # "": the rule book writes it

    @property
    def is_itself(self) -> bool:
        """Whether it is the task's own module, and so takes as long."""
        return self.candidate == self.task + OWN_MODULE


def share_of(found: Sequence[HonestCandidate], part: int, of: int) -> list[HonestCandidate]:
    """Return a share of the candidates, of all kinds; those of one task are together."""
    names = list(dict.fromkeys(each.name for each in found))
    return [each for each in found if names.index(each.name) % of == part - 1]


def honest_candidates(device: DeviceKind, kernelbench: Path | None) -> list[HonestCandidate]:
    """Return all candidates for a device, each task's together: its reference is prepared once."""
    kernels = [
        HonestCandidate(name=each.name, task=each.task, candidate=each.candidate)
        for each in honest_kernels(device)
        if not each.gigabytes  # their preparation takes seconds
    ]
    problems = kernelbench_problems(kernelbench) if kernelbench else ()
    return [*kernels, *corpus(device), *examples(), *problems]


def corpus(device: DeviceKind) -> Iterator[HonestCandidate]:
    """Yield the corpus's honest candidates, and its task's own module."""
    root = ROOT / "tests" / "corpus" / ("cuda" if device == "cuda" else "")
    if not (root / "task.py").exists():  # an installed copy has no tests
        return
    task = (root / "task.py").read_text(encoding="utf-8")
    yield HonestCandidate(name="corpus", task=task, candidate=task + OWN_MODULE)
    for path in sorted((root / "honest").glob("*.py")):
        yield HonestCandidate(name="corpus", task=task, candidate=path.read_text(encoding="utf-8"))


def examples() -> Iterator[HonestCandidate]:
    """Yield the examples against themselves, and places for the rule book's answers to them."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        task = path.read_text(encoding="utf-8")
        yield HonestCandidate(name=path.stem, task=task, candidate=task + OWN_MODULE)
        yield HonestCandidate(name=path.stem, task=task, candidate="")


def kernelbench_problems(root: Path) -> Iterator[HonestCandidate]:
    """Yield every tenth problem of levels 1 to 3 of a KernelBench folder against itself."""
    for path in sorted(root.glob("level[123]/*.py"))[::10]:
        task = path.read_text(encoding="utf-8")
        name = f"{path.parent.name}_{path.stem}"
        yield HonestCandidate(name=name, task=task, candidate=task + OWN_MODULE)
