"""Laws of a candidate's own headers: found as the compiler finds them, and part of its text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.utils.cpp_extension as extension

from actors.evaluator.fastbuild.headers.include_order import includes_torch_first
from actors.evaluator.fastbuild.request.build_request import BuildRequest
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.local_headers import LocalHeadersError, with_local_headers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A source with two headers beside it, one of which includes a third from an include folder."""
    (tmp_path / "include").mkdir()
    (tmp_path / "main.cpp").write_text('#include "kernel.h"\nint f() { return row_softmax(); }\n')
    (tmp_path / "kernel.h").write_text("#pragma once\n#include <scale.h>\n#include <vector>\n")
    (tmp_path / "include/scale.h").write_text("#pragma once\ninline int cumsum_of();\n")
    return tmp_path


def read(folder: Path) -> CandidateSource:
    source = CandidateSource.read(str(folder / "main.cpp"))
    return with_local_headers(source, [str(folder / "include")])


def test_headers_are_followed_through_folders_and_each_other(folder: Path) -> None:
    """Their names choose torch's headers; only the includes that are not the candidate's remain."""
    source = read(folder)

    assert {"kernel.h", "scale.h"} == {Path(header.path).name for header in source.headers}
    assert {"row_softmax", "cumsum_of"} <= source.identifiers
    assert ("<vector>",) == source.includes


def test_a_changed_header_is_another_build(folder: Path) -> None:
    """A library that was built with an older header is not used again."""
    arguments = {
        **dict.fromkeys(("extra_cflags", "extra_cuda_cflags", "extra_sycl_cflags"), None),
        **dict.fromkeys(("extra_ldflags", "with_cuda", "with_sycl"), None),
        "name": "mine",
        "sources": [str(folder / "main.cpp")],
        "extra_include_paths": [str(folder / "include")],
        "build_directory": str(folder),
        "verbose": False,
        "is_standalone": False,
    }
    build = extension._write_ninja_file_and_build_library

    def key() -> str:
        request = BuildRequest.from_call(build, (), dict(arguments))
        assert request is not None
        return request.key("toolkit")

    before = key()
    assert before == key()
    (folder / "include/scale.h").write_text("#pragma once\ninline long cumsum_of();\n")
    assert before != key()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kernel.h", "#define HEADER <vector>\n#include HEADER\n"),
        ("include/vector", "// hides the standard library's\n"),
        ("include/math.h", "// hides the system's\n"),
        ("include/torch/extension.h", "// hides torch's\n"),
        ("ATen/ATen.h", "// hides torch's\n"),
    ],
)
def test_torch_builds_what_hides_headers_or_names_them_by_macros(
    folder: Path, name: str, text: str
) -> None:
    """What such a source includes is not known before the compiler runs."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    main = folder / "main.cpp"
    main.write_text(f'#include "ATen/ATen.h"\n{main.read_text()}')

    with pytest.raises(LocalHeadersError):
        read(folder)


@pytest.mark.parametrize(
    ("header", "first"),
    [
        ("#pragma once\n#include <torch/extension.h>\n", True),
        ("#define NDEBUG\n#include <torch/extension.h>\n", False),
    ],
)
def test_a_precompiled_header_needs_torch_before_any_macro(
    folder: Path, header: str, first: bool
) -> None:
    """A macro of the candidate's own header could change what torch's headers declare."""
    (folder / "kernel.h").write_text(header)

    assert first == includes_torch_first(read(folder))
