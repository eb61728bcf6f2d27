"""Laws of the light headers and of the part of them that one candidate gets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.fastbuild.headers import header_tree
from actors.evaluator.fastbuild.headers.declared_names import names_declared_in
from actors.evaluator.fastbuild.headers.header_selection import candidate_header
from actors.evaluator.fastbuild.headers.toolkit import Toolkit, headers_of_torch
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource

NEEDED = (
    "ATen/core/TensorBody.h",
    "ATen/DeviceGuard.h",
    "torch/csrc/autograd/generated/variable_factories.h",
    "torch/csrc/api/include/torch/types.h",
)


def cpp(text: str) -> CandidateSource:
    return CandidateSource(path="/x/main.cpp", text=text)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the torch headers that the generator reads, for tests that damage them."""
    include = tmp_path / "include"
    for name in NEEDED:
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(headers_of_torch() / name, include / name)
    (include / "ATen/ops").symlink_to(headers_of_torch() / "ATen/ops")
    return include


def test_the_generator_reads_only_a_few_headers(copied: Path, tmp_path: Path) -> None:
    """The headers in `NEEDED` are all that the generator depends on."""
    index = header_tree.generate_headers(copied, tmp_path / "tree")

    assert len(index.functions) > header_tree.MIN_FUNCTIONS


@pytest.mark.parametrize("name", NEEDED)
def test_unexpected_torch_headers_are_refused(copied: Path, tmp_path: Path, name: str) -> None:
    """With a third of a header the generator raises instead of writing incomplete headers."""
    file = copied / name
    text = file.read_text(encoding="utf-8")
    file.write_text(text[: len(text) // 3], encoding="utf-8")

    with pytest.raises(header_tree.UnexpectedTorchHeadersError):
        header_tree.generate_headers(copied, tmp_path / "tree")


def test_a_named_method_brings_all_its_overloads(toolkit: Toolkit) -> None:
    """Overload resolution has the same choice as with torch's own headers."""
    text = candidate_header(cpp("auto y = x.sum(1);"), toolkit.index)

    assert all(body in text for body in toolkit.index.methods["sum"])


def test_identifiers_in_comments_and_strings_bring_nothing(toolkit: Toolkit) -> None:
    """A comment does not slow a build down."""
    header = candidate_header(
        cpp('// softmax\n/* cumsum */ const char* w = "logsumexp"; '), toolkit.index
    )

    assert candidate_header(cpp(""), toolkit.index) == header


@given(st.text(alphabet="ab\"'/*\n\\ (R)", max_size=60))
def test_blanking_keeps_every_line_number(text: str) -> None:
    """The code has the line numbers of the text, for every text."""
    source = cpp(text)

    assert text.count("\n") == source.code.count("\n") == source.code_with_includes.count("\n")


def test_parameters_do_not_count_as_declared_names() -> None:
    """A misspelt local is the candidate's error even if torch has a parameter of that name."""
    declared = names_declared_in(
        "struct Box { int side; }; enum Colour { red, green };\n"
        "template <class T> T twice(T factor) { return helper(factor); }\n"
        "using Width = int; typedef int Height; constexpr auto kDepth = 3;"
    )

    assert {"Box", "Colour", "red", "green", "twice", "Width", "Height", "kDepth"} <= declared
    assert not {"factor", "return", "helper"} & declared


def test_a_message_may_hold_a_whole_tensor(toolkit: Toolkit) -> None:
    """`TORCH_CHECK(x.dim() == 1, x)` prints x, which no name in the text shows."""
    source = cpp('void f(torch::Tensor x) { TORCH_CHECK(x.dim() == 1, "not ", x); }')

    assert "#include <ATen/Formatting.h>" in candidate_header(source, toolkit.index)
