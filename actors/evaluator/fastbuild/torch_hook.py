"""The intercept: torch's `load` and `load_inline` stay as they are, but build with light headers.

`install_hook` replaces one function of torch's, the one that writes the build file and runs ninja;
the naming, the versions, the lock and the import around it stay torch's.  What can't be built the
light way, or fails in a way that may be our fault, is built by the function that was replaced.

It runs in the process that imports the candidate, so nothing here is a wall: what it reads is
the toolkit, and what it writes lies in the candidate's own build folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.utils.cpp_extension as extension

from actors.evaluator.fastbuild import build_record
from actors.evaluator.fastbuild.build_record import BuildRecord, BuildWay, Stopwatch
from actors.evaluator.fastbuild.build_request import BuildRequest
from actors.evaluator.fastbuild.compile_commands import CompileCommandsError
from actors.evaluator.fastbuild.compiler_process import BuildTimeoutError, Deadline
from actors.evaluator.fastbuild.error_attribution import CompilerFailure, reason_to_doubt
from actors.evaluator.fastbuild.light_build import (
    LightBuild,
    LightBuildFailedError,
    LightBuildResult,
    LightBuildUnsupportedError,
)
from actors.evaluator.fastbuild.precompiled_headers import PrecompiledHeaderError
from actors.evaluator.fastbuild.toolkit import Toolkit, ToolkitMissingError, find_toolkit
from actors.evaluator.fastbuild.unsupported import unsupported_reason

HOOKED_FUNCTION = "_write_ninja_file_and_build_library"
BUILD_S = 600.0


class CandidateCompileError(RuntimeError):
    """A candidate does not compile; the words are those torch would use."""


class TorchBuildHook:
    """torch's builds in this process, and what became of them."""

    def __init__(self, toolkit: Toolkit, limit_s: float = BUILD_S) -> None:
        self.toolkit = toolkit
        self.limit_s = limit_s
        self.builds: list[BuildRecord] = []
        self._torch: Callable[..., Any] = getattr(extension, HOOKED_FUNCTION)

    def install(self) -> None:
        """Take torch's place."""
        setattr(extension, HOOKED_FUNCTION, self._build)

    def remove(self) -> None:
        """Put torch back."""
        setattr(extension, HOOKED_FUNCTION, self._torch)

    def _build(self, *args: Any, **named: Any) -> None:
        request = BuildRequest.from_call(self._torch, args, named)
        if request is None:  # another torch than those we know
            self._torch(*args, **named)
            return
        stopwatch = Stopwatch()
        folder = Path(request.folder)
        key = request.key(self.toolkit.key)
        before = build_record.read_record(folder)
        if before is not None and before.key == key and request.library.exists():
            self._record(request, key, stopwatch, "ready")
            return
        why = self._light_build(request, key, stopwatch)
        if why is None:
            return
        built = False
        try:
            with stopwatch.phase("torch's own build"):
                self._torch(*args, **named)
            built = True
        finally:
            self._record(request, key, stopwatch, "torch", why=why, folder=built)

    def _light_build(self, request: BuildRequest, key: str, stopwatch: Stopwatch) -> str | None:
        """Build the light way; return why that can't be, or None when it is done."""
        reason = "it is no plain extension" if request.other else None
        reason = reason or unsupported_reason(
            request.sources, request.include_folders, self.toolkit.hidden_macros
        )
        if reason:
            return reason
        deadline = Deadline(self.limit_s)
        light = LightBuild(self.toolkit, request, stopwatch, deadline)
        try:
            with stopwatch.phase("commands"):
                commands = request.commands(deadline)
            built = light.build(commands)
        except LightBuildFailedError as failed:
            return self._attribute_failure(request, key, stopwatch, failed, deadline)
        except (LightBuildUnsupportedError, CompileCommandsError, PrecompiledHeaderError) as error:
            return str(error)
        except BuildTimeoutError as error:
            raise CandidateCompileError(
                f"Error building extension '{request.name}': {error}"
            ) from None
        self._record(request, key, stopwatch, "light", built=built)
        return None

    def _attribute_failure(
        self,
        request: BuildRequest,
        key: str,
        stopwatch: Stopwatch,
        failed: LightBuildFailedError,
        deadline: Deadline,
    ) -> str:
        """Raise if the failure is the candidate's own; else say why torch must try."""
        with stopwatch.phase("whose fault"):
            doubts = [
                reason_to_doubt(failure, self.toolkit, deadline) for failure in failed.failures
            ]
        for failure, why in zip(failed.failures, doubts, strict=True):
            if why:
                return f"{failure.phase} failed: {why}"
        self._record(request, key, stopwatch, "refused", folder=False)
        text = "\n".join(_compiler_output(failure) for failure in failed.failures)
        raise CandidateCompileError(f"Error building extension '{request.name}': {text}")

    def _record(
        self,
        request: BuildRequest,
        key: str,
        stopwatch: Stopwatch,
        way: BuildWay,
        *,
        why: str = "",
        built: LightBuildResult | None = None,
        folder: bool = True,
    ) -> None:
        build = BuildRecord(
            name=request.name,
            key=key,
            way=way,
            why=why,
            seconds=stopwatch.seconds(),
            precompiled=built is not None and built.precompiled,
            binding=built.binding if built else "",
            phases=stopwatch.phases(),
            family=request.flag_set,
        )
        self.builds.append(build)
        if folder and way != "ready":
            build.write(Path(request.folder))


def _compiler_output(failure: CompilerFailure) -> str:
    """Return a failure as ninja tells one."""
    name = Path(failure.source).name
    return f"FAILED: {name} ({failure.phase})\n{failure.output}"


def install_hook(store: Path, limit_s: float = BUILD_S) -> TorchBuildHook | None:
    """Take torch's place with the toolkit in `store`; None where there is none for this torch."""
    try:
        toolkit = find_toolkit(store)
    except (ToolkitMissingError, PrecompiledHeaderError, OSError):
        return None
    hook = TorchBuildHook(toolkit, limit_s)
    hook.install()
    return hook
