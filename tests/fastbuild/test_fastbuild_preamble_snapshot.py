"""Laws of stored snapshots, with the real preprocessor and a small parser."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.nvcc import preamble_snapshot
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import NvccHalf, split_preamble
from actors.evaluator.fastbuild.nvcc.nvcc_steps import NvccSteps
from actors.evaluator.fastbuild.nvcc.parser_image import ParserImage, machine_identity
from actors.evaluator.fastbuild.nvcc.preamble_snapshot import (
    MOST_SNAPSHOTS,
    HalfInput,
    PreambleSnapshot,
    remove_unused_snapshots,
    store_preamble_snapshot,
)
from actors.evaluator.fastbuild.request.compiler_process import Deadline

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("g++") is None, reason="images are for x86-64"
)
PARSER = """
#include <cstdio>
int main(int, char** arguments) {
  FILE* file = fopen(arguments[1], "r");
  while (getc(file) != EOF);
}
"""
HEADERS = {
    "include/cuda_runtime.h": "#pragma once\nint runtime;\n",
    "include/stark/preamble.h": "#include <own.h>\n#pragma once\nint preamble;\n",
    "own/own.h": "int own;\n",
}


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parser")
    (folder / "parser.cpp").write_text(PARSER)
    subprocess.run(["g++", "parser.cpp", "-o", "parser"], cwd=folder, check=True)
    return folder / "parser"


@pytest.fixture
def given(parser: Path, tmp_path: Path) -> HalfInput:
    """One half, whose text is written."""
    for name, text in HEADERS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "k.cu").write_text("int mine;\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "toolkit").mkdir()
    text = (
        f'gcc -E -x c++ -isystem "{tmp_path}/own" -isystem "{tmp_path}/include" '
        f'-include "cuda_runtime.h" -include "stark/preamble.h" '
        f'"{tmp_path}/k.cu" -o "{tmp_path}/out/k.ii"'
    )
    steps = NvccSteps(
        commands={"device text": text, "cicc": f'"{parser}" "{tmp_path}/out/k.ii"'},
        settings={"PATH": os.environ["PATH"]},
    )
    subprocess.run(["/bin/sh", "-c", text], check=True)
    return HalfInput(
        half=NvccHalf(kind="device", text="device text", parser="cicc"),
        steps=steps,
        scratch=tmp_path / "out",
        own_folder=tmp_path / "own",
        source=f"{tmp_path}/k.cu",
    )


@pytest.fixture
def toolkit(tmp_path: Path) -> Toolkit:
    return Toolkit(tmp_path / "toolkit")


@pytest.fixture
def is_stored(toolkit: Toolkit, given: HalfInput) -> Callable[[], bool]:
    """A function that stores the snapshot, if it can be, and returns whether it is found."""

    def store() -> bool:
        store_preamble_snapshot(toolkit, given, Deadline(60.0), lambda: True)
        return PreambleSnapshot.find(toolkit, given) is not None

    return store


def test_a_half_is_used_while_its_headers_are_the_same(
    toolkit: Toolkit, given: HalfInput, is_stored: Callable[[], bool], tmp_path: Path
) -> None:
    """An update of CUDA in its folder changes headers and no command."""
    assert is_stored()
    shutil.rmtree(tmp_path / "own")  # the headers that only the probe had
    assert PreambleSnapshot.find(toolkit, given) is not None
    header = tmp_path / "include/stark/preamble.h"
    header.write_text(header.read_text().replace("preamble;", "replaced;"))
    assert PreambleSnapshot.find(toolkit, given) is None
    header.unlink()
    assert PreambleSnapshot.find(toolkit, given) is None


def test_a_half_is_for_the_compilers_and_headers_that_made_it(
    toolkit: Toolkit, given: HalfInput, is_stored: Callable[[], bool], parser: Path, tmp_path: Path
) -> None:
    """A package may be unpacked with the times and sizes of the one before, or change a program."""
    assert is_stored()
    header = tmp_path / "include/cuda_runtime.h"
    before = header.stat()
    header.write_text(header.read_text().replace("runtime;", "replace;"))
    os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert header.stat().st_size == before.st_size
    assert PreambleSnapshot.find(toolkit, given) is None

    remove_unused_snapshots(toolkit)
    subprocess.run(["/bin/sh", "-c", given.steps.commands["device text"]], check=True)
    assert is_stored()
    os.utime(parser)
    assert PreambleSnapshot.find(toolkit, given) is None


def test_a_half_knows_the_names_of_its_headers(
    toolkit: Toolkit, given: HalfInput, is_stored: Callable[[], bool], tmp_path: Path
) -> None:
    """So an error is told without reading 1,800 headers once more."""
    header = tmp_path / "include/stark/preamble.h"
    header.write_text("#define FROM_MACRO 1\n" + header.read_text() + "void declared_here(int);\n")
    subprocess.run(["/bin/sh", "-c", given.steps.commands["device text"]], check=True)
    assert is_stored()
    stored = PreambleSnapshot.find(toolkit, given)
    assert stored is not None
    assert {"FROM_MACRO", "declared_here"} <= stored.declared


@pytest.mark.parametrize("strips", [False, True])
def test_a_parser_without_bodies_has_one_with_them_beside_it(
    toolkit: Toolkit,
    given: HalfInput,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    strips: bool,
) -> None:
    """It does not go through all bodies at its end, which takes long; the other tells errors."""
    seen: list[str] = []
    make = ParserImage.make

    def noted(self: ParserImage, command: str, text: Path, *rest: Any) -> bool:
        seen.append(text.read_text())
        return make(self, command, text, *rest)

    monkeypatch.setattr(ParserImage, "make", noted)
    preamble = tmp_path / "include/stark/preamble.h"
    (tmp_path / "include/stark/common_end.h").write_text("int common_end;\n")
    text = preamble.read_text() + "int body() { return 7; }\n#include <stark/common_end.h>\n"
    preamble.write_text(text)
    subprocess.run(["/bin/sh", "-c", given.steps.commands["device text"]], check=True)
    stripped = text_up_to_end(given).replace("{ return 7; }", ";") if strips else ""
    store_preamble_snapshot(toolkit, given, Deadline(60.0), lambda: True, stripped=stripped)
    stored = PreambleSnapshot.find(toolkit, given)
    assert stored is not None
    assert strips == stored.is_stripped
    assert [False, True] if strips else [True] == ["return 7" in text for text in seen]
    assert all("common_end;" in text for text in seen)
    for whole in [False, True] if strips else [False]:
        assert stored.preprocess(given, Deadline(60.0))
        ran = stored.parse(given, Deadline(60.0), whole=whole)
        assert ran is not None
        assert ran.status == 0


def text_up_to_end(given: HalfInput) -> str:
    parts = split_preamble(given.steps.output("device text").read_text())
    assert parts is not None
    return parts[0]


def test_a_half_of_old_headers_makes_place_for_the_new_one(
    toolkit: Toolkit, given: HalfInput, is_stored: Callable[[], bool], tmp_path: Path
) -> None:
    """Its name is the same."""
    assert is_stored()
    with (tmp_path / "include/stark/preamble.h").open("a") as file:
        file.write("int another;\n")
    subprocess.run(["/bin/sh", "-c", given.steps.commands["device text"]], check=True)
    assert not is_stored()
    remove_unused_snapshots(toolkit)
    assert is_stored()


def test_only_finished_snapshots_of_this_machine_count(
    toolkit: Toolkit, is_stored: Callable[[], bool]
) -> None:
    """After an update of the kernel no snapshot was stored any more."""
    for number in range(MOST_SNAPSHOTS):
        (toolkit.snapshots_folder / "former" / str(number)).mkdir(parents=True)
        (toolkit.snapshots_folder / f"former{number}").mkdir()
        (toolkit.snapshots_folder / machine_identity() / f".half-{number}").mkdir(parents=True)
    assert is_stored()


@pytest.mark.parametrize(
    ("large", "count", "stored"),
    [(1 << 60, 0, True), (1 << 60, 1, False), (0, 1, True), (0, 2, False)],
)
def test_there_are_never_more_snapshots_than_the_most(
    toolkit: Toolkit,
    is_stored: Callable[[], bool],
    monkeypatch: pytest.MonkeyPatch,
    large: int,
    count: int,
    stored: bool,
) -> None:
    """Each has the size of a parser's memory; a large disk has room for twice as many."""
    monkeypatch.setattr(preamble_snapshot, "LARGE_FREE", large)
    for number in range(MOST_SNAPSHOTS * count):
        (toolkit.snapshots_folder / machine_identity() / str(number)).mkdir(parents=True)
    assert stored == is_stored()


def test_the_snapshot_prepared_longest_ago_makes_place(
    toolkit: Toolkit, is_stored: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine on which other headers were usual before would never have one of the new ones."""
    monkeypatch.setattr(preamble_snapshot, "LARGE_FREE", 1 << 60)
    own = toolkit.snapshots_folder / machine_identity()
    for number in range(MOST_SNAPSHOTS):
        (own / str(number)).mkdir(parents=True)
        before = time.time() - 1800 - 600 * number
        os.utime(own / str(number), (before, before))
    assert is_stored()
    assert not (own / str(MOST_SNAPSHOTS - 1)).exists()
    assert MOST_SNAPSHOTS == len(list(own.iterdir()))


def test_snapshots_of_machines_that_are_gone_are_removed(
    toolkit: Toolkit, is_stored: Callable[[], bool]
) -> None:
    """A kernel of last month will not come back; one of last week may be another host's."""
    assert is_stored()
    own = toolkit.snapshots_folder / machine_identity()
    for name, days in (("gone", 31), ("other", 7), (own.name, 31)):
        (toolkit.snapshots_folder / name / "snapshot").mkdir(parents=True, exist_ok=True)
        then = time.time() - days * 86400
        os.utime(toolkit.snapshots_folder / name, (then, then))
    remove_unused_snapshots(toolkit)
    assert {"other", own.name} == {each.name for each in toolkit.snapshots_folder.iterdir()}
    assert time.time() - own.stat().st_mtime < 3600
    assert is_stored()
