import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "faults")]  # for net_run and fake_run

from net_run import NetRun  # noqa: E402  # found by the line above


@pytest.fixture
def run(tmp_path: Path) -> Iterator[NetRun]:
    """A coordinator that machines may join; remaining guests are killed at the end."""
    run = NetRun(tmp_path / "run", budget=2, away=())
    run.start("coordinator")
    run.listening()
    yield run
    for guest in run.guests:
        if guest.poll() is None:
            guest.kill()
        guest.communicate()
    run.stop()
