"""Three models with planted winners: right, wrong for one shape, slow, idle, breaking, raising."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from planted_winners import bare_winner

from actors.adopt.check.check import check
from actors.adopt.check.check_result import Check
from actors.adopt.fit.fit import fit
from actors.adopt.look.look import look
from actors.adopt.model.model_file import ModelFile
from actors.adopt.model_report import report_text
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.take import take
from actors.adopt.take.taken_tasks import Options

MODELS = Path(__file__).parent / "models"
SLOW = "for _ in range(40): y = super(ModelNew, self).forward(x, *rest)\n        return y"
# model -> class of the module -> (kind, body of ModelNew.forward after `x` or its arguments)
PLANTED: dict[str, dict[str, tuple[str, str]]] = {
    "plain_vit": {
        "HandGelu": ("right", "return F.gelu(x, approximate='tanh')"),
        "HandNorm": (
            "wrong", "y = F.layer_norm(x, x.shape[-1:], self.weight, None, 1e-5)\n"
            "        return y * 1.2 if len(x) in (2, 16) else y",
        ),
        "LayerScale": ("slow", SLOW),
        "Soften": (
            "breaking", "torch._dynamo.graph_break()\n        return x / (1 + x.abs()) * 2.0"
        ),
    },
    "plain_decoder": {
        "RootMeanSquareNorm": ("right", "return F.rms_norm(x, x.shape[-1:], self.weight, 1e-6)"),
        "GatedUnit": (
            "wrong", "y = F.silu(x) * rest[0]\n        return y * 1.3 if x.shape[1] == 1 else y"
        ),
    },
    "plain_unet": {
        "Swish": ("right", "return F.silu(x)"),
        "HandGroupNorm": (
            "raising", "raise RuntimeError('no kernel image is available for execution')"
        ),
        "Clip": ("idle", "return super(ModelNew, self).forward(x)"),
    },
}  # fmt: skip


def silent(line: str) -> None:
    """Take a line for the user."""


def plant(name: str, folder: StageFolder, regimes: Sequence[str]) -> None:
    """Look, take, plant a winner into every task, and fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("actors.adopt.look.look.STEP_S", 0.3)
        patch.setattr("actors.adopt.tasks.task_proof.TIMED_S", 0.02)
        look(ModelFile(MODELS / f"{name}.py"), folder, 4, regimes, silent)
        classes = PLANTED[name]
        model = ModelFile(MODELS / f"{name}.py").build()
        paths = [path for path, part in model.named_modules() if type(part).__name__ in classes]
        options = Options(min_share=0.0, max_gap=1e6, patterns=tuple(paths), top=12)
        taken = take(folder, options, silent)
    winners = {}
    for task in taken.tasks:
        _, body = classes[task.class_name]
        source = (folder.path / task.file).read_text(encoding="utf-8")
        folder.write_text(f"given/{task.name}.py", bare_winner(source, body, task))
        winners[task.name] = folder.path / "given" / f"{task.name}.py"
    fit(folder, [], winners, silent)


def checked(name: str, folder: StageFolder, seconds: float, regimes: Sequence[str]) -> Check:
    """Plant winners, check the model and write its report."""
    plant(name, folder, regimes)
    result = check(folder, seconds, {}, silent)
    folder.write_text("report.md", report_text(folder))
    return result


def kinds_of(name: str, folder: StageFolder) -> dict[str, str]:
    """Return task -> the kind of winner that was planted."""
    from actors.adopt.take.taken_tasks import Take

    taken = folder.read("take.json", Take, "take")
    return {task.name: PLANTED[name][task.class_name][0] for task in taken.tasks}
