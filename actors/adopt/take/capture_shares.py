"""Which calls are recorded where not all of them fit under the cap of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actors.adopt.model.call_layouts import CallKind
from actors.adopt.model.call_recorder import KindOfCalls

SETS_A_KIND = 3
OVERHEAD_BYTES = 16 << 10  # of a file beside its tensors


def capture_shares(
    wanted: Mapping[str, Sequence[KindOfCalls]], rounds: int, room: int
) -> tuple[dict[str, dict[CallKind, int]], bool]:
    """Return how many calls of each group's kinds are recorded, and whether all could be.

    `wanted`: the most promising group first, each with its kinds, the most costly first.  `rounds`:
    how often the model ran while the calls were counted.  `room`: bytes.  Each group gets a call of
    its first kind, then one of the others, then second and third calls.
    """
    shares: dict[str, dict[CallKind, int]] = {name: {} for name in wanted}
    is_whole = True
    most_kinds = max((len(kinds) for kinds in wanted.values()), default=0)
    for turn in range(SETS_A_KIND):
        for place in range(most_kinds):
            for name, kinds in wanted.items():
                if place >= len(kinds) or turn >= max(kinds[place].calls // rounds, 1):
                    continue
                size = kinds[place].call_bytes + OVERHEAD_BYTES
                if size > room:
                    is_whole = False
                    continue
                room -= size
                kind = kinds[place].kind
                shares[name][kind] = shares[name].get(kind, 0) + 1
    return shares, is_whole
