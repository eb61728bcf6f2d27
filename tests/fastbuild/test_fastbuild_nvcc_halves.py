"""Laws of nvcc's two halves, with a toolchain of shell scripts that copies its inputs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.evaluator.fastbuild import nvcc_compile
from actors.evaluator.fastbuild.build_context import BuildContext
from actors.evaluator.fastbuild.build_record import Stopwatch
from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.compile_commands import CompileCommand
from actors.evaluator.fastbuild.compiler_process import Deadline
from actors.evaluator.fastbuild.probe_build import learn_from_probe
from actors.evaluator.fastbuild.toolkit import Toolkit

BODY = "{ return 1; }"
TEXT = f'# 0 "$source"\nint f() {BODY}\n# 1 "/x/stark/common_end.h"\n'
# Each tool copies its last argument to where it is told to write, cicc without what is everybody's,
# and notes what it was given.
TOOL = """#!/bin/sh
name=$(basename $0); out=
for word in "$@"; do
  case $before in -o|--gen_c_file_name) out=$word;; esac
  [ -f "$word" ] && [ "$word" != "$out" ] && given=$word
  before=$word
done
cat "$given" >> "$NOTES/$name"
case "$REFUSING" in $name) grep -q return "$given" || { echo unheard of; exit 1; };; esac
case $name in cicc) sed "1,/common_end/d" "$given" > "$out";; *) cp "$given" "$out";; esac
"""
GCC = """#!/bin/sh
case " $* " in *" -E "*) ;; *) exec copier "$@";; esac
for word in "$@"; do
  case $word in *.cu) source=$word;; esac
  case $before in -o) out=$word;; esac
  before=$word
done
{ cat <<END
%sEND
cat $source; } > $out
"""
NVCC = """#!/bin/sh
for word in "$@"; do
  case $word in *.cu) s=$word;; esac
  case $before in --keep-dir) k=$word;; -o) o=$word;; esac
  before=$word
done
cat >&2 <<END
#$ _HERE_=/x
#$ gcc -E -x c++ $s -o $k/k.cpp4.ii
#$ cudafe++ --gen_c_file_name $k/k.cudafe1.cpp --module_id_file_name "$k/k.module_id" $k/k.cpp4.ii
#$ gcc -D__CUDA_ARCH__=900 -E -x c++ $s -o $k/k.cpp1.ii
#$ cicc $k/k.cpp1.ii -o $k/k.ptx
#$ ptxas $k/k.ptx -o $k/k.cubin
#$ fatbinary $k/k.cubin -o $k/k.fatbin
#$ gcc -c -x c++ $k/k.cudafe1.cpp -o $o
END
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toolchain, first on PATH, and where it notes what it was given."""
    tools = tmp_path / "tools"
    tools.mkdir()
    texts = {"nvcc": NVCC, "gcc": GCC % TEXT}
    for name in ("nvcc", "gcc", "copier", "cudafe++", "cicc", "ptxas", "fatbinary"):
        (tools / name).write_text(texts.get(name, TOOL))
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    found = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(found))
    monkeypatch.delenv("REFUSING", raising=False)
    return found


@pytest.fixture
def build(tmp_path: Path, notes: Path) -> Callable[[str], tuple[nvcc_compile.CudaCompilation, str]]:
    """Compile a text (or learn from it) and return how it went and what g++ got."""

    def run(text: str, *, probe: bool = False) -> tuple[nvcc_compile.CudaCompilation, str]:
        place = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        (place / "out").mkdir(parents=True)
        (place / "k.cu").write_text(text)
        context = BuildContext(
            toolkit=Toolkit(tmp_path / "toolkit"),
            folder=place / "out",
            stopwatch=Stopwatch(),
            deadline=Deadline(60.0),
        )
        order = CompileCommand(source="k.cu", output="k.o", command="", compiler="nvcc", flags=())
        source = CandidateSource.read(str(place / "k.cu"))
        notes.mkdir(exist_ok=True)
        for old in notes.iterdir():
            old.unlink()
        if probe:
            learn_from_probe(context, order, source)
            return nvcc_compile.CudaCompilation(), ""
        compiled = nvcc_compile.compile_cuda(context, order, source)
        made = place / "out/k.o"
        return compiled, made.read_text() if made.exists() else ""

    return run


def given(notes: Path, tool: str) -> str:
    return (notes / tool).read_text()


def test_the_front_ends_get_declarations_and_gpp_the_whole(
    build: Callable[..., tuple[nvcc_compile.CudaCompilation, str]], notes: Path
) -> None:
    """Else a function of torch's that a candidate calls would be missing in its library."""
    build("int probe;\n", probe=True)
    compiled, made = build("int mine;\n")

    assert not compiled.failed
    assert compiled.precompiled
    for tool in ("cudafe++", "cicc"):
        assert BODY not in given(notes, tool)
        assert "int mine;" in given(notes, tool)
    lead, _, rest = made.partition("\n")
    assert BODY in Path(lead.split('"')[1]).read_text()
    assert "int mine;" in rest


@pytest.mark.parametrize("tool", ["cudafe++", "cicc"])
def test_a_caller_that_needs_the_whole_text_gets_it(
    build: Callable[..., tuple[nvcc_compile.CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
) -> None:
    """What one of them refuses without bodies is compiled with them, and no candidate notices."""
    build("int probe;\n", probe=True)
    monkeypatch.setenv("REFUSING", tool)
    compiled, made = build("int mine;\n")

    assert not compiled.failed
    assert "int mine;" in made
    assert BODY in given(notes, tool)


@pytest.mark.parametrize("tool", ["cudafe++", "cicc"])
def test_what_did_not_do_for_the_probe_is_not_kept(
    build: Callable[..., tuple[nvcc_compile.CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
) -> None:
    """With a compiler that we do not know well everybody gets the whole text."""
    monkeypatch.setenv("REFUSING", tool)
    build("int probe;\n", probe=True)
    compiled, _ = build("int mine;\n")

    assert not compiled.failed
    assert given(notes, tool).count(BODY) == 1
