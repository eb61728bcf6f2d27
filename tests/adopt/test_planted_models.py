"""A ViT, a decoder that generates and a U-Net, in two dtypes, with good and bad winners planted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from planted_models import checked, kinds_of

from actors.adopt.check.check_result import Check
from actors.adopt.stage.stage_folder import StageFolder

REASONS = {
    "wrong": ("wrong: ",),
    "slow": ("slower",),
    "idle": ("no gain beyond noise", "slower"),
    "breaking": ("under torch.compile there are",),
    "raising": ("no kernel image",),
}
# Of two faults the check may find either first: a card may be too quick for a gain.
CARD_REASONS = REASONS | {"breaking": (*REASONS["breaking"], *REASONS["idle"])}
MODELS = ("plain_vit", "plain_decoder", "plain_unet")
DTYPES = ("float32", "bfloat16")


def refuse_other_reasons(
    result: Check, kinds: dict[str, str], reasons: dict[str, tuple[str, ...]]
) -> None:
    """Assert that each bad winner was dropped by its name, and none of them is in the model."""
    trials = {trial.name: trial for trial in result.trials}
    assert set(kinds) == set(trials)
    for name, kind in kinds.items():
        trial = trials[name]
        if kind != "right":
            assert not trial.kept, (kind, trial)
            assert any(word in trial.reason for word in reasons[kind]), (kind, trial)
        else:
            assert trial.accuracy is not None
            assert trial.accuracy.is_right, trial
            assert trial.expected_calls == trial.kernel_calls > 0, trial


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_bad_winners_are_found_by_name(
    name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong for one shape, slower, no faster, breaking graphs, raising: dropped for that."""
    monkeypatch.setenv("ADOPT_DTYPE", dtype)
    torch.set_num_threads(1)  # beside other programs two threads wait for each other
    folder = StageFolder(tmp_path / name)
    result = checked(name, folder, 1.0, ["eager"])
    refuse_other_reasons(result, kinds_of(name, folder), REASONS)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_on_a_card_the_model_is_faster_and_bad_winners_are_found(
    name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on a card, with CUDA graphs of the ViT; right winners make the step faster."""
    monkeypatch.setenv("ADOPT_DTYPE", dtype)
    monkeypatch.setenv("ADOPT_DEVICE", "cuda")
    folder = StageFolder(tmp_path / name)
    graphed = (name, dtype) == ("plain_vit", "float32")
    result = checked(name, folder, 2.0, ["eager", "cudagraph"] if graphed else ["eager"])
    sys.stdout.write((folder.path / "report.md").read_text(encoding="utf-8"))
    refuse_other_reasons(result, kinds_of(name, folder), CARD_REASONS)
    assert result.gain is not None, result.trials
    assert result.gain.low > 1.0
    if graphed:
        (regime,) = result.regimes
        assert regime.gain is not None, regime
        assert regime.engaged > 0
    torch.cuda.empty_cache()
