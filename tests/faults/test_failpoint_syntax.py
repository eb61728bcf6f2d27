"""The syntax of STARK_FAILPOINTS: a mistake is one line; a failpoint fires as often as it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from process_template import run_process

from actors import failpoints
from protocol.messages import Heartbeat

TOP = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def disarmed_afterwards(tmp_path: Path):
    yield
    failpoints.arm("coder-0", tmp_path, {})


@pytest.mark.parametrize(
    ("text", "expected_error"),
    [
        ("coordinator", "expected PLACE.POINT=ACTION"),
        ("absent.send.Heartbeat=kill", "no place 'absent'"),
        ("coder.send.Evaluated=kill", "coder has no point 'send.Evaluated'"),
        ("coder.send.Heartbeat=explode", "can't 'explode'"),
        ("coder.hear.CallStored=drop", "can't 'drop'"),
        ("coder.send.Heartbeat=kill@often", "a number in"),
    ],
)
def test_a_syntax_error_is_one_line(text: str, expected_error: str) -> None:
    """A mistyped failpoint would never fire, and its test would prove nothing."""
    with pytest.raises(ValueError, match=expected_error) as error:
        failpoints.parse(text)
    assert "\n" not in str(error.value)


def test_the_command_and_the_actors_refuse_a_syntax_error(tmp_path: Path) -> None:
    """Exit status 2, one line on stderr, and no run folder."""
    environment = os.environ | {"STARK_FAILPOINTS": "coder.nowhere=kill", "PYTHONPATH": str(TOP)}
    (tmp_path / "stark.toml").write_text('model = "recipes"\n')
    agent = ["-m", "actors.agents", "--role", "coder", "--connect", "ipc://x", "--slot", "coder-0"]
    for argv in ([str(TOP / "supervisor.py"), "--task", "t.py", "--run-dir", "run"], agent,
                 ["-m", "actors.coordinator"]):  # fmt: skip
        status, lines = run_process(argv, tmp_path, environment)
        assert (2, 1) == (status, len(lines)), lines
        assert "coder has no point 'nowhere'" in lines[0]
    assert not (tmp_path / "run").exists()


def test_a_failpoint_fires_at_its_hit_and_once_in_a_run(tmp_path: Path) -> None:
    """It does not fire again in the process that takes over: kills would never end otherwise."""
    environ = {"STARK_FAILPOINTS": "coder.after-call=raise@2; planner.after-call=raise"}
    failpoints.arm("coder-1", tmp_path, environ)
    failpoints.hit("before-call")
    failpoints.hit("after-call")
    with pytest.raises(failpoints.FailpointError):
        failpoints.hit("after-call")
    for _ in range(2):
        failpoints.hit("after-call")
    failpoints.arm("coder-1", tmp_path, environ)
    for _ in range(3):
        failpoints.hit("after-call")


def test_each_and_probability_fire_repeatedly(tmp_path: Path) -> None:
    """`@each` fires at every hit; `%` fires at a share of the hits, which its seed determines."""
    frames = [b"magic", b"\x81body"]
    failpoints.arm("coder-0", tmp_path, {"STARK_FAILPOINTS": "coder.send.Heartbeat=drop@each"})
    assert [[], []] == [failpoints.frames_to_send(Heartbeat(), frames) for _ in range(2)]

    counts = []
    for _ in range(2):
        environ = {
            "STARK_FAILPOINTS": "coder.send.Heartbeat=duplicate%0.3",
            "STARK_FAILPOINTS_SEED": "5",
        }
        failpoints.arm("coder-0", tmp_path, environ)
        counts.append([len(failpoints.frames_to_send(Heartbeat(), frames)) for _ in range(200)])
    assert counts[0] == counts[1]
    assert 30 < counts[0].count(2) < 90


def test_a_slot_can_be_named(tmp_path: Path) -> None:
    """A failpoint can name one of several processes of a role by its slot."""
    environ = {"STARK_FAILPOINTS": "coder-1.before-work=raise"}
    failpoints.arm("coder-0", tmp_path, environ)
    failpoints.hit("before-work")
    failpoints.arm("coder-1", tmp_path, environ)
    with pytest.raises(failpoints.FailpointError):
        failpoints.hit("before-work")
