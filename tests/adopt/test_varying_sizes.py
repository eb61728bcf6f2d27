"""One task for calls of several sizes, also where torch.export writes a size into an operation."""

from __future__ import annotations

from pathlib import Path

import pytest
from quick_stages import looked_at, take_quickly

from actors.adopt.tasks.varying_sizes import text_of_all

MODEL = """
import torch
from torch import nn


class Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x):
        b, h, w, c = x.shape
        x = x.reshape(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(x).reshape(x.shape[0], 16, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, 16, c)
        y = y.reshape(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5)
        return y.reshape(b, h * w, c)


def build():
    return nn.Sequential(Windows(), nn.Linear(32, 4)).eval()


def batches():
    for shape in ((2, 8, 8, 32), (3, 8, 8, 32), (2, 12, 8, 32)):
        yield (torch.randn(shape),), {}
"""


def test_window_attention_is_one_task_for_all_sizes_of_its_calls(tmp_path: Path) -> None:
    """Before: the batch of one call stood in the text, and all other calls took the original."""
    file = tmp_path / "windows.py"
    file.write_text(MODEL)
    folder = looked_at(file, tmp_path / "stages", 3)
    (task,) = take_quickly(folder, "0").tasks
    assert len(task.cases) == 3
    source = (folder.path / task.file).read_text()
    assert "x.shape[0]" in source
    assert "x.shape[1] //" in source


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("y = x.reshape([2, 64])", "y = x.reshape([5, 64])", "y = x.reshape([x.shape[0], 64])"),
        ("y = x.reshape([16])", "y = x.reshape([40])", "y = x.reshape([(x.shape[0] * 8)])"),
        ("y = x[:, :3]", "y = x[:, :6]", "y = x[:, :(x.shape[1] // 2)]"),
        (
            "y = x.reshape([12])",
            "y = x.reshape([60])",
            "y = x.reshape([(x.shape[0] * x.shape[1])])",
        ),
        ("y = x.reshape([2, 7])", "y = x.reshape([5, 9])", None),  # 7 and 9 are no sizes
        ("y = x * 2.0", "y = x * 5.0", None),
        ("y = x + x", "y = x - x", None),
        ("y = x", "y = x[0]", None),
    ],
)
def test_numbers_that_vary_with_a_size_are_written_as_it(
    first: str, second: str, expected: str | None
) -> None:
    """Whole multiples and parts of a size; two texts that differ otherwise stay two."""
    sizes = {"x.shape[0]": (2, 5), "x.shape[1]": (6, 12)}
    indent = " " * 8
    wanted = None if expected is None else indent + expected
    assert wanted == text_of_all([indent + first, indent + second], sizes)


def test_a_size_fits_all_calls_or_is_none() -> None:
    """Two calls may agree with a size by chance: the third shows that it is another one."""
    sizes = {"x.shape[0]": (2, 4, 4), "x.shape[1]": (4, 8, 16)}
    texts = [f"        y = x.reshape([{number}])" for number in (8, 16, 32)]
    assert text_of_all(texts, sizes) == "        y = x.reshape([(x.shape[1] * 2)])"
    assert text_of_all([*texts[:2], texts[2].replace("32", "31")], sizes) is None
