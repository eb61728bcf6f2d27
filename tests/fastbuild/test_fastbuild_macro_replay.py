"""Laws of the macros that stand for a preamble, with the real preprocessor."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from actors.evaluator.fastbuild.nvcc.macro_replay import (
    MacroReplay,
    MacroReplayError,
    split_at_source,
)
from actors.evaluator.fastbuild.request.compiler_process import Deadline

HEADERS = {
    "include/cuda_runtime.h": "#define RUNTIME 1\n",
    "include/stark/preamble.h": "#pragma once\n#include <lib/once.h>\n#include <lib/guarded.h>\n"
    "#include <lib/each_time.h>\nint first = __COUNTER__, second = __COUNTER__;\n",
    "include/lib/once.h": "#pragma once\n#define ONCE(x) x + RUNTIME\nint once;\n",
    "include/lib/guarded.h": "#ifndef GUARD\n#define GUARD\nint guarded;\n#endif\n"
    "#undef __cpp_rtti\n#undef __STDC_HOSTED__\n#define __STDC_HOSTED__ 2\n",
    "include/lib/each_time.h": "int each_time();\n",
    "include/lib/beside.h": '#include "once.h"\nint beside;\n',
}
SOURCE = """#include <stark/preamble.h>
#include <lib/once.h>
#include <lib/guarded.h>
#include <lib/each_time.h>
#include "own.h"
#ifdef __cpp_rtti
#error a macro is back
#endif
int mine = ONCE(__STDC_HOSTED__) + __COUNTER__ + __LINE__;
const char* file = __FILE__;
"""


@pytest.fixture
def replay(tmp_path: Path) -> MacroReplay:
    for name, text in HEADERS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own.h").write_text("int own;\n")
    (tmp_path / "k.cu").write_text(SOURCE)
    (tmp_path / "replay").mkdir()
    return MacroReplay(tmp_path / "replay")


def command(folder: Path, lead: str = '-include "cuda_runtime.h" ') -> str:
    return (
        f'gcc -E -x c++ -isystem "{folder}/include" {lead}-include "stark/preamble.h" '
        f'"{folder}/k.cu" -o "{folder}/k.ii"'
    )


def made(replay: MacroReplay, folder: Path) -> str:
    return replay.make(command(folder), f"{folder}/k.cu", os.environ, Deadline(60.0))


def whole_text(folder: Path) -> tuple[str, str]:
    subprocess.run(["/bin/sh", "-c", command(folder)], check=True)
    parts = split_at_source((folder / "k.ii").read_text(), f"{folder}/k.cu")
    assert parts is not None
    return parts


def lines_of_code(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def test_the_text_after_a_preamble_is_the_same_without_it(
    replay: MacroReplay, tmp_path: Path
) -> None:
    """Headers that are read once, macros that the preamble defines or removes, and __COUNTER__."""
    preamble = made(replay, tmp_path)
    expected = whole_text(tmp_path)
    rest = replay.preprocess(command(tmp_path), f"{tmp_path}/k.cu", os.environ, Deadline(60.0))

    assert preamble == expected[0]
    assert rest is not None
    assert lines_of_code(rest) == lines_of_code(expected[1])
    last = [marker for marker in re.findall(r"^# .*", rest, re.MULTILINE) if "k.cu" in marker][-1]
    assert last == [m for m in re.findall(r"^# .*", expected[1], re.MULTILINE) if "k.cu" in m][-1]
    assert (tmp_path / "k.ii").read_text().startswith(expected[0])  # the whole text stays


def test_a_header_that_would_be_read_twice_needs_the_preamble(
    replay: MacroReplay, tmp_path: Path
) -> None:
    """A header beside it includes it in quotes, so that its empty file is not found."""
    made(replay, tmp_path)
    (tmp_path / "k.cu").write_text(SOURCE + "#include <lib/beside.h>\n")
    text = replay.preprocess(command(tmp_path), f"{tmp_path}/k.cu", os.environ, Deadline(60.0))
    assert text is None


def test_an_error_of_the_preprocessor_needs_the_preamble(
    replay: MacroReplay, tmp_path: Path
) -> None:
    """Its text is to be torch's."""
    made(replay, tmp_path)
    (tmp_path / "k.cu").write_text("#include <missing.h>\n")
    text = replay.preprocess(command(tmp_path), f"{tmp_path}/k.cu", os.environ, Deadline(60.0))
    assert text is None


def test_a_command_without_preamble_is_not_replayed(replay: MacroReplay, tmp_path: Path) -> None:
    """nvcc of another version may write its command in another form."""
    with pytest.raises(MacroReplayError):
        replay.make(command(tmp_path, ""), f"{tmp_path}/k.cu", os.environ, Deadline(60.0))
