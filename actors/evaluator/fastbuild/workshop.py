"""The workshop: makes toolkits, and precompiled headers for families of flags.  Trusted code only.

It compiles nothing but texts of ours and torch's, with plain flags.  What it makes appears under
its final name when it is whole, so that it may be killed or run twice at any time.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from actors.evaluator.fastbuild import (
    device,
    device_tree,
    host,
    index,
    learning,
    names,
    toolkit,
    tree,
)
from actors.evaluator.fastbuild.commands import Commands, Compilation, with_folders_first
from actors.evaluator.fastbuild.family import Family
from actors.evaluator.fastbuild.index import Index
from actors.evaluator.fastbuild.order import Order
from actors.evaluator.fastbuild.process import Deadline, run
from actors.evaluator.fastbuild.record import Watch
from actors.evaluator.fastbuild.selection import header
from actors.evaluator.fastbuild.slots import fitting_here
from actors.evaluator.fastbuild.source import Source
from actors.evaluator.fastbuild.store import HALF, sweep
from actors.evaluator.fastbuild.toolkit import Toolkit, Unprepared
from actors.evaluator.fastbuild.workplace import Workplace

PREPARE_S = 600.0
LOCK, LOOK_S = "lock", 0.1
KINDS = "light/stark/kinds.h"
FASTER_LINKERS = ("-fuse-ld=gold",)
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
PROBE = """#include <torch/extension.h>
torch::Tensor probe(torch::Tensor x) {
  auto y = torch::empty_like(x);
  y.copy_(x + x * 2);
  return torch::zeros({x.size(0)}, x.options()) + y[0];
}
"""


def prepare(store: Path, families: Iterable[Family] = (), limit_s: float = PREPARE_S) -> Toolkit:
    """Make what is missing in `store` for the torch in use and `families`; trusted code only.

    Raises `Unprepared` where this torch or this compiler can't be served.
    """
    deadline = Deadline(limit_s)
    store = store.absolute()
    store.mkdir(parents=True, exist_ok=True)
    with _alone(store, deadline):
        return _prepare(store, [family for family in families if family.plain()], deadline)


@contextmanager
def _alone(store: Path, deadline: Deadline) -> Iterator[None]:
    """Be the only maker in `store`: two would take twice the time and memory for one toolkit.

    The system lets go of a killed maker's lock.
    """
    with (store / LOCK).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(min(LOOK_S, deadline.left_s()))
        yield


def _prepare(store: Path, families: list[Family], deadline: Deadline) -> Toolkit:
    sweep(store)
    folder = store / toolkit.key()
    if not (folder / index.FILE_NAME).exists():
        half = Path(tempfile.mkdtemp(prefix=HALF, dir=store))
        try:
            _generate(half, deadline)
            half.chmod(0o755)
            try:
                half.rename(folder)
            except OSError:
                if not folder.exists():  # else somebody else was faster
                    raise
        finally:
            shutil.rmtree(half, ignore_errors=True)
    made = Toolkit(folder)
    made.precompiled.sweep()
    made.openings.sweep()
    with ThreadPoolExecutor(fitting_here()) as pool:
        for done in [pool.submit(_precompile, made, family, deadline) for family in families]:
            done.result()
    return made


def _generate(half: Path, deadline: Deadline) -> None:
    try:
        found = tree.generate(toolkit.headers_of_torch(), half)
        device_tree.generate(toolkit.headers_of_torch(), half)
    except tree.Unlike as error:
        raise Unprepared(str(error)) from None
    (half / index.FILE_NAME).unlink()  # until all is there, it is no toolkit
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as beside:
        scratch = Path(name)
        order = _order(scratch, Family())
        listed = order.commands(deadline)
        # The longest step is one compiler's; what torch's own headers hold is found out meanwhile.
        bound = beside.submit(_bind, half, found, listed, scratch, deadline)
        _note_names(half, order.sources[0], listed.compilations[0], deadline)
        linker = bound.result()
        (half / toolkit.LINKER).write_text(linker, encoding="ascii")
        _try_light(half, found, order.sources[0], listed.compilations[0], scratch, deadline)
    found.write(half)


def _note_names(half: Path, source: Source, compilation: Compilation, deadline: Deadline) -> None:
    """Write down what torch's own headers declare and define, and what its library exports."""
    argv = [compilation.compiler, *compilation.flags, "-E"]
    full = run([*argv, "-P", source.path], half, deadline)
    macros = run([*argv, "-dM", source.path], half, deadline)
    if full.status or macros.status:
        raise Unprepared(f"torch's own headers do not preprocess: {full.output[-1000:]}")
    defined = _DEFINED.findall(macros.output)
    (half / toolkit.MACROS).write_text("\n".join(sorted(set(defined))), encoding="utf-8")
    everything = names.declared(full.output) | frozenset(defined)
    (half / toolkit.NAMES).write_text("\n".join(sorted(everything)), encoding="utf-8")
    (half / toolkit.EXPORTED).write_text("\n".join(_exported(deadline)), encoding="utf-8")


def _bind(half: Path, found: Index, listed: Commands, scratch: Path, deadline: Deadline) -> str:
    """Compile the binding, with fewer kinds of types where it can't be loaded otherwise.

    Returns the flag of a faster linker, or nothing.
    """
    link = list(listed.link)
    for kinds in ("", "#define STARK_FEW_KINDS\n"):
        tree.write(half / KINDS, f"#pragma once\n{kinds}")
        _compile_binding(half, found, listed.compilations[0], deadline)
        if _loads(link, half, scratch, deadline):
            return _linker(link, half / toolkit.BINDING, scratch, deadline)
    raise Unprepared("the binding can't be loaded with this torch")


def _try_light(
    half: Path,
    found: Index,
    source: Source,
    compilation: Compilation,
    scratch: Path,
    deadline: Deadline,
) -> None:
    """See that a candidate compiles with the light headers; write down what they define."""
    argv = [compilation.compiler, *_light_flags(half, found, source, compilation, scratch)]
    ran = run([*argv, "-E", "-dM", source.path], half, deadline)
    tried = run([*argv, "-fsyntax-only", source.path], half, deadline)
    if ran.status or tried.status:
        raise Unprepared(f"the light headers do not compile: {tried.output[-2000:]}")
    light_macros = sorted(set(_DEFINED.findall(ran.output)))
    (half / toolkit.LIGHT_MACROS).write_text("\n".join(light_macros), encoding="utf-8")


def _binding_link(link: list[str], binding: Path) -> list[str]:
    """Return torch's link command `link` with the binding as its one object."""
    return [str(binding) if word.endswith(".o") else word for word in link]


def _loads(link: list[str], half: Path, scratch: Path, deadline: Deadline) -> bool:
    """Whether a library made of the binding finds all it needs in torch's libraries."""
    argv = _binding_link(link, half / toolkit.BINDING)
    if run(argv, scratch, deadline).status:
        return False
    library = scratch / argv[argv.index("-o") + 1]
    words = f"import os, ctypes, torch; ctypes.CDLL({str(library)!r}, os.RTLD_NOW)"
    return not run([sys.executable, "-c", words], scratch, deadline).status


def _linker(link: list[str], binding: Path, scratch: Path, deadline: Deadline) -> str:
    """Return the flag of a faster linker that links what torch's command links, or nothing."""
    for flag in FASTER_LINKERS:
        if not run([*_binding_link(link, binding), flag], scratch, deadline).status:
            return flag
    return ""


def _exported(deadline: Deadline) -> list[str]:
    library = toolkit.headers_of_torch().parent / "lib/libtorch_cpu.so"
    ran = run(["nm", "-D", "--defined-only", str(library)], library.parent, deadline)
    found = sorted(set(re.findall(r"\b_ZNK?R?2at6Tensor\w+", ran.output)))
    if ran.status or not found:
        raise Unprepared(f"{library.name} exports no tensor methods: {ran.output[:300]}")
    return found


def _light_flags(
    half: Path, found: Index, source: Source, compilation: Compilation, scratch: Path
) -> list[str]:
    tree.write(scratch / "candidate/stark/candidate.h", header(source, found))
    folders = [scratch / "candidate", half / "light"]
    return [*with_folders_first(compilation.flags, folders), "-DSTARK_PYBIND"]


def _compile_binding(
    half: Path, found: Index, compilation: Compilation, deadline: Deadline
) -> None:
    path = tree.NATIVE / "binding.cpp"
    with tempfile.TemporaryDirectory() as scratch:
        flags = _light_flags(half, found, Source.read(str(path)), compilation, Path(scratch))
        quiet = ["-O2", "-g0", "-w", "-fvisibility=hidden"]
        argv = [compilation.compiler, *flags, *quiet, "-c", str(path), "-o", toolkit.BINDING]
        ran = run(argv, half, deadline)
    if ran.status:
        raise Unprepared(f"the binding does not compile: {ran.output[-2000:]}")


def _order(folder: Path, family: Family) -> Order:
    texts = {"main.cpp": PROBE, **({"cuda.cu": device.PROBE} if family.with_cuda else {})}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return Order.of_family("stark_probe", [str(folder / name) for name in texts], family, folder)


def _precompile(made: Toolkit, family: Family, deadline: Deadline) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        order = _order(scratch, family)
        compilations = order.commands(deadline).compilations
        # A build has two cores (`slots`), and each of these takes one.
        with ThreadPoolExecutor(len(host.BINDINGS)) as pool:
            for done in [
                pool.submit(host.precompile, made, compilations[0], binding, deadline)
                for binding in host.BINDINGS
            ]:
                done.result()
        if family.with_cuda:
            work = Workplace(
                toolkit=made, folder=scratch / "stark", watch=Watch(), deadline=deadline
            )
            learning.learn(work, compilations[1], order.sources[1])
