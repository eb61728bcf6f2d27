"""Laws of whole builds with real compilers: way, error text and result."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.evaluator.fastbuild.candidate_process import import_in_child
from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.light_build import LightBuildUnsupportedError, check_symbols
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import mark_missing_kernels
from actors.evaluator.fastbuild.request.added_headers import PYBIND
from actors.evaluator.fastbuild.request.compiler_process import Deadline, run_compiler
from actors.evaluator.fastbuild.request.flag_set import FlagSet
from actors.evaluator.fastbuild.request.source_requirements import flag_sets_of
from actors.evaluator.fastbuild.store.build_record import ImportReport
from actors.evaluator.fastbuild.store.result_cache import ResultCache
from actors.evaluator.fastbuild.toolkit_builder import prepare_toolkit

CANDIDATES = Path(__file__).parent / "candidates"


def built(name: str, store: Path, folder: Path) -> ImportReport:
    (folder / "extensions").mkdir(exist_ok=True)
    return import_in_child(CANDIDATES / f"{name}.py", store, folder, limit_s=100)


@pytest.mark.long  # the cached candidate below is one of them
@pytest.mark.usefixtures("toolkit")
@pytest.mark.parametrize(
    ("name", "binding"),
    [
        ("cpu_many_arguments", "table"),
        ("cpu_literal_tensor", "table"),
        ("cpu_load_files", "table"),
        ("cpu_odd_argument", "pybind"),
    ],
)
def test_a_correct_candidate_is_built_with_light_headers(
    name: str, binding: str, store: Path, tmp_path: Path
) -> None:
    """The candidate imports and runs, and torch did not build it."""
    prepare_toolkit(store, [FlagSet(cpp_headers=(PYBIND,) if binding == "pybind" else ())])
    report = built(name, store, tmp_path)

    assert report.error == ""
    assert report.results
    assert [("light", binding, True)] == [
        (one.way, one.binding, one.precompiled) for one in report.builds
    ]


@pytest.mark.usefixtures("toolkit")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken_name", "main.cpp:4:14: error: ‘factor’ was not declared in this scope"),
        pytest.param(
            "broken_semicolon",
            "main.cpp:5:3: error: expected ‘,’ or ‘;’ before ‘return’",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "broken_include",
            "main.cpp:3:10: fatal error: no_such_header.h",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_error_of_a_broken_candidate_names_its_own_line(
    name: str, message: str, store: Path, tmp_path: Path
) -> None:
    """The error is the compiler's, with the candidate's line number, and torch does not build."""
    report = built(name, store, tmp_path)

    assert "refused" == report.builds[-1].way
    assert message in report.error
    assert f"Error building extension '{name}'" in report.error


@pytest.mark.usefixtures("toolkit")
def test_a_function_that_nothing_declares_is_an_error_of_one_compilation(
    store: Path, tmp_path: Path
) -> None:
    """It was compiled again with pybind11, which took ten times as long."""
    report = built("broken_listed", store, tmp_path)

    assert "refused" == report.builds[-1].way
    assert "error: ‘forward’ was not declared in this scope" in report.error
    assert "In function ‘void pybind11_init_broken_listed(pybind11::module_&)’" in report.error
    compiled = [each.name for each in report.builds[-1].phases if each.name.startswith("g++")]
    assert ["g++ main.cpp"] == compiled


def test_a_cached_candidate_is_not_built_again(
    store: Path, toolkit: Toolkit, tmp_path: Path
) -> None:
    """The result of the first build, of a table, is used for the second one in another folder."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    result_cache = ResultCache(store / "results")
    key = result_cache.key((CANDIDATES / "cpu_relu.py").read_text(encoding="utf-8"), toolkit.key)
    before = built("cpu_relu", store, first)
    assert result_cache.store(key, first / "extensions")
    assert result_cache.copy_to(key, second / "extensions")
    after = built("cpu_relu", store, second)

    assert [("light", "table", True)] == [
        (one.way, one.binding, one.precompiled) for one in before.builds
    ]
    assert before.results
    assert ["ready"] == [one.way for one in after.builds]
    assert before.results == after.results


def test_a_killed_build_is_not_stored(tmp_path: Path) -> None:
    """torch's lock of a killed build would block every build that copies its folder."""
    extensions = tmp_path / "extensions"
    (extensions / "cpu_relu").mkdir(parents=True)
    (extensions / "cpu_relu/lock").touch()
    assert ResultCache(tmp_path / "results").store("key", extensions) is False


@pytest.mark.long
@pytest.mark.usefixtures("toolkit")
@pytest.mark.parametrize(
    "name",
    [
        *("cpu_library", "cpu_autograd", "cpu_autograd_files", "cpu_load_header"),
        *("cpu_no_implicit_headers", "cpu_device_functions"),
    ],
)
def test_operators_graphs_and_own_headers_are_built_with_light_headers(
    name: str, store: Path, tmp_path: Path
) -> None:
    """The results are those of torch's own functions, with which the candidate compares them."""
    text = (CANDIDATES / f"{name}.py").read_text(encoding="utf-8")
    prepare_toolkit(store, flag_sets_of(text, cuda=False))
    report = built(name, store, tmp_path)

    assert report.error == ""
    assert ["light"] == [one.way for one in report.builds]
    assert report.results


def test_a_launch_that_only_gpp_has_seen_is_noticed(tmp_path: Path) -> None:
    """Its kernel is in no device code, and the launch would do nothing: torch builds it."""
    launcher = "template< class T> static void __wrapper__device_stub_k(T *&x) { launch(0);}"
    seen = "template<> void __wrapper__device_stub_k(short *&x) { launch(1);}"
    calls = "void f(short *x, int *y) { __wrapper__device_stub_k(x); __wrapper__device_stub_k(y); }"
    text = mark_missing_kernels(f"void launch(int);\n{launcher}\n{seen}\n{calls}\n")
    assert text is not None
    (tmp_path / "k.cpp").write_text(text)
    argv = ["c++", "-O2", "-shared", "-fPIC", "k.cpp", "-o", "k.so"]
    assert not run_compiler(argv, tmp_path, Deadline(60.0)).status

    assert "launch(0)" not in text
    assert "launch(1)" in text
    with pytest.raises(LightBuildUnsupportedError, match="launches a kernel"):
        check_symbols(tmp_path / "k.so", Toolkit(tmp_path), Deadline(60.0))
    assert mark_missing_kernels(launcher.replace("{", "\n{")) is None
