"""One request to a model: the prompt of `docs/method.md`, filled.

`prompting` makes it and a `Model` answers it.  The system message and the sections up to the
architecture are the same for every call of a task, so that a server may cache them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from actors.agents.replies.anchors import without_anchors
from protocol.messages import AgentWork, Repair, Write
from protocol.values import Role, Value

SectionKind = Literal[
    "example", "architecture", "cards", "node", "window", "attempt", "ledger", "person", "role"
]
STABLE_SECTIONS: tuple[SectionKind, ...] = ("example", "architecture")


class PromptSection(Value, frozen=True, kw_only=True):
    """One part of the prompt, in the order of `docs/method.md`."""

    kind: SectionKind
    text: str
    node: int = 0  # the node whose attempt it shows


class FailedTurn(Value, frozen=True, kw_only=True):
    """A reply that could not be used, and the message to the model about it."""

    reply: str
    problem: str


class Request(Value, frozen=True, kw_only=True):
    """A request to a model.

    `work` is the same request in structured form, for the rule book and the scripted model.
    """

    role: Role
    task: str
    attempt: int
    system: str
    sections: tuple[PromptSection, ...]
    # An answer out of bounds gets one more try, and a candidate that failed is mended once.
    turns: tuple[FailedTurn, ...] = ()
    temperature: float | None = None  # optional: many models refuse it
    effort: str = ""  # optional: "low" … "max"; "": the model's own
    max_tokens: int = 16_000
    form: str = ""  # of the answer, in a line, for a second request
    work: AgentWork

    @property
    def stable_text(self) -> str:
        """The part of the user's message that is the same through the whole task."""
        return "\n\n".join(s.text for s in self.sections if s.kind in STABLE_SECTIONS)

    @property
    def varying_text(self) -> str:
        """The part of the user's message that belongs to this call alone."""
        return "\n\n".join(s.text for s in self.sections if s.kind not in STABLE_SECTIONS)

    def render(self) -> str:
        """Return the whole request as one text: it is stored, and two requests are equal by it."""
        parts = ["[system]", self.system, "[user]", self.stable_text, self.varying_text]
        for turn in self.turns:
            parts += ["[assistant]", turn.reply, "[user]", turn.problem]
        return "\n\n".join(part.strip("\n") for part in parts) + "\n"

    def with_problem(self, reply: str, problem: str) -> Request:
        """Return the request that shows a reply and says what is wrong with it."""
        turn = FailedTurn(reply=reply.strip() or "(no words)", problem=problem)
        return msgspec.structs.replace(self, turns=(*self.turns, turn))

    def without_largest_attempt(self) -> Request | None:
        """Return the request without its largest earlier attempt (of equals the oldest).

        The architecture, which is the root's source, and the node always stay; None when no
        attempt is left.
        """
        attempts = [s for s in self.sections if s.kind == "attempt"]
        if not attempts:
            return None
        largest = max(attempts, key=lambda section: (len(section.text), -section.node))
        removed = [largest]
        if len(attempts) == 1:
            removed += [s for s in self.sections if s.kind == "window"]  # the window's heading
        left = tuple(s for s in self.sections if not any(s is one for one in removed))
        return msgspec.structs.replace(self, sections=left)

    def shrunk_by_quarter(self) -> Request | None:
        """Return the request at least a quarter shorter, or without attempts; None if it had none.

        For a model that ran out of room in its reply: the next request has to differ enough.
        """
        smaller = self.without_largest_attempt()
        enough = len(self.render()) * 3 // 4
        while smaller is not None and len(smaller.render()) > enough:
            further = smaller.without_largest_attempt()
            if further is None:
                break
            smaller = further
        return smaller


def shown_source(work: AgentWork) -> str:
    """Return the source that the work is about.

    For a node without code of its own (its model gave none), that is the source of its plan.
    """
    if work.node.source.strip():
        return work.node.source
    if isinstance(work, Write | Repair) and work.plan.scaffold:
        return without_anchors(work.plan.scaffold)
    return work.task.source


def editable_source(work: AgentWork) -> str:
    """Return the source that edits belong to: the one that was shown last."""
    return shown_source(work) if work.failed is None else work.failed.source
