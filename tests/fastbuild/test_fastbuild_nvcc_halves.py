"""Laws of nvcc's two halves, with a toolchain of shell scripts that copy their input."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.nvcc import probe_build
from actors.evaluator.fastbuild.nvcc.nvcc_compile import (
    BuildContext,
    CudaCompilation,
    compile_cuda,
)
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import (
    PreambleCache,
    anonymous_aliases,
    split_preamble,
)
from actors.evaluator.fastbuild.nvcc.preamble_snapshot import (
    LEAST_FREE,
    HalfInput,
    PreambleSnapshot,
)
from actors.evaluator.fastbuild.nvcc.probe_build import learn_from_probe
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import CompileCommand
from actors.evaluator.fastbuild.request.compiler_process import CompilerRun, Deadline
from actors.evaluator.fastbuild.store.build_record import Stopwatch

BODY = "{ return 1; }"
TEXT = f'# 0 "$source"\nint f() {BODY}\n# 1 "/x/stark/common_end.h"\n'
# Each tool copies its input file to its output file and appends it to a file in NOTES; cicc leaves
# the preamble out of the copy.
TOOL = """#!/bin/sh
name=$(basename $0); out=
for word in "$@"; do
  case $before in -o|--gen_c_file_name) out=$word;; esac
  [ -f "$word" ] && [ "$word" != "$out" ] && given=$word
  before=$word
done
cat "$given" >> "$NOTES/$name"
case "$BROKEN" in $name|${given##*/}) echo "$SAYS"; exit 1;; esac
case "$SLOW" in $name) echo "(C7512) Potential Performance Loss: in a row in '_Z1k'";; esac
case "$REFUSING" in $name) grep -q return "$given" || { echo unknown; exit 1; };; esac
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
echo "$@" >> "$NOTES/nvcc"
for word in "$@"; do
  case $word in *.cu) s=$word;; esac
  case $before in --keep-dir) k=$word;; -o) o=$word;; esac
  before=$word
done
[ -n "$TWO" ] && second="#$ gcc -D__CUDA_ARCH__=800 -E -x c++ $s -o $k/k2.cpp1.ii
#$ cicc $k/k2.cpp1.ii -o $k/k2.ptx
#$ ptxas $k/k2.ptx -o $k/k2.cubin
"
cat >&2 <<END
#$ _HERE_=/x
#$ gcc -E -x c++ $s -o $k/k.cpp4.ii
#$ cudafe++ --gen_c_file_name $k/k.cudafe1.cpp --module_id_file_name "$k/k.module_id" $k/k.cpp4.ii
#$ gcc -D__CUDA_ARCH__=900 -E -x c++ $s -o $k/k.cpp1.ii
#$ cicc $k/k.cpp1.ii -o $k/k.ptx
#$ ptxas $k/k.ptx -o $k/k.cubin
${second}#$ fatbinary $k/k.cubin -o $k/k.fatbin
#$ gcc -c -x c++ $k/k.cudafe1.cpp -o $o
END
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toolchain, first on PATH; return the folder in which each tool notes its input."""
    tools = tmp_path / "tools"
    tools.mkdir()
    texts = {"nvcc": NVCC, "gcc": GCC % TEXT}
    for name in ("nvcc", "gcc", "copier", "cudafe++", "cicc", "ptxas", "fatbinary"):
        (tools / name).write_text(texts.get(name, TOOL))
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    folder = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(folder))
    for variable in ("REFUSING", "BROKEN", "SLOW", "TWO"):
        monkeypatch.delenv(variable, raising=False)
    return folder


@pytest.fixture
def build(tmp_path: Path, notes: Path) -> Callable[[str], tuple[CudaCompilation, str]]:
    """A function that compiles a text or learns from it; it returns the result and g++'s input."""

    def run(
        text: str, *, probe: bool = False, added: tuple[str, ...] = ()
    ) -> tuple[CudaCompilation, str]:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        (folder / "out").mkdir(parents=True)
        (folder / "k.cu").write_text(text)
        context = BuildContext(
            toolkit=Toolkit(tmp_path / "toolkit"),
            folder=folder / "out",
            stopwatch=Stopwatch(),
            deadline=Deadline(60.0),
        )
        command = CompileCommand(source="k.cu", output="k.o", command="", compiler="nvcc", flags=())
        source = CandidateSource.read(str(folder / "k.cu"))
        notes.mkdir(exist_ok=True)
        for old in notes.iterdir():
            old.unlink()
        if probe:
            learn_from_probe(context, command, source, added)
            return CudaCompilation(), ""
        compiled = compile_cuda(context, command, source)
        made = folder / "out/k.o"
        return compiled, made.read_text() if made.exists() else ""

    return run


@pytest.mark.parametrize("tool", ["ptxas", "cicc"])
def test_what_ptxas_says_of_lost_time_is_kept(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """A build that succeeds drops all that compilers print, but for this."""
    monkeypatch.setenv("SLOW", tool)
    (tmp_path / "out").mkdir()
    (tmp_path / "k.cu").write_text("int mine;\n")
    notes.mkdir(exist_ok=True)
    context = BuildContext(
        toolkit=Toolkit(tmp_path / "toolkit"),
        folder=tmp_path / "out",
        stopwatch=Stopwatch(),
        deadline=Deadline(60.0),
    )
    command = CompileCommand(source="k.cu", output="k.o", command="", compiler="nvcc", flags=())
    compiled = compile_cuda(context, command, CandidateSource.read(str(tmp_path / "k.cu")))
    assert not compiled.failed
    assert context.remarks == ({"in a row in k"} if tool == "ptxas" else set())


def input_of(notes: Path, tool: str) -> str:
    return (notes / tool).read_text()


def test_the_front_ends_get_declarations_and_gpp_the_whole_text(
    build: Callable[..., tuple[CudaCompilation, str]], notes: Path
) -> None:
    """Without the bodies for g++, torch's inline functions would be missing in the library."""
    build("int probe;\n", probe=True)
    compiled, made = build("int mine;\n")

    assert not compiled.failed
    assert compiled.precompiled
    for tool in ("cudafe++", "cicc"):
        assert BODY not in input_of(notes, tool)
        assert "int mine;" in input_of(notes, tool)
    lead, _, rest = made.partition("\n")
    assert BODY in Path(lead.split('"')[1]).read_text()
    assert "int mine;" in rest


def test_flags_of_the_host_compiler_alone_teach_nothing_new(
    build: Callable[..., tuple[CudaCompilation, str]], notes: Path, tmp_path: Path
) -> None:
    """The front ends parse all headers for a probe; a lost precompiled header is made again."""
    build("int probe;\n", probe=True)
    shutil.rmtree(tmp_path / "toolkit/precompiled")
    build("int probe;\n", probe=True)
    ran = {note.name for note in notes.iterdir()}
    compiled, _ = build("int mine;\n")

    assert not {"cudafe++", "cicc"} & ran
    assert compiled.precompiled


@pytest.mark.parametrize("tool", ["cudafe++", "cicc"])
def test_a_source_that_fails_with_declarations_gets_the_whole_text(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
) -> None:
    """A text that a front end rejects without bodies is compiled with them."""
    build("int probe;\n", probe=True)
    monkeypatch.setenv("REFUSING", tool)
    compiled, made = build("int mine;\n")

    assert not compiled.failed
    assert "int mine;" in made
    assert BODY in input_of(notes, tool)


@pytest.mark.parametrize("tool", ["cudafe++", "cicc"])
def test_a_preamble_that_failed_for_the_probe_is_not_stored(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
) -> None:
    """With a compiler that rejects the declarations every source gets the whole text."""
    monkeypatch.setenv("REFUSING", tool)
    build("int probe;\n", probe=True)
    compiled, _ = build("int mine;\n")

    assert not compiled.failed
    assert input_of(notes, tool).count(BODY) == 1


def test_each_architecture_has_a_half_of_its_own(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine code of every architecture goes into the library, and each gets declarations."""
    monkeypatch.setenv("TWO", "1")
    build("int probe;\n", probe=True)
    compiled, made = build("int mine;\n")

    assert not compiled.failed
    assert compiled.precompiled
    for tool in ("cicc", "ptxas"):
        assert input_of(notes, tool).count("int mine;") == 2
    assert BODY not in input_of(notes, "cicc")
    assert "int mine;" in made


def test_anonymous_namespaces_of_a_preamble_have_the_candidates_names() -> None:
    """cub's headers have one: without the alias g++ rejects the code that registers variables."""
    written = (
        "namespace cuda { namespace std { inline namespace __4 {\n"
        "namespace _GLOBAL__N__probe { }; using namespace ::cuda::std::__4::_GLOBAL__N__probe;\n"
        "namespace _GLOBAL__N__probe { int ignored; }\n"
        "}}} namespace _GLOBAL__N__probe { }; using namespace ::_GLOBAL__N__probe;\n"
    )
    rest = "int mine;\n#define _NV_ANON_NAMESPACE _GLOBAL__N__mine\n"
    assert anonymous_aliases(written, rest) == (
        "namespace cuda { namespace std { namespace __4 { "
        "namespace _GLOBAL__N__mine = _GLOBAL__N__probe; } } } "
        "namespace _GLOBAL__N__mine = _GLOBAL__N__probe;\n"
    )
    assert anonymous_aliases("int common;\n", rest) == ""
    assert anonymous_aliases(written, "int mine;\n") == ""


def test_only_the_front_end_that_failed_parses_the_whole_text(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broken candidate waits for one more parse, not for another build."""
    build("int probe;\n", probe=True)
    monkeypatch.setenv("BROKEN", "cudafe++")
    compiled, _ = build("int mine;\n")

    assert compiled.failed == "cudafe++"
    assert input_of(notes, "cudafe++").count("int mine;") == 2
    assert input_of(notes, "cicc").count("int mine;") == 1


@pytest.mark.parametrize("tool", ["cudafe++", "cicc"])
@pytest.mark.parametrize(
    ("says", "parses"),
    [
        ('k.cu(1): error: class "A<int>" has no member "b"', 1),
        ('k.cu(1): error: expected a ";"', 1),
        ('k.cu(1): error: identifier "b" is undefined', 2),
        ('k.cu(1): error: expected a ";"\n\nk.cu(1): error: identifier "b" is undefined', 2),
        ('/x/a.h(1): error: expected a ";"', 2),
    ],
)
def test_an_error_that_no_body_changes_is_parsed_once(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    says: str,
    parses: int,
) -> None:
    """A wrong member of a class of cub took as long again as its build."""
    build("int probe;\n", probe=True)
    monkeypatch.setenv("BROKEN", tool)
    monkeypatch.setenv("SAYS", says)
    compiled, _ = build("int mine;\n")

    assert compiled.failed == tool
    assert compiled.ran is not None
    assert says in compiled.ran.output
    assert input_of(notes, tool).count("int mine;") == parses


class _Stored:
    """A snapshot without bodies: its parsers say what a test gives them, "" for no error."""

    declared = frozenset(["known"])
    written = ""
    is_stripped = True

    def __init__(self, says: str, whole_says: str | None) -> None:
        self.says = {False: says, True: whole_says}

    def preprocess(self, *_: object) -> bool:
        return True

    def parse(self, given: HalfInput, _: Deadline, *, whole: bool) -> CompilerRun | None:
        given.steps.output(given.half.parser).write_text(TEXT + "int mine;\n")
        says = self.says[whole]
        return None if says is None else CompilerRun(status=bool(says), output=says, seconds=0.0)


@pytest.mark.parametrize("kind", ["host", "device"])
@pytest.mark.parametrize(
    ("whole_says", "is_told_at_once"),
    [
        ("k.cu(1): error: of the whole text\n", True),
        ("/x/a.h(1): error: of the whole text\n", True),
        ("", False),
        (None, False),
    ],
)
def test_an_error_after_headers_without_bodies_is_told_by_a_parser_of_the_whole_text(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    whole_says: str | None,
    is_told_at_once: bool,
) -> None:
    """What it accepts, or where it can't go on, the whole text is parsed."""

    def find(_: Toolkit, given: HalfInput) -> _Stored:
        says = "k.cu(1): error: without bodies\n" if given.half.kind == kind else ""
        return _Stored(says, whole_says)

    monkeypatch.setattr(PreambleSnapshot, "find", find)
    compiled, made = build("int mine;\n")

    parser = {"host": "cudafe++", "device": "cicc"}[kind]
    assert is_told_at_once == (compiled.failed == parser)
    assert is_told_at_once == (not (notes / parser).exists())
    assert is_told_at_once == (not made)
    if compiled.ran is not None and compiled.failed:
        assert compiled.ran.output == whole_says
        assert compiled.declared == {"known"}


def test_an_error_that_no_body_changes_is_told_by_the_parser_without_bodies(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one would say the same a second later."""
    says = 'k.cu(1): error: expected a ";"\n'
    monkeypatch.setattr(PreambleSnapshot, "find", lambda *_: _Stored(says, "not asked"))
    compiled, _ = build("int mine;\n")

    assert compiled.ran is not None
    assert compiled.ran.output == says
    assert not (notes / "cudafe++").exists()


@pytest.mark.parametrize(
    ("file", "is_told_at_once"), [("/x/pybind11/pybind11.h", True), ("/x/a.h", False)]
)
def test_a_condition_on_a_modules_functions_is_told_by_the_devices_parser(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    is_told_at_once: bool,
) -> None:
    """Only g++ had its body: a wrong count of `py::arg` cost two parsers of the whole text."""
    says = f'{file}(1): error: static assertion failed with "the count"\n'
    monkeypatch.setattr(
        PreambleSnapshot,
        "find",
        lambda _, given: _Stored("", says if given.half.kind == "device" else None),
    )
    monkeypatch.setenv("BROKEN", "copier")
    monkeypatch.setenv("SAYS", f"{file}:1:2: error: static assertion failed: the count")
    compiled, _ = build("int mine;\n")

    assert compiled.ran is not None
    assert is_told_at_once == (compiled.failed == "cicc")
    assert is_told_at_once == (compiled.ran.output == says)
    assert is_told_at_once == (not (notes / "cudafe++").exists())


@pytest.mark.parametrize(
    ("says", "parses"),
    [
        ("ptxas error   : Entry function 'k' uses too much shared data", 1),
        ("ptxas fatal   : Unresolved extern function '_Z4funcv'", 2),
    ],
)
def test_what_ptxas_rejects_is_parsed_again_only_where_a_body_is_missing(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    says: str,
    parses: int,
) -> None:
    """The bodies of the preamble's functions change nothing in a candidate's own kernels."""
    build("int probe;\n", probe=True)
    monkeypatch.setenv("BROKEN", "ptxas")
    monkeypatch.setenv("SAYS", says)
    compiled, _ = build("int mine;\n")

    assert compiled.failed == "ptxas"
    assert input_of(notes, "cicc").count("int mine;") == parses


@pytest.mark.parametrize("text", ["cuda.ptx", "k2.ptx"])
@pytest.mark.parametrize("probe", [True, False])
def test_what_ptxas_rejects_for_one_architecture_is_not_built(
    build: Callable[..., tuple[CudaCompilation, str]],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    probe: bool,
) -> None:
    """sm_90 has neither wgmma nor 64 kB of static shared memory; sm_90a has both."""
    monkeypatch.setenv("TWO", "1")
    if probe:
        build("int probe;\n", probe=True)
    monkeypatch.setenv("BROKEN", text)
    monkeypatch.setenv("SAYS", "ptxas error   : Entry function 'k' uses too much shared data")
    compiled, made = build("int mine;\n")

    assert compiled.failed == ("ptxas" if text == "cuda.ptx" else "ptxas 2")
    assert compiled.ran is not None
    assert "too much shared data" in compiled.ran.output
    assert not made


_CUB = "#include <cub/cub.cuh>\nusing Reduce = cub::BlockReduce<float, 128>;\n"


@pytest.mark.parametrize(
    ("says", "more", "compilations"),
    [
        ('class "cub::BlockReduce<float, 128>" has no member "Total"', "", 1),
        ('expected a ";"', "", 1),
        ('expected a ";"', "CUB_RUNTIME_FUNCTION void f();\n", 2),
        ('namespace "cub" has no member "WarpReduce"', "", 2),
        ('expected a ";"\n\nk.cu(2): error: identifier "Sum" is undefined', "", 2),
    ],
)
def test_an_error_that_no_part_of_cub_changes_is_compiled_once(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    says: str,
    more: str,
    compilations: int,
) -> None:
    """The whole of cub took 8 of 13 seconds to say the same; a name may be in another part."""
    monkeypatch.setenv("BROKEN", "cudafe++")
    monkeypatch.setenv("SAYS", f"k.cu(2): error: {says}\n")
    compiled, _ = build(_CUB + more)

    assert compiled.failed == "cudafe++"
    assert len(input_of(notes, "nvcc").splitlines()) == compilations


def test_a_whole_host_half_needs_whole_device_halves(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the host could launch a kernel that cicc has not seen."""
    build("int probe;\n", probe=True)
    monkeypatch.setenv("REFUSING", "cudafe++")
    compiled, _ = build("int mine;\n")

    assert not compiled.failed
    assert BODY in input_of(notes, "cicc")


def test_a_device_half_with_thrust_gets_declarations_of_the_other_headers(
    build: Callable[..., tuple[CudaCompilation, str]], notes: Path
) -> None:
    """It was parsed whole: cicc took a sixth longer."""
    build("int probe;\n", probe=True, added=("thrust/sort.h",))
    compiled, _ = build("int mine;\n")

    assert not compiled.failed
    assert BODY not in input_of(notes, "cudafe++")
    assert BODY not in input_of(notes, "cicc")


def test_a_disk_that_takes_no_images_takes_preambles(
    build: Callable[..., tuple[CudaCompilation, str]], notes: Path, tmp_path: Path
) -> None:
    """The error of a full disk ended `--prepare`, and every build parsed the whole headers."""
    (tmp_path / "toolkit").mkdir()
    Toolkit(tmp_path / "toolkit").snapshots_folder.write_text("no folder can be made here")
    build("int probe;\n", probe=True, added=("thrust/sort.h",))
    compiled, _ = build("int mine;\n")

    assert not compiled.failed
    assert BODY not in input_of(notes, "cudafe++")
    assert BODY not in input_of(notes, "cicc")


def test_a_nearly_full_disk_gets_no_images(
    build: Callable[..., tuple[CudaCompilation, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two halves with thrust take 1.6 GB."""
    (tmp_path / "toolkit").mkdir()
    usage = shutil.disk_usage(tmp_path)._replace(free=LEAST_FREE - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    build("int probe;\n", probe=True, added=("thrust/sort.h",))
    assert not Toolkit(tmp_path / "toolkit").snapshots_folder.exists()


def test_a_preamble_is_stored_before_its_image_is_made(
    build: Callable[..., tuple[CudaCompilation, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An image takes long and may fail; it is made from the whole text."""
    seen: dict[str, bool] = {}

    def store(toolkit: Toolkit, given: HalfInput, *_: object, **__: object) -> None:
        cache, file = PreambleCache(toolkit), given.steps.output(given.half.text)
        text = file.read_text()
        parts = split_preamble(text)
        assert parts is not None
        found = cache.find(given.half, given.steps, parts[0], given.source)
        seen[given.half.kind] = found is not None and BODY in text

    monkeypatch.setattr(probe_build, "store_preamble_snapshot", store)
    build("int probe;\n", probe=True, added=("thrust/sort.h",))
    assert seen == {"host": True, "device": True}


def test_kernels_of_thrust_are_optimised_on_all_processors(
    build: Callable[..., tuple[CudaCompilation, str]], notes: Path
) -> None:
    """A sort has eleven kernels: one processor took a second longer.  Others stay as torch's."""
    build("#include <thrust/sort.h>\n")
    assert "--split-compile=0" in input_of(notes, "nvcc")
    build("#include <thrust/sort.h>\n", probe=True, added=("thrust/sort.h",))
    assert "--split-compile=0" in input_of(notes, "nvcc")
    build("#include <cub/block/block_reduce.cuh>\n")
    assert "--split-compile=0" not in input_of(notes, "nvcc")


def test_a_device_half_is_parsed_once_where_the_host_half_stays_whole(
    build: Callable[..., tuple[CudaCompilation, str]],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sort by thrust took 13 s, 5 of them for a parse that was thrown away."""
    monkeypatch.setenv("REFUSING", "cudafe++")
    build("int probe;\n", probe=True)
    monkeypatch.delenv("REFUSING")
    compiled, _ = build("int mine;\n")

    assert not compiled.failed
    assert input_of(notes, "cicc").count("int mine;") == 1
    assert BODY in input_of(notes, "cicc")


def test_a_preamble_with_added_headers_is_written_once_and_whole(
    build: Callable[..., tuple[CudaCompilation, str]], tmp_path: Path
) -> None:
    """Candidates read it while trusted code makes others."""
    added = ("torch/library.h",)
    for _ in range(2):
        build("int probe;\n", probe=True, added=added)
    folder = Toolkit(tmp_path / "toolkit").preamble_folder(added)

    assert ["stark", "stark/preamble.h"] == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*")
    )
    text = (folder / "stark/preamble.h").read_text()
    assert text.index("stark/common.h") < text.index(added[0]) < text.index("stark/common_end.h")
