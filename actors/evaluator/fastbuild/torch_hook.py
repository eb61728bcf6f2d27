"""The hook in torch: `load` and `load_inline` stay as they are, but build with light headers.

`install_hook` replaces one function of torch, the one that writes the build file and runs ninja.
The naming, the versions, the lock and the import around it stay torch's.  The replaced function
still builds what a light build can't, and what fails in one for another reason than the candidate.

The hook runs in the process that imports the candidate, so it protects against nothing.  It reads
the toolkit and writes to the candidate's own build folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.utils.cpp_extension as extension

from actors.evaluator.fastbuild.error_attribution import CompilerFailure
from actors.evaluator.fastbuild.headers.precompiled_headers import PrecompiledHeaderError
from actors.evaluator.fastbuild.headers.toolkit import Toolkit, find_toolkit
from actors.evaluator.fastbuild.light_build import (
    LightBuild,
    LightBuildFailedError,
    LightBuildResult,
    LightBuildUnsupportedError,
)
from actors.evaluator.fastbuild.request.build_request import BuildRequest
from actors.evaluator.fastbuild.request.compile_commands import CompileCommandsError
from actors.evaluator.fastbuild.request.compiler_process import BuildTimeoutError, Deadline
from actors.evaluator.fastbuild.store.build_record import (
    BuildRecord,
    BuildWay,
    Stopwatch,
    read_record,
)
from actors.evaluator.fastbuild.store.build_store import ToolkitMissingError
from actors.evaluator.fastbuild.unsupported import unsupported_reason

HOOKED_FUNCTION = "_write_ninja_file_and_build_library"
BUILD_S = 600.0
# The store is gone or the disk full; no process or, a RuntimeError, no thread can start.
_NO_MEANS = (OSError, RuntimeError)


class CandidateCompileError(RuntimeError):
    """A candidate does not compile; the text is the one that torch would raise."""


class TorchBuildHook:
    """The replacement of torch's build function in this process, and the records of its builds."""

    def __init__(self, toolkit: Toolkit, limit_s: float = BUILD_S) -> None:
        self.toolkit = toolkit
        self.limit_s = limit_s
        self.builds: list[BuildRecord] = []
        self._torch_build: Callable[..., Any] = getattr(extension, HOOKED_FUNCTION)

    def install(self) -> None:
        """Replace torch's build function."""
        setattr(extension, HOOKED_FUNCTION, self._build)

    def remove(self) -> None:
        """Restore torch's build function."""
        setattr(extension, HOOKED_FUNCTION, self._torch_build)

    def _build(self, *args: Any, **named: Any) -> None:
        request = BuildRequest.from_call(self._torch_build, args, named)
        if request is None:  # a torch whose function has other arguments
            self._torch_build(*args, **named)
            return
        stopwatch = Stopwatch()
        folder = Path(request.folder)
        key = request.key(self.toolkit.key)
        before = read_record(folder)
        if before is not None and before.key == key and request.library.exists():
            self._record(request, key, stopwatch, "ready")
            return
        reason = self._light_build(request, key, stopwatch)
        if reason is None:
            return
        built = False
        try:
            with stopwatch.phase("torch's own build"):
                self._torch_build(*args, **named)
            built = True
        finally:
            self._record(request, key, stopwatch, "torch", reason=reason, write=built)

    def _light_build(self, request: BuildRequest, key: str, stopwatch: Stopwatch) -> str | None:
        """Build with light headers; return why torch must build instead, None when built."""
        reason = "it is not a plain extension" if request.is_special else None
        reason = reason or request.unclear_headers
        reason = reason or unsupported_reason(request.sources, self.toolkit.hidden_macros)
        if reason:
            return reason
        deadline = Deadline(self.limit_s)
        light = LightBuild(self.toolkit, request, stopwatch, deadline)
        try:
            with stopwatch.phase("commands"):
                commands = request.commands(deadline)
            built = light.build(commands)
        except LightBuildFailedError as failed:
            return self._refuse(request, key, stopwatch, failed)
        except (LightBuildUnsupportedError, CompileCommandsError, PrecompiledHeaderError) as error:
            return str(error)
        except _NO_MEANS as error:
            return f"the light build could not go on: {error}"
        except BuildTimeoutError as error:
            raise CandidateCompileError(
                f"Error building extension '{request.name}': {error}"
            ) from None
        self._record(request, key, stopwatch, "light", built=built)
        return None

    def _refuse(
        self,
        request: BuildRequest,
        key: str,
        stopwatch: Stopwatch,
        failed: LightBuildFailedError,
    ) -> str:
        """Raise if the failures are the candidate's own; else return why torch must build."""
        for each in failed.failures:
            if each.doubt:
                return f"{each.failure.phase} failed: {each.doubt}"
        self._record(request, key, stopwatch, "refused", write=False)
        text = "\n".join(_compiler_output(each.failure) for each in failed.failures)
        raise CandidateCompileError(f"Error building extension '{request.name}': {text}")

    def _record(
        self,
        request: BuildRequest,
        key: str,
        stopwatch: Stopwatch,
        way: BuildWay,
        *,
        reason: str = "",
        built: LightBuildResult | None = None,
        write: bool = True,
    ) -> None:
        """Note a build; `write` puts the record into torch's build folder, too."""
        record = BuildRecord(
            name=request.name,
            key=key,
            way=way,
            reason=reason,
            seconds=stopwatch.seconds(),
            precompiled=built is not None and built.precompiled,
            binding=built.binding if built else "",
            remarks=built.remarks if built else (),
            phases=stopwatch.phases(),
            flag_set=request.flag_set,
        )
        self.builds.append(record)
        if write and way != "ready":
            record.write(Path(request.folder))


def _compiler_output(failure: CompilerFailure) -> str:
    """Return a failure in the form in which ninja reports one."""
    name = Path(failure.source.path).name
    return f"FAILED: {name} ({failure.phase})\n{failure.output}"


def install_hook(store: Path, limit_s: float = BUILD_S) -> TorchBuildHook | None:
    """Install the hook with the toolkit in `store`; return None if there is none for this torch."""
    try:
        toolkit = find_toolkit(store)
    except (ToolkitMissingError, PrecompiledHeaderError, OSError):
        return None
    hook = TorchBuildHook(toolkit, limit_s)
    hook.install()
    return hook
