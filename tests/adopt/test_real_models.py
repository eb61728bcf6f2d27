"""Architectures of torchvision, timm, transformers and diffusers with random weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from actors.adopt.look.look import look
from actors.adopt.model.model_file import ModelFile
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.take import take
from actors.adopt.take.taken_tasks import Options

pytestmark = pytest.mark.long
HEAD = """\
import torch
def define_missing_operators():
    # torchvision's compiled part is built for torch with CUDA; its models do not need it
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
LIBRARY = define_missing_operators()
"""
IMAGES = "def batches():\n    for n in (2, 2, 1): yield (torch.randn(n, 3, SIZE, SIZE),), {}\n"
TOKENS = "def batches():\n    for n in (9, 9, 5): yield (torch.randint(0, 99, (2, n)),), {}\n"
MODELS = {
    "resnet18": (
        "torchvision", IMAGES.replace("SIZE", "64"),
        "from torchvision.models import resnet18\ndef build(): return resnet18().eval()\n",
    ),
    "swin": (
        "torchvision", IMAGES.replace("SIZE", "64"),
        "from torchvision.models import swin_t\ndef build(): return swin_t().eval()\n",
    ),
    "vit_tiny": (
        "timm", IMAGES.replace("SIZE", "224"),
        "import timm\ndef build(): return timm.create_model('vit_tiny_patch16_224').eval()\n",
    ),
    "llama": (
        "transformers", TOKENS,
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "def build():\n"
        "    return LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128,\n"
        "        num_hidden_layers=2, num_attention_heads=4, vocab_size=99)).eval()\n"
        "def step(model, batch):\n"
        "    return model.generate(batch[0][0], max_new_tokens=4, do_sample=False)\n",
    ),
    "denoising_unet": (
        "diffusers",
        "def batches():\n"
        "    for n in (2, 2, 1):\n"
        "        yield (torch.randn(n, 4, 16, 16), torch.tensor(10), torch.randn(n, 7, 32)), {}\n",
        "from diffusers import UNet2DConditionModel\n"
        "def build():\n"
        "    return UNet2DConditionModel(sample_size=16, block_out_channels=(32, 64),\n"
        "        layers_per_block=1, cross_attention_dim=32, attention_head_dim=8,\n"
        "        norm_num_groups=8, up_block_types=('UpBlock2D', 'CrossAttnUpBlock2D'),\n"
        "        down_block_types=('CrossAttnDownBlock2D', 'DownBlock2D')).eval()\n",
    ),
    "bert": (
        "transformers", TOKENS,
        "from transformers import BertConfig, BertModel\n"
        "def build():\n"
        "    return BertModel(BertConfig(hidden_size=64, intermediate_size=128,\n"
        "        num_hidden_layers=2, num_attention_heads=4, vocab_size=99)).eval()\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(MODELS))
def test_tasks_of_a_real_model_equal_its_modules(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least one task is taken, and each equals its module bit for bit on recorded calls."""
    package, batches, build = MODELS[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    torch.set_num_threads(1)
    monkeypatch.setattr("actors.adopt.look.look.STEP_S", 0.05)
    file = tmp_path / f"{name}.py"
    file.write_text(HEAD + batches + build)
    folder = StageFolder(tmp_path / "out")
    found = look(ModelFile(file), folder, 8, ["eager"], lambda line: None)
    taken = take(folder, Options(min_share=0.0, max_gap=1e6, top=8), lambda line: None)

    assert found.outside_share < 0.5
    assert taken.tasks, taken.not_taken
    assert all(task.proof.is_equal for task in taken.tasks)
