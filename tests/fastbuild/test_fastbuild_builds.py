"""Laws of whole builds, with real compilers: the way, the words, and what comes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.evaluator.fastbuild.__main__ import build
from actors.evaluator.fastbuild.candidate_import import ImportReport
from actors.evaluator.fastbuild.result_cache import ResultCache
from actors.evaluator.fastbuild.toolkit import Toolkit

CANDIDATES = Path(__file__).parent / "candidates"


def built(name: str, store: Path, folder: Path) -> ImportReport:
    (folder / "extensions").mkdir(exist_ok=True)
    return build(CANDIDATES / f"{name}.py", store, folder, limit_s=100)


@pytest.mark.usefixtures("toolkit")
@pytest.mark.parametrize(
    ("name", "binding"),
    [
        ("cpu_relu", "table"),
        ("cpu_many_arguments", "table"),
        ("cpu_literal_tensor", "table"),
        ("cpu_load_files", "table"),
        ("cpu_odd_argument", "pybind"),
    ],
)
def test_an_honest_candidate_is_built_the_light_way(
    name: str, binding: str, store: Path, tmp_path: Path
) -> None:
    """It imports, runs and was not built by torch."""
    report = built(name, store, tmp_path)

    assert report.error == ""
    assert report.results
    assert [("light", binding, True)] == [
        (one.way, one.binding, one.precompiled) for one in report.builds
    ]


@pytest.mark.usefixtures("toolkit")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken_name", "main.cpp:4:14: error: ‘factor’ was not declared in this scope"),
        ("broken_semicolon", "main.cpp:5:3: error: expected ‘,’ or ‘;’ before ‘return’"),
        ("broken_include", "main.cpp:3:10: fatal error: no_such_header.h"),
    ],
)
def test_a_broken_candidate_is_told_its_own_line(
    name: str, words: str, store: Path, tmp_path: Path
) -> None:
    """The compiler's words, the candidate's own line numbers, without a second build by torch."""
    report = built(name, store, tmp_path)

    assert "refused" == report.builds[-1].way
    assert words in report.error
    assert f"Error building extension '{name}'" in report.error


def test_the_same_candidate_is_not_built_twice(
    store: Path, toolkit: Toolkit, tmp_path: Path
) -> None:
    """What was kept after the first build serves the second, in another folder."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    result_cache = ResultCache(store / "results")
    key = result_cache.key((CANDIDATES / "cpu_relu.py").read_text(encoding="utf-8"), toolkit.key)
    before = built("cpu_relu", store, first)
    assert result_cache.store(key, first / "extensions")
    assert result_cache.copy_to(key, second / "extensions")
    after = built("cpu_relu", store, second)

    assert ["ready"] == [one.way for one in after.builds]
    assert before.results == after.results


@pytest.mark.usefixtures("toolkit")
def test_a_killed_build_leaves_nothing_that_blocks(store: Path, tmp_path: Path) -> None:
    """torch's lock of a killed build lies in that build's folder; the next has its own."""
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "extensions/cpu_relu").mkdir(parents=True)
    (first / "extensions/cpu_relu/lock").touch()
    second.mkdir()
    assert ResultCache(store / "others").store("key", first / "extensions") is False

    assert "" == built("cpu_relu", store, second).error
