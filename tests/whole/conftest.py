"""Whole runs are played two at a time, those of all modules here: they mostly wait."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # command

import parallel_scenes
import pytest
from supervisor_command import Command

Scene = Callable[[Path], Command]


@pytest.fixture(scope="session")
def play(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Scene], Command]]:
    """Return the command when a scene is over: what was done to it, and asserted meanwhile."""

    def one(scene: Scene) -> Command:
        return scene(tmp_path_factory.mktemp("scene") / "here")

    with parallel_scenes.played_in_parallel(request, one, Path(__file__).parent) as play:
        yield play
