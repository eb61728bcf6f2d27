"""The first stages of a test's model: with short timings, and without a line for the user."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actors.adopt.look.look import look
from actors.adopt.model.model_file import ModelFile
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.take import take
from actors.adopt.take.taken_tasks import Options, Take


def silent(line: str) -> None:
    """Take a line for the user."""


def options(*patterns: str, regions: bool = False) -> Options:
    """Return options that take the modules of these patterns, however little they may bring."""
    return Options(min_share=0.0, max_gap=1e6, patterns=patterns, regions=regions)


def looked_at(file: Path, folder: Path, batches: int) -> StageFolder:
    """Return a folder in which the model was looked at, on one thread."""
    torch.set_num_threads(1)
    made = StageFolder(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("actors.adopt.look.look.STEP_S", 0.05)
        look(ModelFile(file), made, batches, ["eager"], silent)
    return made


def take_quickly(made: StageFolder, *patterns: str, regions: bool = False) -> Take:
    """Take the modules of these patterns, or regions of them, timed for a moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("actors.adopt.tasks.task_proof.TIMED_S", 0.01)
        return take(made, options(*patterns, regions=regions), silent)
