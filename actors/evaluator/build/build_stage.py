"""The build stage, the judge's side: a candidate is imported in a process without a device.

The import compiles extensions into the candidate's own folder, where its runner finds them.
`python -m actors.evaluator.build FILE` builds one file by hand and prints how long each step took.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import msgspec

from actors.evaluator.fastbuild import (
    BuildSlots,
    BuildStore,
    BuildTimeoutError,
    ResultCache,
    flag_sets_of,
    remarks_of_builds,
    slots_here,
)
from actors.evaluator.ipc.orders import CandidateRaised, Confinement, ImportSource
from actors.evaluator.ipc.runner_orders import FromRunner
from actors.evaluator.sandbox.child_client import (
    ChildClient,
    ChildFailure,
    EvaluationCancelledError,
)
from actors.evaluator.sandbox.child_failures import CandidateFault, fault_from_child
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError, ZygoteClient
from actors.work_context import EvaluationContext, WorkerUnfitError
from protocol.values import DeviceKind, Stage, Value

EXTENSIONS = "extensions"  # in the candidate's folder, as its environment says
SLOT_LIMIT_S = 600.0  # the longest wait for a build slot
NO_MODULES: Mapping[str, str] = MappingProxyType({})


class CompilerMissingError(WorkerUnfitError):
    """No candidate can be built here, now or later: a candidate that can't be is not at fault."""


class BuildResult(Value, frozen=True, kw_only=True):
    """A candidate that has been through the build stage, in its own folder."""

    confinement: Confinement
    fault: CandidateFault | None = None
    seconds: float = 0.0
    how: str = ""  # where the result came from, for people
    waited_s: float = 0.0  # for a build slot of this machine
    ran_out_of_memory: bool = False  # its builder was killed because memory ran out
    remarks: tuple[str, ...] = ()  # of the compiler, on code that loses time

    @property
    def has_folder(self) -> bool:
        """Whether the folder still exists: it is removed with the zygote that built in it."""
        return Path(self.confinement.folder).is_dir()


class CandidateBuild(Protocol):
    """A candidate's build: to be run, or over."""

    @property
    def confinement(self) -> Confinement:
        """What the candidate's runner may see and take, its folder included."""
        ...

    def run(self, build_s: float) -> BuildResult:
        """Return the result, within `build_s` seconds if it has to be built."""
        ...


class FinishedBuild:
    """A build that is over: its result is returned again."""

    def __init__(self, result: BuildResult) -> None:
        self.confinement = result.confinement
        self._result = result

    def run(self, build_s: float) -> BuildResult:
        """Return the result at once."""
        return self._result


class BuildStage:
    """The build of one candidate in a folder of its own."""

    def __init__(
        self,
        zygote: ZygoteClient,
        confinement: Confinement,
        source: str,
        *,
        device: DeviceKind,
        store: BuildStore | None,
        toolkit: str,
        is_cancelled: Callable[[], bool],
        modules: Mapping[str, str] = NO_MODULES,
    ) -> None:
        """`modules`: files that the task imports and that the candidate finds, too.

        `store`: where results are cached, if there is a `toolkit`.
        """
        self.confinement = confinement
        self._zygote = zygote
        self._source = source
        self._modules = dict(modules)
        self._device = device
        self._store = store
        self._is_cancelled = is_cancelled
        self._extensions = Path(confinement.folder) / EXTENSIONS
        self._result_cache = ResultCache(store.results) if store and toolkit else None
        self._key = (
            self._result_cache.key(_build_text(source, modules), toolkit, confinement.environment)
            if self._result_cache
            else ""
        )

    def run(self, build_s: float) -> BuildResult:
        """Import the source and so build its extensions, or take these from the result cache.

        The source is imported in any case, for all that it does apart from `load` and
        `load_inline`.  Only what is to be compiled takes a build slot: a stored result may be
        wanted while the device waits for it.
        """
        waiting_since = time.monotonic()
        is_stored = self._take_stored()
        with nullcontext() if is_stored else self._slot():
            began = time.monotonic()
            is_stored = is_stored or self._take_stored()
            fault, ran_out_of_memory = self._import(build_s)
            # The builder's whole process tree is gone: nothing changes the files during the copy.
            if self._result_cache and fault is None:
                self._result_cache.store(self._key, self._extensions)
            return BuildResult(
                confinement=self.confinement,
                fault=fault,
                seconds=time.monotonic() - began,
                how="taken from the store" if is_stored else self._compiler,
                waited_s=began - waiting_since,
                ran_out_of_memory=ran_out_of_memory,
                remarks=remarks_of_builds(self._extensions),
            )

    def _take_stored(self) -> bool:
        """Copy the result of an earlier build; return whether there is one."""
        cache = self._result_cache
        return cache is not None and cache.copy_to(self._key, self._extensions)

    def with_environment(self, variables: Mapping[str, str]) -> BuildStage:
        """Return this build with more environment variables and without the result cache."""
        environment = {**self.confinement.environment, **variables}
        return BuildStage(
            self._zygote,
            msgspec.structs.replace(self.confinement, environment=environment),
            self._source,
            device=self._device,
            store=None,
            toolkit="",
            is_cancelled=self._is_cancelled,
            modules=self._modules,
        )

    @property
    def _compiler(self) -> str:
        """Describe how the source is compiled, if it compiles anything."""
        with_cuda = any(one.with_cuda for one in flag_sets_of(self._source, cuda=True))
        headers = "prepared headers" if self._result_cache else "torch's own headers"
        return f"compiled by {'nvcc and c++' if with_cuda else 'c++'} with {headers}"

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Hold one of the build slots that this machine's memory permits."""
        if self._store is None:
            yield
            return
        try:
            with BuildSlots(self._store.slots, slots_here()).acquired(
                SLOT_LIMIT_S, self._raise_if_cancelled
            ):
                yield
        except BuildTimeoutError as error:
            raise JudgeUnavailableError(str(error)) from None

    def _raise_if_cancelled(self) -> None:
        if self._is_cancelled():
            raise EvaluationCancelledError

    def _import(self, build_s: float) -> tuple[CandidateFault | None, bool]:
        """Import the source in a builder; return its fault, and whether memory ran out."""
        builder: ChildClient[FromRunner] = self._zygote.spawn(
            "builder", self.confinement, FromRunner, trusted=False, is_cancelled=self._is_cancelled
        )
        zygote = self._zygote.pid
        order = ImportSource(source=self._source, class_name="ModelNew", modules=self._modules)
        try:
            answer = builder.ask(order, build_s)
        finally:
            builder.kill()
        output = builder.output.text()
        if isinstance(answer, ChildFailure):
            if answer.how == "lost" and self._zygote.pid != zygote:
                raise JudgeUnavailableError("the builds' zygote was replaced")
            stage: Stage = "build" if answer.how == "timed_out" else "import"
            return fault_from_child(answer, stage, output), answer.how == "memory"
        raised = answer[0]
        if isinstance(raised, CandidateRaised) and raised.compiling:
            require_compiler(self.confinement)
        # For a GPU, an import may fail only because the builder has no device: the runner tries it
        # again.
        if isinstance(raised, CandidateRaised) and (raised.compiling or self._device == "cpu"):
            return fault_from_child(raised, "import", output), False
        return None, False


def require_compiler(confinement: Confinement) -> None:
    """Raise `CompilerMissingError` where a candidate's process finds no C++ compiler."""
    variables = confinement.environment
    name = (variables.get("CXX", "").split() or ["c++"])[0]
    if shutil.which(name, path=variables.get("PATH", os.defpath)) is None:
        raise CompilerMissingError(
            f"this machine has no C++ compiler ({name} is not on PATH): install one (Debian:"
            " apt install g++), or set CXX"
        )


def _build_text(source: str, modules: Mapping[str, str]) -> str:
    """Return all the text that a build depends on."""
    return "\0".join([source, *(text for pair in sorted(modules.items()) for text in pair)])


def log_build(built: BuildResult, context: EvaluationContext) -> None:
    """Log how a candidate was built, and how long it waited for that."""
    context.log_step(
        "built" if built.fault is None else "not built",
        how=built.how,
        seconds=round(built.seconds, 3),
        waited_for_a_build_slot_s=round(built.waited_s, 1) if built.waited_s > 1.0 else None,
        reason=built.fault.reason[:200] if built.fault else None,
    )
