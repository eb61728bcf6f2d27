"""What decides the outputs of a reference's call besides its inputs."""

from __future__ import annotations

from protocol.values import Value


class BlockBegin(Value, frozen=True, kw_only=True):
    """The state of a candidate's module before a block."""

    names: tuple[str, ...]
    memory: int  # the descriptor of their bytes


class CallStart(Value, frozen=True, kw_only=True):
    """What decides a call's outputs besides its inputs."""

    seed: int
    calls_before: int = 0  # from that seed on
    begin: BlockBegin | None = None  # of those calls, where that decides outputs
