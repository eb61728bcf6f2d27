"""Every mistake of a user: one line on stderr, status 2, nothing written."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from process_template import run_process
from supervisor_sample import TASK_SOURCE, Sample

import supervisor
from actors.cli import UsageError
from actors.supervisor.cli.flags import check_environment
from actors.supervisor.cli.preflight import check_models, name_of
from actors.supervisor.processes.environment import NO_SETTINGS
from protocol import settings as settings_file
from protocol import tickets
from protocol.key_ring import KeyRing, new_key_pair, new_ticket
from protocol.settings import Settings
from protocol.values import Role

ROOT = Path(__file__).resolve().parents[2]


def command(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in `folder`, without a key."""
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, str(ROOT / "supervisor.py"), *arguments],
        cwd=folder,
        env=environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refusal(folder: Path, *arguments: str, **variables: str) -> str:
    """Return the status and the one line with which the command ends in `folder`."""
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    argv = [str(ROOT / "supervisor.py"), *arguments]
    status, lines = run_process(argv, folder, environ | variables)
    assert 1 == len(lines), lines
    return f"{status} {lines[0]}"


def ticket(expires: float) -> tickets.Ticket:
    """Return a ticket for evaluators, of a run without a listener."""
    key_ring = KeyRing(server=new_key_pair())
    return new_ticket(
        key_ring,
        run="run",
        name="abc",
        addresses=("tcp://127.0.0.1:1",),
        roles=(Role.SUPERVISOR, Role.EVALUATOR),
        expires=expires,
        beat_s=1.0,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a good task and several bad ones."""
    (tmp_path / "t.py").write_text(TASK_SOURCE)
    (tmp_path / "mine.py").write_text(f"{TASK_SOURCE}\n# mine\n")
    (tmp_path / "syntax.py").write_text("import torch\ndef f(:\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "nested.py").write_text(TASK_SOURCE.replace("class Model(", "class Net(") + "\n")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "null.py").write_bytes(b"x = 1\x00\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "t.py").write_text(TASK_SOURCE)
    for name, expires in (("late.json", 0.0), ("good.json", time.time() + 60)):
        tickets.write(tmp_path / name, ticket(expires))
    (tmp_path / "cut.json").write_text(
        (tmp_path / "good.json").read_text().replace('"secret": "', '"secret": "no key ')
    )
    (tmp_path / "where.json").write_text(
        (tmp_path / "good.json").read_text().replace("tcp://127.0.0.1:1", "127.0.0.1")
    )
    for name in ("cut.json", "where.json"):
        (tmp_path / name).chmod(0o600)
    (tmp_path / "open.json").write_text((tmp_path / "good.json").read_text())
    (tmp_path / "public.json").write_text("{}")
    (tmp_path / "private.json").write_text("{}")
    (tmp_path / "private.json").chmod(0o600)
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "large.py").write_text("#" * (10 << 20))
    (tmp_path / "old").mkdir()
    for name in ("stark.toml", "run.db"):
        (tmp_path / "old" / name).touch()
    other = Sample(tmp_path / "other")
    other.add_call("gelu/1/plan", None)
    other.db.close()
    (tmp_path / "bad.jsonl").write_text('{"role": "coder", "code": "x"}\nnonsense\n')
    return tmp_path


CASES: tuple[tuple[str, str], ...] = (
    ("", "--task FILE"),
    ("--task absent.py", "absent.py does not exist"),
    ("--task syntax.py", "syntax.py:2: "),
    ("--task empty.py", "no Model and no get_inputs and no get_init_inputs"),
    ("--task nested.py", "nested.py has no Model"),
    ("--task bytes.py", "bytes.py is not UTF-8 text"),
    ("--task null.py", "null.py"),
    ("--task full", "Is a directory"),
    ("--task pipe.py", "can't read pipe.py: it is not a plain file"),
    ("--task /dev/zero", "can't read /dev/zero: it is not a plain file"),
    ("--task loop.py", "can't read loop.py: "),
    ("--task large.py", "large.py is larger than 1 MiB"),
    (f"--task {'n' * 300}.py", "File name too long"),
    (f"--resume {'n' * 300}", "File name too long"),
    ("--resume t.py", "it is a file"),
    ("--resume=", "--resume: expected a path, got nothing"),
    ("--task t.py --run-dir=", "--run-dir: expected a path, got nothing"),
    ("--task t.py --metrics=", "--metrics: expected a name, got nothing"),
    ("--task t.py --task again/t.py", "both called t"),
    ("--task t.py --budget 99999999999999999999", "--budget: expected 1000000000 at most"),
    ("--task t.py --budget " + "9" * 5000, "--budget: expected a whole number"),
    ("--task t.py --seed 9223372036854775808", "--seed: expected 9223372036854775807 at most"),
    ("--task t.py --in-flight 1000000000", "--in-flight: expected 100000 at most"),
    ("--task t.py --max-minutes 1e300", "--max-minutes: expected 1000000000 at most"),
    ("--task t.py --max-cost inf", "--max-cost: expected a number above 0"),
    ("--task t.py --budget 0", "--budget: expected a whole number, 1 or more"),
    ("--task t.py --evaluators 1000000000", "and ulimit -n allows"),
    ("--task t.py --budge 3", "unrecognized arguments: --budge 3"),
    ("--task t.py --min-sandbox 4", "--min-sandbox: expected a sandbox level, 0 to 3"),
    ("--task t.py --max-cost nan", "--max-cost: expected a number above 0"),
    ("--task t.py --model gpt-4", "unknown model 'gpt-4'"),
    ("--task t.py --model claude-sonnet-4-6", "set ANTHROPIC_API_KEY"),
    ("--task t.py --coder-model nonsense", "unknown model 'nonsense'"),
    ("--task t.py --model script:absent", "script:absent: can't read it"),
    ("--task t.py --model script:bad.jsonl", "bad.jsonl:2: not a JSON object"),
    ("--task t.py --model replay:x", "replay:x: no such folder"),
    ("--task t.py --model replay:full", "it needs a run folder"),
    ("--task t.py --base-url http://127.0.0.1:1", "--base-url needs --model"),
    ("--task t.py --model m --base-url localhost:8000", "expected http://HOST:PORT"),
    ("--task t.py --model m --base-url http://here:99999", "expected http://HOST:PORT"),
    ("--task t.py --model m --base-url http://[::1", "expected http://HOST:PORT"),
    ("--task t.py --strategy clever", "expected stark or"),
    ("--task t.py --policy clever", "expected epsilon-greedy or"),
    ("--task t.py --prices empty.py", "--prices: empty.py holds no prices"),
    ("--task t.py --strategy sampling --policy mcts", "--strategy sampling asks no policy"),
    ("--task t.py --evaluators 0", "no process would do their work"),
    ("--join absent", "can't read the ticket absent"),
    ("--join public.json", "public.json is not a ticket"),
    ("--join pipe.py", "pipe.py: it is not a plain file"),
    ("--join large.py", "larger than 64 KiB"),
    ("--join open.json", "can be read by others: chmod 600 open.json"),
    ("--join private.json", "private.json is not a ticket"),
    ("--join late.json", "late.json has expired"),
    ("--join cut.json", "cut.json is not a ticket"),
    ("--join where.json", "where.json is not a ticket"),
    ("--join good.json --coders 1", "not for coders"),
    ("--join good.json --evaluators 0", "nothing to lend"),
    ("--join good.json --budget 3", "obeys the run's own settings: leave out --budget"),
    ("--join good.json --task t.py", "leave out --task"),
    ("--task t.py --max-wait 5", "--max-wait goes with --join"),
    ("--task t.py --listen tcp://127.0.0.1", "expected tcp://ADDR:PORT"),
    ("--task t.py --listen ipc:///tmp/nowhere/s", "expected tcp://ADDR:PORT"),
    ("--task t.py --listen tcp://some.where:5555", "ADDR a numeric address"),
    ("--task t.py --listen tcp://127.0.0.1:5555/x", "expected tcp://ADDR:PORT"),
    ("--task t.py --listen tcp://me@127.0.0.1:5555", "expected tcp://ADDR:PORT"),
    ("--task t.py --listen tcp://[::1]", "expected tcp://ADDR:PORT"),
    ("--task t.py --listen tcp://192.0.2.1:5555", "--listen tcp://192.0.2.1:5555: "),
    ("--task t.py --listen tcp://127.0.0.1:{used_port}", "choose another port"),
    ("--task t.py --run-dir full", "full is not empty (it holds notes.txt)"),
    ("--task t.py --run-dir old", "old holds a run already"),
    ("--task mine.py --model replay:other", "has no answers for mine.py: that run is of gelu"),
    ("--task t.py --run-dir t.py", "is a file"),
    ("--task t.py --run-dir /proc/nowhere/run", "can't make the run folder"),
    ("--resume absent", "no such folder"),
    ("--resume full", "not a run folder"),
    ("--resume full --task t.py", "leave out --task"),
)


@pytest.mark.parametrize(("arguments", "reason"), CASES, ids=[case[0] or "none" for case in CASES])
def test_a_mistake_is_one_line_and_leaves_nothing(
    folder: Path,
    arguments: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line names the flag or file, the status is 2, and the folder is unchanged."""
    before = sorted(folder.rglob("*"))
    monkeypatch.chdir(folder)
    for name in set(os.environ) - {"PATH", "HOME"}:
        monkeypatch.delenv(name)
    monkeypatch.setattr(supervisor, "run_to_end", lambda *_: pytest.fail("a run began"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        status = supervisor.main(arguments.format(used_port=port).split())
    printed = capsys.readouterr()
    assert status == 2
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert reason in printed.err
    assert sorted(folder.rglob("*")) == before


INVALID_SETTINGS = (
    ("seed = -1", "$.seed"),
    ("evaluators = 99999999999999999999", "$.evaluators"),
    ("lease_s = 0.0", "$.lease_s"),
    ("max_minutes = nan", "$.max_minutes"),
    ("coder_temperature = inf", "$.coder_temperature"),
    ("[search]\nbudget = 99999999999999999999", "$.search.budget"),
    ("[search]\nepsilon = nan", "$.search.epsilon"),
    ("[limits]\ntime_s = inf", "$.limits.time_s"),
    ("[limits]\nmemory_gib = -1.0", "$.limits.memory_gib"),
    ("[limits]\noutput_kib = 0", "$.limits.output_kib"),
)


@pytest.mark.parametrize(("text", "field"), INVALID_SETTINGS)
def test_an_impossible_number_in_the_settings_is_refused(text: str, field: str) -> None:
    """Too small, too large, infinite or nan: refused when it is read, before it does harm."""
    with pytest.raises(ValueError, match="Expected") as refused:
        settings_file.parse(text)
    assert field in str(refused.value)


def test_a_typo_in_the_environment_is_one_line() -> None:
    """As in stark.toml: a misspelt setting would silently have no effect."""
    check_environment({"STARK_BUDGET": "3", "STARK_RUN": "x", "HOME": "/"}, NO_SETTINGS)
    with pytest.raises(UsageError, match=r"STARK_BUGDET .* did you mean STARK_BUDGET"):
        check_environment({"STARK_BUGDET": "3"}, NO_SETTINGS)
    with pytest.raises(UsageError, match="STARK_XYZZY in the environment is not a setting"):
        check_environment({"STARK_XYZZY": "3"}, NO_SETTINGS)


def test_a_long_name_is_shortened_and_stays_unique() -> None:
    """A run folder, best-NAME.py and their temporary names fit into a file system's 255 bytes."""
    one, other = (name_of(Path("n" * 240 + end + ".py")) for end in "ab")
    assert one != other
    assert max(map(len, (one, other))) <= 100
    assert name_of(Path("short.py")) == "short"
    assert name_of(Path("模型.py")) != name_of(Path("任务.py"))
    assert name_of(Path("模型.py")).startswith("task-")


SIGNALS = ((signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"))


@pytest.mark.parametrize(("number", "name"), SIGNALS)
def test_a_signal_before_the_run_begins_is_one_line(
    tmp_path: Path, number: signal.Signals, name: str
) -> None:
    """Also during the imports: the status is 128 and the signal's number, nothing is left."""
    code = (
        "import os, runpy, sys; sys.argv = ['supervisor.py', '--task', 'absent.py'];"
        "from importlib.abc import MetaPathFinder\n"
        "class Finder(MetaPathFinder):\n"
        f"    def find_spec(self, name, *_): name == 'rich' and os.kill(os.getpid(), {number})\n"
        "sys.meta_path.insert(0, Finder());"
        f"runpy.run_path({str(ROOT / 'supervisor.py')!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (128 + number, "")
    assert done.stderr == f"stopped by {name} before anything was begun\n"
    assert list(tmp_path.iterdir()) == []


def test_the_environment_and_stark_toml_are_checked_like_flags(folder: Path) -> None:
    """A wrong value is refused in each source of settings, and the line names the source."""
    said = refusal(folder, "--task", "t.py", STARK_BUDGET="many")
    assert said.startswith("2 STARK_BUDGET: expected")
    for settings, reason in (
        (
            "budgett = 3\n",
            r"2 .*stark\.toml in this folder: .* did you mean budget in .*\[search\]",
        ),
        ("budget = 3\n", r"2 .*: the setting budget belongs in the table \[search\]"),
        ('[limits]\nmodel = "x"\n', "2 .*: the setting model belongs above all tables"),
        ("colour = 3\n", "2 .*: colour is not a setting$"),
        ('policy = "clever"\n', "2 .*policy 'clever' is none of"),
    ):
        (folder / "stark.toml").write_text(settings)
        said = refusal(folder, "--task", "t.py")
        assert re.match(reason, said), said
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--budget 5", "--budget 5 is less than the run's 6"),
        ("--seed 8", "--seed 8 contradicts the run, which has 7"),
        ("--model script:x", "--model script:x contradicts the run"),
    ],
)
def test_a_resumed_run_stays_the_same_search(tmp_path: Path, arguments: str, reason: str) -> None:
    """A setting that the tree depends on can't change; the database stays unchanged."""
    sample = Sample(tmp_path / "run", status="stopped")
    sample.db.close()
    before = (tmp_path / "run" / "run.db").read_bytes()
    said = refusal(tmp_path, "--resume", "run", *arguments.split())
    assert said.startswith("2 ")
    assert reason in said
    assert (tmp_path / "run" / "run.db").read_bytes() == before


def test_a_finished_run_shows_its_results_again(tmp_path: Path) -> None:
    """A resume of a finished run starts no process, shows the end, and has the same status."""
    sample = Sample(tmp_path / "run")
    sample.db.close()
    done = command(tmp_path, "--resume", "run", "--json")
    assert done.returncode == 0
    assert '"node": 3' in done.stdout
    assert done.stdout == (tmp_path / "run" / "result.json").read_text()
    assert "best is node 3: 2.50×" in done.stderr
    assert (tmp_path / "run" / "best.py").exists()
    assert not (tmp_path / "run" / "logs" / "coordinator.jsonl").exists()


def test_a_closed_stdout_is_not_a_fault(tmp_path: Path) -> None:
    """The status says how the run ended, and no file of the run becomes its stdout."""
    Sample(tmp_path / "run").db.close()
    closing = ["sh", "-c", 'exec "$0" "$@" <&- >&-', sys.executable, str(ROOT / "supervisor.py")]
    done = subprocess.run(
        [*closing, "--resume", "run", "--json"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "best is node 3: 2.50×" in done.stderr


@pytest.mark.parametrize(
    ("file", "arguments", "status"),
    [("keys.json", "--listen tcp://127.0.0.1:{free}", 2), ("run.db", "", 4)],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, file: str, arguments: str, status: int) -> None:
    """The line names the file; the file is unchanged, and no process is started."""
    Sample(tmp_path / "run", status="stopped").db.close()
    (tmp_path / "run" / file).write_bytes(b"not what it was " * 500)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = refusal(tmp_path, "--resume", "run", *arguments.format(free=port).split())
    assert said.startswith(f"{status} ")
    assert file in said
    assert (tmp_path / "run" / file).read_bytes() == b"not what it was " * 500
    assert not (tmp_path / "run" / "logs" / "coordinator.jsonl").exists()


def test_a_phase_without_agents_needs_neither_key_nor_script(tmp_path: Path) -> None:
    """Agents may run on a machine with a network, evaluators on another one with GPUs."""
    for model in ("claude-sonnet-4-6", f"script:{tmp_path / 'elsewhere.jsonl'}"):
        agents = Settings(tasks=("t",), model=model)
        judges = replace(agents, planners=0, coders=0, debuggers=0)
        assert check_models(judges, {}, tmp_path).model == model
        with pytest.raises(UsageError):
            check_models(agents, {}, tmp_path)
        with pytest.raises(UsageError):
            check_models(replace(judges, debuggers=1), {}, tmp_path)
