"""The whole runs of all modules here, one after the other: two at once would widen each other's
intervals, and a wide interval is measured again.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # supervisor_command

import parallel_scenes
import pytest
from supervisor_command import Command

Scene = Callable[[Path], Command]


@pytest.fixture(scope="session")
def run_scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Scene], Command]]:
    """Return a function: scene -> the command after the scene.

    A scene disturbs the command, and asserts what must hold on the way.
    """

    def run_in_new_folder(scene: Scene) -> Command:
        return scene(tmp_path_factory.mktemp("scene") / "folder")

    with parallel_scenes.scenes_in_parallel(
        request, run_in_new_folder, Path(__file__).parent, at_once=1
    ) as run_scene:
        yield run_scene
