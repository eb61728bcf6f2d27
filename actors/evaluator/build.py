"""The build stage, the judge's side: have the candidate imported where there is no device.

What that compiles stays in the candidate's own folder, where its runner finds it ready.
"""

from __future__ import annotations

from actors.evaluator.child import Child, Gone
from actors.evaluator.nursery import Nursery
from actors.evaluator.orders import Confinement, FromRunner, Import, Raised
from actors.evaluator.verdicts import Fault, fault_of
from protocol.values import Stage

COMPILING = ("cpp_extension", "load_inline")


def compiles(source: str) -> bool:
    """Whether `source` looks as if importing it compiled something.

    A candidate that hides it is built by its runner, within the runner's time.
    """
    return any(word in source for word in COMPILING)


def build(nursery: Nursery, confinement: Confinement, source: str, build_s: float) -> Fault | None:
    """Build what importing `source` builds; return what went wrong."""
    builder: Child[FromRunner] = nursery.spawn("builder", confinement, FromRunner, trusted=False)
    try:
        answer = builder.ask(Import(source=source, class_name="ModelNew"), build_s)
    finally:
        builder.kill()
    output = builder.output.text()
    if isinstance(answer, Gone):
        stage: Stage = "build" if answer.how == "timed_out" else "import"
        return fault_of(answer, stage, output)
    said = answer[0]
    # With a card, an import that fails for want of one is the runner's to try again.
    if isinstance(said, Raised) and (said.compiling or nursery.device == "cpu"):
        return fault_of(said, "import", output)
    return None
