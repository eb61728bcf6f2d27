"""Independent scenes (disturbed runs), two of which run at a time.

A scene mostly waits: for the end of a lease, for a process to start or to end.  A test whose
parameter is called `scene` checks one scene; the other scenes of its module run at the same time.
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
def scenes_in_parallel(
    request: pytest.FixtureRequest,
    run_scene: Callable[[S], T],
    folder: Path | None = None,
    at_once: int = AT_ONCE,
) -> Iterator[Callable[[S], T]]:
    """Run the scenes of the selected tests in a module; yield a function that returns results.

    With a `folder`: the scenes of all modules in it.
    """
    path = folder or request.path
    items = [item for item in request.session.items if item.path.is_relative_to(path)]
    parameters = [item.callspec.params for item in items if hasattr(item, "callspec")]
    scenes = [parameter["scene"] for parameter in parameters if "scene" in parameter]
    futures: dict[S, Future[T]] = {}
    with ThreadPoolExecutor(at_once) as pool:

        def result_of(scene: S) -> T:
            if scene not in futures:
                futures[scene] = pool.submit(run_scene, scene)
            return futures[scene].result()

        for scene in dict.fromkeys(scenes):
            futures[scene] = pool.submit(run_scene, scene)
        yield result_of
        # An interrupted session does not wait for scenes that have not begun.
        for future in futures.values():
            future.cancel()
