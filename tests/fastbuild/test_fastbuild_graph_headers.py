"""Laws of the light header of torch::autograd::Function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from actors.evaluator.fastbuild.headers.graph_headers import (
    HEADER,
    SOURCE_FILE,
    generate_graph_headers,
)
from actors.evaluator.fastbuild.headers.toolkit import headers_of_torch


def copied(tmp_path: Path, text: str) -> Path:
    """Return a folder of headers that has `text` as the header of custom functions."""
    include = tmp_path / "include"
    (include / HEADER).parent.mkdir(parents=True)
    (include / HEADER).write_text(text, encoding="utf-8")
    return include


def test_the_common_part_is_torchs_own_text(tmp_path: Path) -> None:
    """No statement is written anew, and none that is compiled once names a candidate's function."""
    torchs = (headers_of_torch() / HEADER).read_text(encoding="utf-8")

    assert generate_graph_headers(headers_of_torch(), tmp_path)

    source = (tmp_path / SOURCE_FILE).read_text(encoding="utf-8")
    code = re.sub(r"//[^\n]*", "", source)
    assert not re.search(r"\bT\b|//@", code)
    collected = re.findall(r"args\.collect\([^;]*;", torchs)
    assert collected
    assert len(re.findall(r"args\.collect\([^;]*;", source)) == len(collected)
    header = (tmp_path / HEADER).read_text(encoding="utf-8")
    assert "compiled_autograd.h" not in header
    assert "//@" not in header


@pytest.mark.parametrize(
    "part",
    [
        "struct CppNode : public Node {",
        "auto outputs = T::backward(&ctx_, backward_inputs);",
        "  friend struct CppNode;",
        "_jvp_fn_t jvp_fn =",
        "#include <torch/csrc/dynamo/compiled_autograd.h>\n",
    ],
)
def test_another_layout_is_left_to_torch(tmp_path: Path, part: str) -> None:
    """Where torch's header has changed nothing is written, so that its own is used."""
    torchs = (headers_of_torch() / HEADER).read_text(encoding="utf-8")
    assert part in torchs

    made = generate_graph_headers(copied(tmp_path, torchs.replace(part, "changed")), tmp_path / "x")

    assert not made
    assert not (tmp_path / "x").exists()


def test_a_method_that_depends_on_the_function_is_refused(tmp_path: Path) -> None:
    """A statement that names the candidate's type in a new way is not moved to the common part."""
    torchs = (headers_of_torch() / HEADER).read_text(encoding="utf-8")
    text = torchs.replace(
        "args.collect(is_variable_input_);", "args.collect(T::is_variable_input_);"
    )

    assert not generate_graph_headers(copied(tmp_path, text), tmp_path / "x")
