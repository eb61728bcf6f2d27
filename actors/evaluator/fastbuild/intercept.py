"""The intercept: torch's `load` and `load_inline` stay as they are, but build with light headers.

`install` replaces one function of torch's, the one that writes the build file and runs ninja; the
naming, the versions, the lock and the import around it stay torch's.  What can't be built the light
way, or fails in a way that may be our fault, is built by the function that was replaced.

It runs in the process that imports the candidate, so nothing here is a wall: what it reads is
the toolkit, and what it writes lies in the candidate's own build folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.utils.cpp_extension as extension

from actors.evaluator.fastbuild import record
from actors.evaluator.fastbuild.blame import Failure, doubt
from actors.evaluator.fastbuild.commands import Unreadable
from actors.evaluator.fastbuild.light import Failed, LightBuild, Made, Unfit
from actors.evaluator.fastbuild.order import Order
from actors.evaluator.fastbuild.precompiled import Broken
from actors.evaluator.fastbuild.process import Deadline, TooLong
from actors.evaluator.fastbuild.record import Build, Watch, Way
from actors.evaluator.fastbuild.refusal import refusal
from actors.evaluator.fastbuild.toolkit import Toolkit, Unprepared, find

REPLACED = "_write_ninja_file_and_build_library"
BUILD_S = 600.0


class Refused(RuntimeError):
    """A candidate does not compile; the words are those torch would use."""


class Intercept:
    """torch's builds in this process, and what became of them."""

    def __init__(self, toolkit: Toolkit, limit_s: float = BUILD_S) -> None:
        self.toolkit = toolkit
        self.limit_s = limit_s
        self.builds: list[Build] = []
        self._torch: Callable[..., Any] = getattr(extension, REPLACED)

    def install(self) -> None:
        """Take torch's place."""
        setattr(extension, REPLACED, self._build)

    def remove(self) -> None:
        """Put torch back."""
        setattr(extension, REPLACED, self._torch)

    def _build(self, *args: Any, **named: Any) -> None:
        order = Order.of_call(self._torch, args, named)
        if order is None:  # another torch than those we know
            self._torch(*args, **named)
            return
        watch = Watch()
        folder = Path(order.folder)
        key = order.key(self.toolkit.key)
        before = record.read(folder)
        if before is not None and before.key == key and order.library.exists():
            self._note(order, key, watch, "ready")
            return
        why = self._light(order, key, watch)
        if why is None:
            return
        built = False
        try:
            with watch.phase("torch's own build"):
                self._torch(*args, **named)
            built = True
        finally:
            self._note(order, key, watch, "torch", why=why, folder=built)

    def _light(self, order: Order, key: str, watch: Watch) -> str | None:
        """Build the light way; return why that can't be, or None when it is done."""
        reason = "it is no plain extension" if order.other else None
        reason = reason or refusal(order.sources, order.include_folders, self.toolkit.hidden_macros)
        if reason:
            return reason
        deadline = Deadline(self.limit_s)
        light = LightBuild(self.toolkit, order, watch, deadline)
        try:
            with watch.phase("commands"):
                commands = order.commands(deadline)
            made = light.make(commands)
        except Failed as failed:
            return self._judge(order, key, watch, failed, deadline)
        except (Unfit, Unreadable, Broken) as error:
            return str(error)
        except TooLong as error:
            raise Refused(f"Error building extension '{order.name}': {error}") from None
        self._note(order, key, watch, "light", made=made)
        return None

    def _judge(
        self, order: Order, key: str, watch: Watch, failed: Failed, deadline: Deadline
    ) -> str:
        """Raise if the failure is the candidate's own; else say why torch must try."""
        with watch.phase("whose fault"):
            doubts = [doubt(failure, self.toolkit, deadline) for failure in failed.failures]
        for failure, why in zip(failed.failures, doubts, strict=True):
            if why:
                return f"{failure.phase} failed: {why}"
        self._note(order, key, watch, "refused", folder=False)
        text = "\n".join(_told(failure) for failure in failed.failures)
        raise Refused(f"Error building extension '{order.name}': {text}")

    def _note(
        self,
        order: Order,
        key: str,
        watch: Watch,
        way: Way,
        *,
        why: str = "",
        made: Made | None = None,
        folder: bool = True,
    ) -> None:
        build = Build(
            name=order.name,
            key=key,
            way=way,
            why=why,
            seconds=watch.seconds(),
            precompiled=made is not None and made.precompiled,
            binding=made.binding if made else "",
            phases=watch.phases(),
            family=order.family,
        )
        self.builds.append(build)
        if folder and way != "ready":
            build.write(Path(order.folder))


def _told(failure: Failure) -> str:
    """Return a failure as ninja tells one."""
    name = Path(failure.source).name
    return f"FAILED: {name} ({failure.phase})\n{failure.output}"


def install(store: Path, limit_s: float = BUILD_S) -> Intercept | None:
    """Take torch's place with the toolkit in `store`; None where there is none for this torch."""
    try:
        toolkit = find(store)
    except (Unprepared, Broken, OSError):
        return None
    intercept = Intercept(toolkit, limit_s)
    intercept.install()
    return intercept
