"""Laws of the light headers and of what one candidate gets of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.fastbuild import declared_names, header_tree
from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.header_selection import candidate_header
from actors.evaluator.fastbuild.toolkit import Toolkit, headers_of_torch

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
    """As much of torch's headers as the generator reads, to be spoilt."""
    include = tmp_path / "include"
    for name in NEEDED:
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(headers_of_torch() / name, include / name)
    (include / "ATen/ops").symlink_to(headers_of_torch() / "ATen/ops")
    return include


def test_the_generator_takes_what_it_needs_and_no_more(copied: Path, tmp_path: Path) -> None:
    """These few headers are all that the generator depends on."""
    index = header_tree.generate_headers(copied, tmp_path / "tree")

    assert len(index.functions) > header_tree.MIN_FUNCTIONS


@pytest.mark.parametrize("name", NEEDED)
def test_a_torch_laid_out_otherwise_is_refused(copied: Path, tmp_path: Path, name: str) -> None:
    """Half a header, and the generator says so instead of writing headers that hold too little."""
    file = copied / name
    text = file.read_text(encoding="utf-8")
    file.write_text(text[: len(text) // 3], encoding="utf-8")

    with pytest.raises(header_tree.UnexpectedTorchHeadersError):
        header_tree.generate_headers(copied, tmp_path / "tree")


def test_every_overload_of_a_named_method_comes(toolkit: Toolkit) -> None:
    """Overload resolution sees what it would see in torch's own headers."""
    text = candidate_header(cpp("auto y = x.sum(1);"), toolkit.index)

    assert all(body in text for body in toolkit.index.methods["sum"])


def test_words_in_comments_and_strings_bring_nothing(toolkit: Toolkit) -> None:
    """What a comment says does not slow a build down."""
    said = candidate_header(
        cpp('// softmax\n/* cumsum */ const char* w = "logsumexp"; '), toolkit.index
    )

    assert candidate_header(cpp(""), toolkit.index) == said


@given(st.text(alphabet="ab\"'/*\n\\ (R)", max_size=60))
def test_blanking_keeps_every_line_where_it_is(text: str) -> None:
    """Line numbers of the code are those of the text, whatever stands in it."""
    source = cpp(text)

    assert text.count("\n") == source.code.count("\n") == source.code_with_includes.count("\n")


def test_names_that_are_only_parameters_are_nobodys() -> None:
    """A misspelt local that torch's headers use as a parameter is still the candidate's error."""
    found = declared_names.names_declared_in(
        "struct Box { int side; }; enum Colour { red, green };\n"
        "template <class T> T twice(T factor) { return helper(factor); }\n"
        "using Width = int; typedef int Height; constexpr auto kDepth = 3;"
    )

    assert {"Box", "Colour", "red", "green", "twice", "Width", "Height", "kDepth"} <= found
    assert not {"factor", "return", "helper"} & found
