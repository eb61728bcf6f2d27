"""The light build of one extension: every source beside the others, then one link."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from actors.evaluator.fastbuild import device, host
from actors.evaluator.fastbuild.blame import Failure
from actors.evaluator.fastbuild.commands import Commands, Compilation
from actors.evaluator.fastbuild.host import Binding
from actors.evaluator.fastbuild.order import Order
from actors.evaluator.fastbuild.process import Deadline, run
from actors.evaluator.fastbuild.record import FOLDER, Watch
from actors.evaluator.fastbuild.refusal import binds_by_table
from actors.evaluator.fastbuild.source import Source
from actors.evaluator.fastbuild.toolkit import Toolkit
from actors.evaluator.fastbuild.workplace import Workplace
from protocol.values import Value

# An undefined method of Tensor is one that the light headers did not define.
_METHOD = re.compile(r"\b_ZNK?R?2at6Tensor(?P<length>\d+)(?P<rest>\w+)")


class Unfit(Exception):
    """The light way can't build this, whoever is at fault."""


class Failed(Exception):
    """Compilers refused; whose fault it is, is open."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__(failures[0].output)
        self.failures = tuple(failures)


class Made(Value, frozen=True, kw_only=True):
    """How the library was made."""

    binding: str
    precompiled: bool


class LightBuild:
    """One build under way."""

    def __init__(self, toolkit: Toolkit, order: Order, watch: Watch, deadline: Deadline) -> None:
        self.toolkit = toolkit
        self.order = order
        self.watch = watch
        self.deadline = deadline
        self.folder = Path(order.folder)
        self.place = self.folder / FOLDER
        self._work = Workplace(toolkit=toolkit, folder=self.place, watch=watch, deadline=deadline)
        self._precompiled: list[bool] = []
        self._bindings: set[Binding] = set()

    def make(self, commands: Commands) -> Made:
        """Compile and link; raise `Failed` or `Unfit`."""
        self.place.mkdir(parents=True, exist_ok=True)
        by_path = {source.path: source for source in self.order.sources}
        pairs = [(one, by_path.get(one.source)) for one in commands.compilations]
        failures: list[Failure] = []
        with ThreadPoolExecutor(len(pairs) + 1) as pool:
            under_way = []
            for compilation, source in pairs:
                if source is None:
                    raise Unfit(f"torch compiles {compilation.source}, which nobody named")
                under_way.append(pool.submit(self._compile, compilation, source))
            for one in under_way:
                failure = one.result()
                if failure is not None:
                    failures.append(failure)
        if failures:
            raise Failed(failures)
        self._link(commands)
        return Made(binding="/".join(sorted(self._bindings)), precompiled=all(self._precompiled))

    def _compile(self, compilation: Compilation, source: Source) -> Failure | None:
        if source.for_device:
            compiled = device.compile_source(self._work, compilation, source)
            self._precompiled.append(compiled.precompiled)
            return device.failure(compiled, source)
        name = Path(source.path).name
        binding: Binding = "table" if binds_by_table(source) else "pybind"
        with self.watch.phase(f"g++ {name}"):
            unit = self._host(compilation, source, binding)
        if unit.ran.status and binding == "table" and host.NO_RECORD.search(unit.ran.output):
            binding = "pybind"
            with self.watch.phase(f"g++ {name}, pybind11"):
                unit = self._host(compilation, source, binding)
        self._precompiled.append(unit.precompiled)
        if "PYBIND11_MODULE" in source.code:
            self._bindings.add(binding)
        if not unit.ran.status:
            return None
        return Failure(
            phase="g++",
            output=unit.ran.output,
            source=source.path,
            text=source.text,
            argv=unit.argv,
        )

    def _host(self, compilation: Compilation, source: Source, binding: Binding) -> host.Unit:
        return host.compile_source(
            self.toolkit, compilation, source, binding, self.place, self.deadline
        )

    def _link(self, commands: Commands) -> None:
        half = self.place / self.order.library.name
        outputs = {one.output for one in commands.compilations}
        argv = [str(self.place / word) if word in outputs else word for word in commands.link]
        argv[argv.index("-o") + 1] = str(half)
        if "table" in self._bindings:
            # Before the libraries: many a linker drops those that nothing before them needs.
            last = max(at for at, word in enumerate(commands.link) if word in outputs)
            argv.insert(last + 1, str(self.toolkit.binding))
        with self.watch.phase("link"):
            ran = run([*argv, *self.toolkit.linker], self.folder, self.deadline)
        if ran.status:
            raise Unfit(f"the linker refused: {ran.output[-300:]}")
        with self.watch.phase("look for missing methods"):
            self._check(half)
        half.replace(self.order.library)

    def _check(self, library: Path) -> None:
        """Raise `Unfit` when the library lacks a tensor method that torch's headers define."""
        ran = run(["nm", "-D", "--undefined-only", str(library)], self.folder, self.deadline)
        for found in _METHOD.finditer(ran.output):
            name = found["rest"][: int(found["length"])]
            if found.group() not in self.toolkit.exported and name in self.toolkit.index.methods:
                raise Unfit(f"the method {name} is used where no word names it")
