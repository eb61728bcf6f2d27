"""Nobody is believed: what a message may claim, given whose key it came under.

Pure.  `violation` names a lie about who speaks or what he holds: the message is dropped and its
sender refused, with everything that it holds.  What a message may contain is brought into bounds in
`sanitize.py`.  What neither can find is a plausible lie: see SECURITY.md.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from actors.coordinator.scheduling.workers import Peer, PeerIdentity, machine_of
from actors.coordinator.search.stages import Stage
from protocol import codec, messages
from protocol.messages import Lease, Message
from protocol.settings import COMPUTED_MODELS, Settings
from protocol.values import Role

MAX_PEERS = 4096  # of one ticket
MAX_HOLDS = 4096
NAME_CHARS = 200
INCARNATION_CHARS = 64
WORK_CHARS = 300
MAX_EPOCH = 2**62  # what fits into a column

RESULT_KINDS: dict[Stage, tuple[type[Message], ...]] = {
    Stage.MEASURE: (messages.ReferenceMeasured,),
    Stage.PLAN: (messages.Planned, messages.ReplyUnusable),
    Stage.WRITE: (messages.Written, messages.ReplyUnusable),
    Stage.REPAIR: (messages.Repaired, messages.ReplyUnusable),
    Stage.SOLVE: (messages.Written, messages.ReplyUnusable),
    Stage.REFLECT: (messages.Written, messages.ReplyUnusable),
    Stage.EVALUATE: (messages.Evaluated,),
    Stage.CONFIRM: (messages.Evaluated,),
}
GUEST_SLOT = re.compile(r"(?P<role>[a-z]+)(-\d{1,4})?@[A-Za-z0-9_-]{1,80}\.(?P<ticket>[0-9a-f]+)")


def violation(
    identity: PeerIdentity,
    sender: str,
    message: messages.ToCoordinator,
    peer: Peer | None,
    others: int = 0,
) -> str:
    """Return what is wrong with a message, "" when nothing is.

    `peer` is who said Hello under the sender's name; `others` how many peers its ticket has.
    """
    if identity.is_revoked:
        return "the ticket has expired or was revoked"
    if identity.role is not None and not _may_send(identity.role, message):
        return (
            f"this key is {_with_article(identity.role)}'s, who may not say "
            f"{type(message).__name__}"
        )
    if isinstance(message, messages.Hello):
        return _hello_violation(identity, sender, message, peer, others)
    if peer is None:
        return ""  # it will be asked who it is
    return _text_violation(identity, message, peer)


def _text_violation(identity: PeerIdentity, message: messages.ToCoordinator, peer: Peer) -> str:
    if peer.identity != identity:
        return "another key than it said Hello with"
    if not _may_send(peer.role, message):
        return f"{_with_article(peer.role)} may not say {type(message).__name__}"
    match message:
        case messages.Heartbeat():
            return _held_leases_violation(message.held_leases)
        case messages.WorkerLost():
            if machine_of(message.slot) != machine_of(peer.slot):
                return f"{message.slot} is not on the machine of {peer.slot}"
        case messages.Drain():
            return "" if identity.is_local else "a joined machine may not end the run"
        case messages.Hello():
            return ""
        case _:
            return _held_leases_violation((message.lease,))
    return ""


def is_result_allowed(stage: Stage, result: Message) -> bool:
    """Whether that kind of result can end a lease of that stage."""
    return isinstance(result, RESULT_KINDS[stage])


def _hello_violation(
    identity: PeerIdentity, sender: str, hello: messages.Hello, peer: Peer | None, others: int
) -> str:
    if hello.incarnation != sender or len(sender) > INCARNATION_CHARS:
        return "the socket's name is not the incarnation"
    if not 0 < len(hello.slot) <= NAME_CHARS:
        return "the slot has no usable name"
    if identity.role is not None and hello.role is not identity.role:
        return f"this key is {_with_article(identity.role)}'s, not {_with_article(hello.role)}'s"
    if peer is None:
        if not identity.is_local and others >= MAX_PEERS:
            return f"the ticket {identity.ticket} has {others} peers already"
    elif (peer.identity, peer.role, peer.slot) != (identity, hello.role, hello.slot):
        return "that name is another's"
    if not identity.is_local:
        found = GUEST_SLOT.fullmatch(hello.slot)
        if found is None or (found["role"], found["ticket"]) != (hello.role, identity.ticket):
            return f"{hello.slot!r} is no slot of the ticket {identity.ticket}"
    return _held_leases_violation(hello.held_leases)


def _held_leases_violation(holds: tuple[Lease, ...]) -> str:
    if len(holds) > MAX_HOLDS:
        return f"{len(holds)} leases at once"
    if any(len(h.work) > WORK_CHARS or not 0 <= h.epoch < MAX_EPOCH for h in holds):
        return "a lease that nobody grants"
    return ""


def _may_send(role: Role, message: Message) -> bool:
    return isinstance(message, codec.messages_allowed_from(role))  # type: ignore[arg-type]  # a union of types


def _with_article(role: str) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"


def with_limited_refusal(
    result: messages.Result, identity: PeerIdentity, settings: Settings, role: Role
) -> messages.Result:
    """Return a refusal without its last word where nobody may have one.

    A language model may answer otherwise the next time.  And a guest can't end a task, nor close a
    node, as long as an agent of our own could be asked.
    """
    if not isinstance(result, messages.ReplyUnusable):
        return result
    computed = settings.model_of(role).startswith(COMPUTED_MODELS)
    if computed and (identity.is_local or not settings.process_count(role)):
        return result
    return replace(result, gives_up_on="attempt")
