"""Which settings a run gets, and what each child sees of the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cli import UsageError
from actors.supervisor.cli import flags, gpu_discovery, preflight, run_settings
from actors.supervisor.cli.run_settings import DEFAULT_CLAUDE_MODEL
from actors.supervisor.processes import child_specs, environment
from protocol.settings import Settings


def settle(
    arguments: str,
    environ: dict[str, str] | None = None,
    gpus: tuple[str, ...] = (),
    tasks: int = 1,
) -> Settings:
    wish = flags.parse_arguments(["--task", "t.py", *arguments.split()])
    names = tuple(f"t{number}" for number in range(tasks))
    return run_settings.new_run_settings(wish, names, environ or {}, gpus)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    """The nearest word counts: flag, then variable, then stark.toml, then the default."""
    (tmp_path / "stark.toml").write_text("seed = 1\nplanners = 2\ncoders = 3\n[search]\nbudget=4\n")
    environ = {"STARK_SEED": "10", "STARK_PLANNERS": "20"}
    found = settle("--seed 100", environ)
    assert (100, 20, 3, 4) == (found.seed, found.planners, found.coders, found.search.budget)
    assert found.search.epsilon == Settings().search.epsilon


def test_the_model_is_claude_with_a_key_and_the_rule_book_without() -> None:
    """The default model follows the key, and the reason is said."""
    with_key = settle("", {"ANTHROPIC_API_KEY": "k"})
    without = settle("")
    assert (DEFAULT_CLAUDE_MODEL, "ANTHROPIC_API_KEY is set") == (
        with_key.model,
        with_key.model_reason,
    )
    assert without.model == "recipes"
    assert "rule book" in without.model_reason
    assert settle("--model recipes", {"ANTHROPIC_API_KEY": "k"}).model == "recipes"


def test_a_gpu_machine_gets_one_evaluator_a_card_and_as_many_in_flight() -> None:
    """Device, evaluators and expansions under way follow the hardware unless said."""
    two = settle("", gpus=("0", "1"))
    assert ("cuda", "cuda", 2, 6) == (
        two.device,
        two.backend,
        two.evaluators,
        two.search.in_flight,
    )
    cpu = settle("--device cpu --evaluators 3", gpus=("0", "1"))
    assert ("cpu", "cpp", 3, 3) == (cpu.device, cpu.backend, cpu.evaluators, cpu.search.in_flight)


def test_many_tasks_share_the_workers() -> None:
    """A model that thinks: several tasks, few expansions each; one that does not: task by task."""
    key = {"ANTHROPIC_API_KEY": "k"}

    def under_way(found: Settings) -> tuple[int, int]:
        return found.tasks_at_once, found.search.in_flight

    assert under_way(settle("", key, ("0",), tasks=35)) == (4, 1)
    assert under_way(settle("", key, ("0", "1"), tasks=35)) == (8, 1)
    assert under_way(settle("", key, ("0",), tasks=2)) == (4, 2)
    assert under_way(settle("", {}, ("0",), tasks=35)) == (1, 3)
    assert under_way(settle("--tasks-at-once 6 --in-flight 2", key, ("0",), tasks=35)) == (6, 2)


def test_the_settings_survive_their_file(tmp_path: Path) -> None:
    """What was settled is what a resumed run reads, names with quotes included."""
    from protocol import settings as settings_file

    found = settle('--max-cost 1.5 --base-url http://x/"y" --model m --budget 9')
    settings_file.write(tmp_path, found)
    assert settings_file.read(tmp_path) == found


def test_only_agents_get_the_key_and_evaluators_get_one_card(tmp_path: Path) -> None:
    """The key reaches agents alone; nothing outside the allow-list reaches anybody."""
    environ = {
        "ANTHROPIC_API_KEY": "secret",
        "AWS_SECRET_ACCESS_KEY": "other",
        "HTTPS_PROXY": "http://proxy",
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    settings = settle("--evaluators 3 --coders 2", environ, ("0", "1"))
    children = child_specs.run_specs(settings, tmp_path, "id", environ, ("0", "1"))
    assert [child.name for child in children] == [
        "coordinator",
        "planner-0",
        "coder-0",
        "coder-1",
        "debugger-0",
        "evaluator-0",
        "evaluator-1",
        "evaluator-2",
    ]
    for child in children:
        seen = child.environment
        is_agent = child.role in ("planner", "coder", "debugger")
        assert ("ANTHROPIC_API_KEY" in seen) == is_agent
        assert ("HTTPS_PROXY" in seen) == is_agent
        assert "AWS_SECRET_ACCESS_KEY" not in seen
        assert ("/bin", "C.UTF-8", "id") == (seen["PATH"], seen["LC_ALL"], seen["STARK_RUN"])
    cards = [child.environment["CUDA_VISIBLE_DEVICES"] for child in children[-3:]]
    assert cards == ["0", "1", "0"]


def test_no_card_is_seen_where_none_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_VISIBLE_DEVICES hides cards from us as it does from CUDA."""
    monkeypatch.setattr(gpu_discovery, "is_torch_cpu_only", lambda: False)
    monkeypatch.setattr(gpu_discovery, "_cards", lambda: 4)
    assert gpu_discovery.visible_gpus({}) == ("0", "1", "2", "3")
    assert gpu_discovery.visible_gpus({"CUDA_VISIBLE_DEVICES": "2,3"}) == ("2", "3")
    assert gpu_discovery.visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert gpu_discovery.visible_gpus({"CUDA_VISIBLE_DEVICES": "1,-1,2"}) == ("1",)


def test_a_script_is_checked_as_the_model_reads_it(tmp_path: Path) -> None:
    """Comments are no lines, and a character that Python takes for an end of line ends none."""
    (tmp_path / "s.jsonl").write_text('// mine\n\n{"role": "coder", "code": "a\u2028b"}\n')
    settings = Settings(model="script:s.jsonl")

    checked = preflight.check_models(settings, {}, tmp_path)

    assert f"script:{tmp_path / 's.jsonl'}" == checked.model


def test_a_task_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Windows editors write one; Python runs such a file, and the run's own copy has none."""
    source = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    (tmp_path / "t.py").write_bytes(b"\xef\xbb\xbf" + source.encode())

    assert source == preflight.read_task(tmp_path / "t.py").source


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("--strategy team", "--strategy team contradicts the run, which has stark"),
        ("--seed 5", "--seed 5 contradicts the run, which has 0"),
        ("--effort low", "--effort low contradicts the run, which has none"),
        ("--require-custom-kernel", "--require-custom-kernel contradicts the run, which has none"),
    ],
)
def test_a_resumed_run_stays_the_same_search(said: str, line: str) -> None:
    """The line names the flag as it was typed, and what the run has."""
    arguments = flags.parse_arguments(["--resume", "x", *said.split()])
    with pytest.raises(UsageError, match=f"^{line}: leave it out"):
        run_settings.resumed_run_settings(settle("--model recipes"), arguments)


def test_a_token_is_a_key() -> None:
    """The command says which of the two it found."""
    settings = settle("", {"ANTHROPIC_AUTH_TOKEN": "t"})

    assert (DEFAULT_CLAUDE_MODEL, "ANTHROPIC_AUTH_TOKEN is set") == (
        settings.model,
        settings.model_reason,
    )


def test_every_child_is_marked_for_the_next_supervisor() -> None:
    """The mark is not overwritten when an actor renames itself in `ps`."""
    assert environment.child_environment({}, "id")["SPT_NOENV"] == "1"


@pytest.mark.parametrize("strategy", ["search", "sampling", "reflexion"])
def test_an_agent_that_works_alone_needs_no_team(strategy: str) -> None:
    """No planner and no debugger are asked for anything there; the coder is, and so in a team."""
    alone = settle(f"--strategy {strategy} --planners 0 --debuggers 0")
    assert (0, 1, 0) == (alone.planners, alone.coders, alone.debuggers)
    for wrong in (f"--strategy {strategy} --coders 0", "--strategy team --planners 0"):
        with pytest.raises(UsageError, match="no process would do their work"):
            settle(wrong)
