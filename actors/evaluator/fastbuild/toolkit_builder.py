"""The maker of toolkits, and of precompiled headers for flag sets.  Trusted code only.

It compiles only its own texts and torch's, with plain flags.  Everything that it makes gets its
final name when it is complete, so it may be killed, or run twice, at any time.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from actors.evaluator.fastbuild.cxx_compile import Binding, precompile_header
from actors.evaluator.fastbuild.headers.cuda_header_tree import generate_cuda_headers
from actors.evaluator.fastbuild.headers.graph_headers import SOURCE_FILE, generate_graph_headers
from actors.evaluator.fastbuild.headers.header_selection import candidate_header
from actors.evaluator.fastbuild.headers.header_tree import (
    OperatorIndex,
    UnexpectedTorchHeadersError,
    generate_headers,
    write_file,
)
from actors.evaluator.fastbuild.headers.toolkit import (
    COMPLETE_FILE,
    GRAPHS_FOLDER,
    LINKER_FILE,
    Toolkit,
    headers_of_torch,
    toolkit_key,
)
from actors.evaluator.fastbuild.nvcc.nvcc_compile import BuildContext
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import PreambleCache
from actors.evaluator.fastbuild.nvcc.preamble_snapshot import remove_unused_snapshots
from actors.evaluator.fastbuild.nvcc.probe_build import learn_from_probe
from actors.evaluator.fastbuild.request.added_headers import AUTOGRAD, PYBIND
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import with_folders_first
from actors.evaluator.fastbuild.request.compiler_process import Deadline, run_compiler
from actors.evaluator.fastbuild.request.flag_set import FlagSet
from actors.evaluator.fastbuild.store.build_record import Stopwatch
from actors.evaluator.fastbuild.store.build_slots import slots_here
from actors.evaluator.fastbuild.store.build_store import (
    UNFINISHED_PREFIX,
    ToolkitMissingError,
    remove_unfinished,
)
from actors.evaluator.fastbuild.toolkit_probe import (
    QUIET,
    ToolkitProbe,
    probe_request,
    write_kinds,
)

PREPARE_S = 600.0
LOCK_NAME, POLL_S = "lock", 0.1
_GRAPHS = threading.Lock()  # flag sets with graphs wait for the one that compiles their object


def prepare_toolkit(
    store: Path,
    flag_sets: Iterable[FlagSet] = (),
    limit_s: float = PREPARE_S,
    *,
    most_headers: int | None = None,
) -> Toolkit:
    """Make what `store` lacks for the torch in use and for those of `flag_sets` that are plain.

    `most_headers`: no more headers are precompiled where there are that many already.  Raises
    `ToolkitMissingError` if no toolkit can be made for this torch or this compiler, and
    `PrecompiledHeaderError` if a header does not compile with the flags.
    """
    deadline = Deadline(limit_s)
    store = store.absolute()
    store.mkdir(parents=True, exist_ok=True)
    with _only_maker(store, deadline):
        remove_unfinished(store)
        toolkit = Toolkit(store / toolkit_key())
        is_new = not toolkit.is_complete()
        if is_new:
            _write_headers(store, toolkit.folder)
        toolkit.precompiled.remove_unfinished()
        PreambleCache(toolkit).remove_unfinished()
        remove_unused_snapshots(toolkit)
        plain = [flag_set for flag_set in flag_sets if flag_set.is_plain()]
        if most_headers is not None and toolkit.precompiled.count() >= most_headers:
            plain = []
        if _make_all(toolkit, plain, deadline, is_new=is_new) == "other kinds":
            shutil.rmtree(toolkit.precompiled.root, ignore_errors=True)
            _make_all(toolkit, plain, deadline, is_new=False)
        return toolkit


def _make_all(
    toolkit: Toolkit, flag_sets: list[FlagSet], deadline: Deadline, *, is_new: bool
) -> Literal["usual kinds", "other kinds"]:
    """Finish a new toolkit, and at the same time precompile the headers for `flag_sets`.

    Returns "other kinds" if the binding changed a header that was precompiled meanwhile.
    """
    # One compiler needs the longest for a new toolkit: it leaves room for a header beside it.
    with ThreadPoolExecutor(is_new + slots_here()) as pool:
        finish = pool.submit(_finish, toolkit.folder, toolkit.index, deadline) if is_new else None
        headers = [
            pool.submit(_precompile, toolkit, each, deadline, learns=learns)
            for each, learns in _first_of_each_device_part(flag_sets)
        ]
        try:
            has_usual_kinds = finish.result() if finish is not None else True
            if has_usual_kinds:
                for done in headers:
                    done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return "usual kinds" if has_usual_kinds else "other kinds"


def _first_of_each_device_part(flag_sets: list[FlagSet]) -> list[tuple[FlagSet, bool]]:
    """Return each flag set, and whether the probe must be built by nvcc for it.

    The host compiler's own flags are not among nvcc's.
    """
    seen: set[tuple[tuple[str, ...], ...]] = set()
    found = []
    for each in flag_sets:
        part = (each.cuda_cflags, each.cuda_headers)
        found.append((each, each.with_cuda and part not in seen))
        seen |= {part} if each.with_cuda else set()
    return found


@contextmanager
def _only_maker(store: Path, deadline: Deadline) -> Iterator[None]:
    """Be the only maker in `store`: two would need twice the time and memory for one toolkit.

    The system releases the lock of a killed maker.
    """
    with (store / LOCK_NAME).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(min(POLL_S, deadline.left_s()))
        yield


def _write_headers(store: Path, folder: Path) -> None:
    """Write the headers of a new toolkit; its binding and its lists are still missing."""
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED_PREFIX, dir=store))
    try:
        generate_headers(headers_of_torch(), unfinished)
        generate_cuda_headers(headers_of_torch(), unfinished)
        generate_graph_headers(headers_of_torch(), unfinished / GRAPHS_FOLDER)
        write_kinds(unfinished, has_all=True)
        unfinished.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)  # of a maker that was killed
        unfinished.rename(folder)
    except UnexpectedTorchHeadersError as error:
        raise ToolkitMissingError(str(error)) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _finish(folder: Path, index: OperatorIndex, deadline: Deadline) -> bool:
    """Make the binding and the lists of a new toolkit, and then mark it as complete.

    Returns whether the binding has the usual kinds of types, for which its headers were written.
    """
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        scratch = Path(name)
        request = probe_request(scratch, FlagSet())
        commands = request.commands(deadline)
        probe = ToolkitProbe(
            folder=folder,
            index=index,
            source=request.sources[0],
            compilation=commands.compilations[0],
            link=commands.link,
            scratch=scratch,
            deadline=deadline,
        )
        # One compiler needs the longest for the binding; the others work at the same time.
        binding = pool.submit(probe.build_binding)
        names = pool.submit(probe.write_names)
        probe.check_light_headers()
        names.result()
        linker, has_usual_kinds = binding.result()
        (folder / LINKER_FILE).write_text(linker, encoding="ascii")
    (folder / COMPLETE_FILE).touch()
    return has_usual_kinds


def _precompile(toolkit: Toolkit, flag_set: FlagSet, deadline: Deadline, *, learns: bool) -> None:
    """Precompile the headers for one flag set, and `learns` from the CUDA probe with its flags."""
    if AUTOGRAD in (*flag_set.cpp_headers, *flag_set.cuda_headers):
        with _GRAPHS:
            _compile_graphs(toolkit, deadline)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        request = probe_request(scratch, flag_set)
        compilations = request.commands(deadline).compilations
        # A build slot has two cores or more (`build_slots`): each compiler uses one.
        with ThreadPoolExecutor(2 if slots_here() == 1 else 3) as pool:
            binding, added = _precompiled_kind(flag_set)
            of_cxx = (toolkit, compilations[0], binding, added, deadline)
            running = [pool.submit(precompile_header, *of_cxx)]
            if learns:
                context = BuildContext(
                    toolkit=toolkit,
                    folder=scratch / "stark",
                    stopwatch=Stopwatch(),
                    deadline=deadline,
                )
                source, headers = request.sources[1], flag_set.cuda_headers
                learnt = (context, compilations[1], source, headers)
                running.append(pool.submit(learn_from_probe, *learnt))
            for done in running:
                done.result()


def _compile_graphs(toolkit: Toolkit, deadline: Deadline) -> None:
    """Compile what sources with graphs are linked with; without it they use torch's own header."""
    path = toolkit.folder / GRAPHS_FOLDER / SOURCE_FILE
    if toolkit.graphs.exists() or not path.exists():
        return
    source = CandidateSource.read(str(path))
    with tempfile.TemporaryDirectory(dir=toolkit.folder) as name:
        scratch = Path(name)
        compilation = probe_request(scratch, FlagSet()).commands(deadline).compilations[0]
        header = candidate_header(source, toolkit.index, (AUTOGRAD,))
        write_file(scratch / "candidate/stark/candidate.h", header)
        folders = [scratch / "candidate", path.parent, toolkit.folder / "light"]
        argv = [compilation.compiler, *with_folders_first(compilation.flags, folders)]
        unfinished = scratch / toolkit.graphs.name
        end = ["-c", str(path), "-o", str(unfinished)]
        if not run_compiler([*argv, *QUIET, *end], scratch, deadline).status:
            unfinished.replace(toolkit.graphs)


def _precompiled_kind(flag_set: FlagSet) -> tuple[Binding, tuple[str, ...]]:
    """Return binding and added headers of the header for C++ sources with this flag set.

    A source that needs pybind11, or parts of torch beyond tensors, is the only C++ one, as a rule.
    """
    added = tuple(header for header in flag_set.cpp_headers if header != PYBIND)
    return "pybind" if PYBIND in flag_set.cpp_headers else "table", added
