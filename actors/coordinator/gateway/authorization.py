"""Authorization: what a message may claim, given the key that it came under.  Pure.

`violation` finds a false claim about the sender's identity or its leases: then the message is
dropped, and the sender is refused and loses its leases.  `sanitize.py` brings the values of a
message into bounds.  Neither finds a plausible false figure: see SECURITY.md.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from actors.coordinator.scheduling.workers import Peer, PeerIdentity, machine_of
from actors.coordinator.search.attempt_stages import Stage
from protocol import codec, messages
from protocol.messages import Lease, Message
from protocol.settings import COMPUTED_MODELS, Settings
from protocol.values import Role

MAX_PEERS = 4096  # of one ticket
MAX_HELD_LEASES = 4096
NAME_CHARS = 200
INCARNATION_CHARS = 64
WORK_CHARS = 300
MAX_EPOCH = 2**62  # fits into a column of SQLite

RESULT_KINDS: dict[Stage, tuple[type[Message], ...]] = {
    Stage.MEASURE: (messages.ReferenceMeasured,),
    Stage.BASELINES: (messages.BaselinesMeasured,),
    Stage.PLAN: (messages.Planned, messages.ReplyUnusable),
    Stage.WRITE: (messages.Written, messages.ReplyUnusable),
    Stage.REPAIR: (messages.Repaired, messages.ReplyUnusable),
    Stage.SOLVE: (messages.Written, messages.ReplyUnusable),
    Stage.REFLECT: (messages.Written, messages.ReplyUnusable),
    Stage.EVALUATE: (messages.Evaluated,),
    Stage.AMEND_WRITE: (messages.Written, messages.ReplyUnusable),
    Stage.AMEND_REPAIR: (messages.Repaired, messages.ReplyUnusable),
    Stage.AMEND_SOLVE: (messages.Written, messages.ReplyUnusable),
    Stage.AMEND_REFLECT: (messages.Written, messages.ReplyUnusable),
    Stage.REEVALUATE: (messages.Evaluated,),
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
    """Return what is wrong with a message; "" when it is allowed.

    `peer` said Hello under the sender's name; `others` is the number of its ticket's peers.
    """
    if identity.is_revoked:
        return "the ticket has expired or was revoked"
    if identity.role is not None and not _may_send(identity.role, message):
        return f"this key is {_with_article(identity.role)}'s: it may not send {_name(message)}"
    if isinstance(message, messages.Hello):
        return _hello_violation(identity, sender, message, peer, others)
    if peer is None:
        return ""  # it will be answered with `Identify`
    return _peer_violation(identity, message, peer)


def _peer_violation(identity: PeerIdentity, message: messages.ToCoordinator, peer: Peer) -> str:
    """Return what is wrong with a message other than Hello of a known peer."""
    if peer.identity != identity:
        return "another key than the Hello's"
    if not _may_send(peer.role, message):
        return f"{_with_article(peer.role)} may not send {_name(message)}"
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
        return "that incarnation is another peer's"
    if not identity.is_local:
        found = GUEST_SLOT.fullmatch(hello.slot)
        if found is None or (found["role"], found["ticket"]) != (hello.role, identity.ticket):
            return f"{hello.slot!r} is not a slot of the ticket {identity.ticket}"
    return _held_leases_violation(hello.held_leases)


def _held_leases_violation(leases: tuple[Lease, ...]) -> str:
    if len(leases) > MAX_HELD_LEASES:
        return f"{len(leases)} leases at once"
    if any(len(one.work) > WORK_CHARS or not 0 <= one.epoch < MAX_EPOCH for one in leases):
        return "a lease that no coordinator grants"
    return ""


def _name(message: Message) -> str:
    return type(message).__name__


def _may_send(role: Role, message: Message) -> bool:
    return isinstance(message, codec.messages_allowed_from(role))  # type: ignore[arg-type]  # a union of types


def _with_article(role: str) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"


def with_limited_refusal(
    result: messages.Result, identity: PeerIdentity, settings: Settings, role: Role
) -> messages.Result:
    """Return a result whose refusal counts for this attempt only, unless it may count for more.

    Only a computed model's refusal is final: a language model may answer otherwise the next time.
    A guest's refusal is not final as long as the run has local agents of that role.
    """
    if not isinstance(result, messages.ReplyUnusable):
        return result
    computed = settings.model_of(role).startswith(COMPUTED_MODELS)
    if computed and (identity.is_local or not settings.process_count(role)):
        return result
    return replace(result, gives_up_on="attempt")
