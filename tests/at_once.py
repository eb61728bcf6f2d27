"""Scenes that have nothing to do with each other, played two at a time.

Most of what they take is waiting: for a lease's end, for a process to start or to end.  A test
whose parameter is called `scene` says its law of one; others of its module go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest

T = TypeVar("T")
AT_ONCE = 2  # cores of the smallest machine that these tests have to pass on


@contextmanager
def played(
    request: pytest.FixtureRequest, play: Callable[[str], T]
) -> Iterator[Callable[[str], T]]:
    """Play the scenes of those tests of a module that were asked for; yield who hands them out."""
    here = [item for item in request.session.items if item.path == request.path]
    parameters = [item.callspec.params for item in here if hasattr(item, "callspec")]
    scenes = [named["scene"] for named in parameters if "scene" in named]
    futures: dict[str, Future[T]] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for scene in dict.fromkeys(scenes):
            futures[scene] = pool.submit(play, scene)
        yield lambda scene: futures[scene].result()
        for future in futures.values():  # an interrupted session waits for none that has not begun
            future.cancel()
