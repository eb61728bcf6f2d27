"""Where one build happens: with which toolkit, in which folder, by when, and under whose watch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actors.evaluator.fastbuild.build_record import Stopwatch
from actors.evaluator.fastbuild.compiler_process import Deadline
from actors.evaluator.fastbuild.toolkit import Toolkit


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """What every step of one build shares."""

    toolkit: Toolkit
    folder: Path  # what is ours in torch's build folder
    stopwatch: Stopwatch
    deadline: Deadline
