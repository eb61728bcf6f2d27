"""Where one build happens: with which toolkit, in which folder, by when, and under whose watch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actors.evaluator.fastbuild.process import Deadline
from actors.evaluator.fastbuild.record import Watch
from actors.evaluator.fastbuild.toolkit import Toolkit


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """What every step of one build shares."""

    toolkit: Toolkit
    folder: Path  # what is ours in torch's build folder
    watch: Watch
    deadline: Deadline
