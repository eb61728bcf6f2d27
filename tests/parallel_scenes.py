"""Scenes that have nothing to do with each other, played two at a time.

Most of what they take is waiting: for a lease's end, for a process to start or to end.  A test
whose parameter is called `scene` says its law of one; others of its module go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

S = TypeVar("S", bound=Hashable)
T = TypeVar("T")
AT_ONCE = 2  # cores of the smallest machine that these tests have to pass on


@contextmanager
def played_in_parallel(
    request: pytest.FixtureRequest, play: Callable[[S], T], folder: Path | None = None
) -> Iterator[Callable[[S], T]]:
    """Play the scenes of those tests of a module that were asked for; yield who hands them out.

    With a `folder` those of all modules in it.
    """
    where = folder or request.path
    here = [item for item in request.session.items if item.path.is_relative_to(where)]
    parameters = [item.callspec.params for item in here if hasattr(item, "callspec")]
    scenes = [named["scene"] for named in parameters if "scene" in named]
    futures: dict[S, Future[T]] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def played_once(scene: S) -> T:
            if scene not in futures:
                futures[scene] = pool.submit(play, scene)
            return futures[scene].result()

        for scene in dict.fromkeys(scenes):
            futures[scene] = pool.submit(play, scene)
        yield played_once
        for future in futures.values():  # an interrupted session waits for none that has not begun
            future.cancel()
