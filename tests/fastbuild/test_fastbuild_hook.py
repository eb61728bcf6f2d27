"""Laws of the hook in torch: where a light build can't go on, torch builds."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from actors.evaluator.fastbuild.headers.toolkit import (
    LIGHT_MACROS_FILE,
    LINKER_FILE,
    MACROS_FILE,
    NAMES_FILE,
    Toolkit,
)
from actors.evaluator.fastbuild.light_build import LightBuild
from actors.evaluator.fastbuild.request.build_request import BuildRequest
from actors.evaluator.fastbuild.request.flag_set import FlagSet
from actors.evaluator.fastbuild.store.build_record import Stopwatch
from actors.evaluator.fastbuild.torch_hook import TorchBuildHook


@pytest.fixture
def request_of_cpp(tmp_path: Path) -> BuildRequest:
    (tmp_path / "main.cpp").write_text("#include <torch/extension.h>\nint f() { return 1; }\n")
    return BuildRequest.from_flag_set("m", [str(tmp_path / "main.cpp")], FlagSet(), tmp_path)


@pytest.fixture
def toolkit(tmp_path: Path) -> Toolkit:
    """A toolkit with its lists alone: what a removed store may leave."""
    folder = tmp_path / "toolkit"
    folder.mkdir()
    for name in (NAMES_FILE, MACROS_FILE, LIGHT_MACROS_FILE, LINKER_FILE):
        (folder / name).write_text("")
    return Toolkit(folder)


def test_torch_builds_where_the_store_is_gone(
    toolkit: Toolkit, request_of_cpp: BuildRequest
) -> None:
    """The index of torch's operators is missing: its reader raises an OSError."""
    reason = TorchBuildHook(toolkit)._light_build(request_of_cpp, "key", Stopwatch())

    assert reason is not None
    assert "index.json" in reason


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        RuntimeError("can't start new thread"),
    ],
)
def test_torch_builds_where_no_process_or_thread_starts(
    error: Exception,
    toolkit: Toolkit,
    request_of_cpp: BuildRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Limits of processes, threads or the disk may stop the light build alone."""

    def build(self: LightBuild, commands: object) -> None:
        raise error

    monkeypatch.setattr(LightBuild, "build", build)
    reason = TorchBuildHook(toolkit)._light_build(request_of_cpp, "key", Stopwatch())

    assert reason is not None
    assert str(error) in reason
