"""Nobody is believed: what a message may claim, given whose key it came under.

Pure.  `complaint` names a lie about who speaks or what he holds: the message is dropped and its
sender refused, with everything that it holds.  What a message may contain is brought into bounds in
`bounds.py`.  What neither can find is a plausible lie: see SECURITY.md.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from actors.coordinator.origin import Origin, machine_of
from actors.coordinator.peers import Peer
from actors.coordinator.stages import Stage
from protocol import codec, messages
from protocol.messages import Lease, Message
from protocol.settings import COMPUTED, Settings
from protocol.values import Role

MOST_PEERS = 4096  # of one ticket
MOST_HOLDS = 4096
NAME_CHARS = 200
INCARNATION_CHARS = 64
WORK_CHARS = 300
MOST_EPOCH = 2**62  # what fits into a column

RESULTS: dict[Stage, tuple[type[Message], ...]] = {
    Stage.MEASURE: (messages.Measured,),
    Stage.PLAN: (messages.Planned, messages.Unusable),
    Stage.WRITE: (messages.Written, messages.Unusable),
    Stage.REPAIR: (messages.Repaired, messages.Unusable),
    Stage.SOLVE: (messages.Written, messages.Unusable),
    Stage.REFLECT: (messages.Written, messages.Unusable),
    Stage.EVALUATE: (messages.Evaluated,),
    Stage.CONFIRM: (messages.Evaluated,),
}
GUEST_SLOT = re.compile(r"(?P<role>[a-z]+)(-\d{1,4})?@[A-Za-z0-9_-]{1,80}\.(?P<ticket>[0-9a-f]+)")


def complaint(
    origin: Origin,
    sender: str,
    message: messages.ToCoordinator,
    peer: Peer | None,
    others: int = 0,
) -> str:
    """Return what is wrong with a message, "" when nothing is.

    `peer` is who said Hello under the sender's name; `others` how many peers its ticket has.
    """
    if origin.void:
        return "the ticket has expired or was revoked"
    if origin.role is not None and not _may_say(origin.role, message):
        return f"this key is {_a(origin.role)}'s, who may not say {type(message).__name__}"
    if isinstance(message, messages.Hello):
        return _about_hello(origin, sender, message, peer, others)
    if peer is None:
        return ""  # it will be asked who it is
    return _about_words(origin, message, peer)


def _about_words(origin: Origin, message: messages.ToCoordinator, peer: Peer) -> str:
    if peer.origin != origin:
        return "another key than it said Hello with"
    if not _may_say(peer.role, message):
        return f"{_a(peer.role)} may not say {type(message).__name__}"
    match message:
        case messages.Beat():
            return _about_holds(message.holds)
        case messages.Lost():
            if machine_of(message.slot) != machine_of(peer.slot):
                return f"{message.slot} is not on the machine of {peer.slot}"
        case messages.Drain():
            return "" if origin.local else "a joined machine may not end the run"
        case messages.Hello():
            return ""
        case _:
            return _about_holds((message.lease,))
    return ""


def fits(stage: Stage, result: Message) -> bool:
    """Whether that kind of result can end a lease of that stage."""
    return isinstance(result, RESULTS[stage])


def _about_hello(
    origin: Origin, sender: str, hello: messages.Hello, peer: Peer | None, others: int
) -> str:
    if hello.incarnation != sender or len(sender) > INCARNATION_CHARS:
        return "the socket's name is not the incarnation"
    if not 0 < len(hello.slot) <= NAME_CHARS:
        return "the slot has no usable name"
    if origin.role is not None and hello.role is not origin.role:
        return f"this key is {_a(origin.role)}'s, not {_a(hello.role)}'s"
    if peer is None:
        if not origin.local and others >= MOST_PEERS:
            return f"the ticket {origin.ticket} has {others} peers already"
    elif (peer.origin, peer.role, peer.slot) != (origin, hello.role, hello.slot):
        return "that name is another's"
    if not origin.local:
        found = GUEST_SLOT.fullmatch(hello.slot)
        if found is None or (found["role"], found["ticket"]) != (hello.role, origin.ticket):
            return f"{hello.slot!r} is no slot of the ticket {origin.ticket}"
    return _about_holds(hello.holds)


def _about_holds(holds: tuple[Lease, ...]) -> str:
    if len(holds) > MOST_HOLDS:
        return f"{len(holds)} leases at once"
    if any(len(h.work) > WORK_CHARS or not 0 <= h.epoch < MOST_EPOCH for h in holds):
        return "a lease that nobody grants"
    return ""


def _may_say(role: Role, message: Message) -> bool:
    return isinstance(message, codec.allowed(role))  # type: ignore[arg-type]  # a union of types


def _a(role: str) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"


def believed(
    result: messages.Result, origin: Origin, settings: Settings, role: Role
) -> messages.Result:
    """Return a refusal without its last word where nobody may have one.

    A language model may answer otherwise the next time.  And a guest can't end a task, nor close a
    node, as long as an agent of our own could be asked.
    """
    if not isinstance(result, messages.Unusable):
        return result
    computed = settings.model_of(role).startswith(COMPUTED)
    if computed and (origin.local or not settings.count(role)):
        return result
    return replace(result, gives_up_on="attempt")
