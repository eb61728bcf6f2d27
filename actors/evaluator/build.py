"""The build stage, the judge's side: have the candidate imported where there is no device.

What that compiles stays in the candidate's own folder, where its runner finds it ready.
`python -m actors.evaluator.build FILE` builds one file by hand and prints what took how long.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from actors.evaluator.fastbuild.process import TooLong
from actors.evaluator.fastbuild.results import Results
from actors.evaluator.fastbuild.slots import Slots, fitting_here
from actors.evaluator.fastbuild.store import Store
from actors.evaluator.isolation.child import Child, Gone, Unwanted
from actors.evaluator.isolation.nursery import Nursery, Unjudgeable
from actors.evaluator.verdicts import Fault, fault_of
from actors.evaluator.wire.orders import Confinement, Import, Raised
from actors.evaluator.wire.runner_orders import FromRunner
from protocol.values import DeviceKind, Stage, Value

EXTENSIONS = "extensions"  # in the candidate's folder, as its environment says
SLOT_S = 600.0
NO_MODULES: Mapping[str, str] = MappingProxyType({})


class Built(Value, frozen=True, kw_only=True):
    """A candidate that has been through the build stage, in its own folder."""

    confinement: Confinement
    fault: Fault | None = None
    seconds: float = 0.0
    starved: bool = False  # it was killed for want of memory

    @property
    def there(self) -> bool:
        """Whether its folder is: that goes with the zygote that built in it."""
        return Path(self.confinement.folder).is_dir()


class Building:
    """How one candidate is built: where, from when on it is kept, and who still wants it."""

    def __init__(
        self,
        nursery: Nursery,
        confinement: Confinement,
        source: str,
        *,
        device: DeviceKind,
        store: Store | None,
        toolkit: str,
        unwanted: Callable[[], bool],
        modules: Mapping[str, str] = NO_MODULES,
    ) -> None:
        """`modules`: what lies beside the candidate as it lay beside the task."""
        self.confinement = confinement
        self._nursery = nursery
        self._source = source
        self._modules = dict(modules)
        self._device = device
        self._store = store
        self._unwanted = unwanted
        self._extensions = Path(confinement.folder) / EXTENSIONS
        self._results = Results(store.results) if store and toolkit else None
        self._key = (
            self._results.key(_whole(source, modules), toolkit, confinement.environment)
            if self._results
            else ""
        )

    def run(self, build_s: float) -> Built:
        """Build what importing the source builds, or take it from the store of results.

        It is imported in any case: what it does besides `load` and `load_inline` is done then.
        """
        with self._slot():
            began = time.monotonic()
            if self._results:
                self._results.restore(self._key, self._extensions)
            fault, starved = self._import(build_s)
            # The builder's whole tree is gone: nothing changes any more under the copy.
            if self._results and fault is None:
                self._results.keep(self._key, self._extensions)
            return Built(
                confinement=self.confinement,
                fault=fault,
                seconds=time.monotonic() - began,
                starved=starved,
            )

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Hold one of the places that this machine's memory has for builds."""
        if self._store is None:
            yield
            return
        try:
            with Slots(self._store.slots, fitting_here()).taken(SLOT_S, self._wait):
                yield
        except TooLong as error:
            raise Unjudgeable(str(error)) from None

    def _wait(self) -> None:
        if self._unwanted():
            raise Unwanted

    def _import(self, build_s: float) -> tuple[Fault | None, bool]:
        builder: Child[FromRunner] = self._nursery.spawn(
            "builder", self.confinement, FromRunner, trusted=False, unwanted=self._unwanted
        )
        zygote = self._nursery.pid
        order = Import(source=self._source, class_name="ModelNew", modules=self._modules)
        try:
            answer = builder.ask(order, build_s)
        finally:
            builder.kill()
        output = builder.output.text()
        if isinstance(answer, Gone):
            if answer.how == "lost" and self._nursery.pid != zygote:
                raise Unjudgeable("the builds' zygote was replaced")
            stage: Stage = "build" if answer.how == "timed_out" else "import"
            return fault_of(answer, stage, output), answer.how == "memory"
        said = answer[0]
        # With a card, an import that fails for want of one is the runner's to try again.
        if isinstance(said, Raised) and (said.compiling or self._device == "cpu"):
            return fault_of(said, "import", output), False
        return None, False


def _whole(source: str, modules: Mapping[str, str]) -> str:
    """Return all the text that a build depends on."""
    return "\0".join([source, *(text for pair in sorted(modules.items()) for text in pair)])


if __name__ == "__main__":
    # Here alone: the judge imports this file and must not import torch.
    from actors.evaluator.fastbuild.__main__ import main

    sys.exit(main(sys.argv[1:]))
