"""How torch.compile sees a model: the number of graphs and of breaks between them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import msgspec
import torch

from actors.adopt.check.fitted_states import DroppedError

LONGEST_REASON = 200


class GraphCount(msgspec.Struct, frozen=True, kw_only=True):
    """What tracing a pass over all batches gave."""

    graphs: int
    breaks: int
    reason: str = ""  # of the most frequent break

    def is_worse_than(self, other: GraphCount, sites: int) -> bool:
        """Whether there are more breaks, or more graphs than `sites` fitted modules may cost.

        Where blocks are compiled one by one, equal blocks share a graph, and each fitted one has
        its own.
        """
        return self.breaks > other.breaks or self.graphs > other.graphs * max(sites, 1)

    def describe(self) -> str:
        """Return "2 graphs and 1 breaks (reason)"."""
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.graphs} graphs and {self.breaks} breaks{why}"


def _reason(text: str) -> str:
    """Return what a break's text says first, and what it calls its context."""
    first, _, rest = text.partition("\n")
    context = rest.partition("Developer debug context: ")[2].partition("\n")[0]
    return " ".join(f"{first}: {context}".split())[:LONGEST_REASON] if context else first


def count_graphs(model: torch.nn.Module, run: Callable[[], None]) -> GraphCount | None:
    """Trace the model's calls in `run`, and compile nothing; None if they can't be traced."""
    from torch._dynamo import reset
    from torch._dynamo.utils import counters

    reset()
    counters.clear()
    before = model._compiled_call_impl
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.compile(backend="eager")
            run()
        breaks = counters["graph_break"]
        return GraphCount(
            graphs=int(counters["stats"]["unique_graphs"]),
            breaks=int(sum(breaks.values())),
            reason=_reason(max(breaks, key=breaks.__getitem__, default="")),
        )
    except Exception:  # noqa: BLE001  # the compiler on the user's model: then it is not compared
        return None
    finally:
        model._compiled_call_impl = before
        reset()
        counters.clear()


class GraphCounts:
    """The graphs with sets of winners, each set traced once: of a generate loop that takes long."""

    def __init__(
        self,
        only: Callable[[Sequence[str]], None],
        model: torch.nn.Module,
        run: Callable[[], None],
    ) -> None:
        """`only`: have exactly these winners in the model.  `run`: a pass over all batches."""
        self._only, self._model, self._run = only, model, run
        self._known: dict[frozenset[str], GraphCount | None] = {}

    def of(self, names: Sequence[str]) -> GraphCount | None:
        """Return what torch.compile makes of the model with these winners."""
        key = frozenset(names)
        if key not in self._known:
            self._only(names)
            self._known[key] = count_graphs(self._model, self._run)
        return self._known[key]

    def refuse(self, names: Sequence[str], sites: int) -> None:
        """Raise DroppedError where winners in so many modules make more graphs or breaks."""
        before = self.of([])
        after = self.of(names) if before is not None else None
        if before is not None and after is not None and after.is_worse_than(before, sites):
            raise DroppedError(
                f"under torch.compile there are {after.describe()}, before {before.describe()}"
            )
