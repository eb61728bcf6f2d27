"""What decides the outputs of a reference's call besides its inputs."""

from __future__ import annotations

from protocol.values import Value


class CallStart(Value, frozen=True, kw_only=True):
    """What decides a call's outputs besides its inputs."""

    seed: int
    calls_before: int = 0  # from that seed on
    state: tuple[str, ...] = ()  # names of tensors that decide outputs, as candidates get them
