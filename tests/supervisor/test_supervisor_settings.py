"""The settings of a run, and the environment of each child."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from msgspec import structs

from actors.cli import UsageError
from actors.supervisor.cli import flags, gpu_discovery, preflight, run_settings
from actors.supervisor.cli.run_settings import DEFAULT_CLAUDE_MODEL
from actors.supervisor.cli.setting_options import OPTIONS
from actors.supervisor.processes import child_specs, environment
from protocol import settings as settings_file
from protocol.settings import Limits, SearchSettings, Settings


def settle(
    arguments: str,
    environ: dict[str, str] | None = None,
    gpus: tuple[str, ...] = (),
    tasks: int = 1,
) -> Settings:
    parsed = flags.parse_arguments(["--task", "t.py", *arguments.split()])
    names = tuple(f"t{number}" for number in range(tasks))
    return run_settings.new_run_settings(parsed, names, environ or {}, gpus)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    """The order is flag, variable, stark.toml, default."""
    (tmp_path / "stark.toml").write_text("seed = 1\nplanners = 2\ncoders = 3\n[search]\nbudget=4\n")
    environ = {"STARK_SEED": "10", "STARK_PLANNERS": "20"}
    found = settle("--seed 100", environ)
    assert (100, 20, 3, 4) == (found.seed, found.planners, found.coders, found.search.budget)
    assert found.search.epsilon == Settings().search.epsilon


def test_the_model_is_claude_with_a_key_and_the_rule_book_without() -> None:
    """The default model depends on the key, and the settings hold the reason."""
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
    """Device, evaluators and expansions in flight follow the hardware by default."""
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
    """A slow model gets several tasks with few expansions each, a fast one task after task."""
    key = {"ANTHROPIC_API_KEY": "k"}

    def concurrency(found: Settings) -> tuple[int, int]:
        return found.tasks_at_once, found.search.in_flight

    assert concurrency(settle("", key, ("0",), tasks=35)) == (4, 1)
    assert concurrency(settle("", key, ("0", "1"), tasks=35)) == (8, 1)
    assert concurrency(settle("", key, ("0",), tasks=2)) == (4, 2)
    assert concurrency(settle("", {}, ("0",), tasks=35)) == (1, 3)
    # On a card one task's only candidate is built while another task is measured.
    assert concurrency(settle("--budget 1", {}, ("0",), tasks=35)) == (2, 2)
    assert concurrency(settle("--budget 1 --device cpu", {}, (), tasks=35)) == (1, 1)
    assert concurrency(settle("--tasks-at-once 6 --in-flight 2", key, ("0",), tasks=35)) == (6, 2)


def test_the_settings_survive_their_file(tmp_path: Path) -> None:
    """A resumed run reads the same settings, also names with quotes."""
    from protocol import settings as settings_file

    found = settle('--max-cost 1.5 --base-url http://x/"y" --model m --budget 9')
    settings_file.write(tmp_path, found)
    assert settings_file.read(tmp_path) == found


def test_only_agents_get_the_key_and_evaluators_get_one_card(tmp_path: Path) -> None:
    """Only agents get the key; no child gets a variable outside the allow-list."""
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
        environment_of_child = child.environment
        is_agent = child.role in ("planner", "coder", "debugger")
        assert ("ANTHROPIC_API_KEY" in environment_of_child) == is_agent
        assert ("HTTPS_PROXY" in environment_of_child) == is_agent
        assert "AWS_SECRET_ACCESS_KEY" not in environment_of_child
        expected = {"PATH": "/bin", "LC_ALL": "C.UTF-8", "STARK_RUN": "id"}
        assert expected.items() <= environment_of_child.items()
    cards = [child.environment["CUDA_VISIBLE_DEVICES"] for child in children[-3:]]
    assert cards == ["0", "1", "0"]


def test_hidden_cards_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_VISIBLE_DEVICES hides cards from the supervisor as it does from CUDA."""
    monkeypatch.setattr(gpu_discovery, "is_torch_cpu_only", lambda: False)
    monkeypatch.setattr(gpu_discovery, "_card_count", lambda: 4)
    assert gpu_discovery.visible_gpus({}) == ("0", "1", "2", "3")
    assert gpu_discovery.visible_gpus({"CUDA_VISIBLE_DEVICES": "2,3"}) == ("2", "3")
    assert gpu_discovery.visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert gpu_discovery.visible_gpus({"CUDA_VISIBLE_DEVICES": "1,-1,2"}) == ("1",)


@pytest.mark.parametrize(
    ("named", "usable"),
    [
        ("MIG-1c2d,MIG-3e4f", ("MIG-1c2d", "MIG-3e4f")),
        ("GPU-8932f937, GPU-d72a", ("GPU-8932f937", "GPU-d72a")),
        ("NoDevFiles", ()),  # Slurm's, for a job that asked for no card
        ("0,none,1", ("0",)),
        ("0,0", ()),  # CUDA shows no device then
        ("0,,1", ("0",)),
    ],
)
def test_names_are_read_as_cuda_reads_them(
    named: str, usable: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each evaluator gets one device that exists, and a job without a card gets none."""
    monkeypatch.setattr(gpu_discovery, "is_torch_cpu_only", lambda: False)
    monkeypatch.setattr(gpu_discovery, "_card_count", lambda: 2)
    assert gpu_discovery.visible_gpus({"CUDA_VISIBLE_DEVICES": named}) == usable


def test_cards_of_other_jobs_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch system leaves the nodes of all cards in /dev, and closes those of other jobs."""
    nodes = [Path(f"/dev/nvidia{name}") for name in ("0", "1", "2", "3", "ctl", "-uvm")]
    monkeypatch.setattr(gpu_discovery, "is_torch_cpu_only", lambda: False)
    monkeypatch.setattr(Path, "glob", lambda _folder, _pattern: iter(nodes))
    monkeypatch.setattr(os, "access", lambda path, _how: path.name == "nvidia2")
    assert gpu_discovery.visible_gpus({}) == ("0",)


def test_a_script_is_checked_as_the_model_reads_it(tmp_path: Path) -> None:
    """Comments are skipped, and only a newline ends a line, not Unicode's line separators."""
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
    ("argument", "line"),
    [
        ("--strategy team", "--strategy team contradicts the run, which has stark"),
        ("--seed 5", "--seed 5 contradicts the run, which has 0"),
        ("--effort low", "--effort low contradicts the run, which has none"),
        ("--require-custom-kernel", "--require-custom-kernel contradicts the run, which has none"),
    ],
)
def test_a_resumed_run_stays_the_same_search(argument: str, line: str) -> None:
    """The line quotes the flag as it was typed, and the value of the run."""
    arguments = flags.parse_arguments(["--resume", "x", *argument.split()])
    with pytest.raises(UsageError, match=f"^{line}: leave it out"):
        run_settings.resumed_run_settings(settle("--model recipes"), arguments)


def test_a_script_may_be_at_another_place_when_its_run_is_resumed() -> None:
    """A run's folder moves between machines with its script; another file is another model."""
    old = settle("--model script:/one/w.jsonl")
    for name, is_same in (("script:/two/w.jsonl", True), ("script:/one/v.jsonl", False)):
        arguments = flags.parse_arguments(["--resume", "x", "--model", name])
        if is_same:
            assert name == run_settings.resumed_run_settings(old, arguments).model
        else:
            with pytest.raises(UsageError, match="contradicts the run"):
                run_settings.resumed_run_settings(old, arguments)


def test_a_token_is_a_key() -> None:
    """The settings name the variable that was found, key or token."""
    settings = settle("", {"ANTHROPIC_AUTH_TOKEN": "t"})

    assert (DEFAULT_CLAUDE_MODEL, "ANTHROPIC_AUTH_TOKEN is set") == (
        settings.model,
        settings.model_reason,
    )


def test_the_mark_of_a_child_survives_its_renaming() -> None:
    """The next supervisor finds the mark also after an actor has set its title in `ps`."""
    assert environment.child_environment({}, "id")["SPT_NOENV"] == "1"


@pytest.mark.parametrize("strategy", ["search", "sampling", "reflexion"])
def test_an_agent_that_works_alone_needs_no_team(strategy: str) -> None:
    """Such a strategy needs no planner and no debugger, but a coder; `team` needs all of them."""
    alone = settle(f"--strategy {strategy} --planners 0 --debuggers 0")
    assert (0, 1, 0) == (alone.planners, alone.coders, alone.debuggers)
    for wrong in (f"--strategy {strategy} --coders 0", "--strategy team --planners 0"):
        with pytest.raises(UsageError, match="no process would do their work"):
            settle(wrong)


def test_new_runs_ask_in_the_compact_style_and_older_runs_in_the_papers(tmp_path: Path) -> None:
    """A new run says its style; a run folder without the line is asked on as it began."""
    assert "compact" == settle("").prompts
    assert "paper" == settle("--prompts paper").prompts
    assert "paper" == settle("", {"STARK_PROMPTS": "paper"}).prompts
    assert "paper" == settings_file.parse('model = "recipes"\n').prompts
    with pytest.raises(UsageError, match="--prompts compact contradicts the run, which has paper"):
        run_settings.resumed_run_settings(
            Settings(), flags.parse_arguments(["--resume", "x", "--prompts", "compact"])
        )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--model claude-x", "on"),
        ("--model recipes", "off"),
        ("--model recipes --coder-model claude-x", "on"),
        ("--model recipes --precheck on", "on"),
        ("--model claude-x --strategy sampling", "off"),
        ("--model claude-x --prompts paper", "off"),
        ("--model claude-x --precheck off", "off"),
    ],
)
def test_failing_candidates_are_mended_by_models_in_the_own_method(
    arguments: str, expected: str
) -> None:
    """The paper's method and its baselines have one answer an attempt, and so have older runs."""
    assert expected == settle(arguments).precheck
    assert "off" == settings_file.parse('model = "recipes"\n').precheck
    with pytest.raises(UsageError, match="--precheck on needs --prompts compact"):
        settle("--precheck on --prompts paper")


@pytest.mark.parametrize(
    ("arguments", "gpus", "words"),
    [
        ("--backend triton", (), "--backend triton needs --device cuda: this run has cpu"),
        ("--backend mixed", (), "--backend mixed needs --device cuda"),
        ("--backend mixed --prompts paper", ("0",), "--backend mixed needs --prompts compact"),
    ],
)
def test_a_backend_that_can_not_serve_is_refused(
    arguments: str, gpus: tuple[str, ...], words: str
) -> None:
    """A language for a card needs a card, and a choice of languages needs prompts that offer it."""
    with pytest.raises(UsageError, match=words):
        settle(arguments, gpus=gpus)
    assert "triton" == settle("--backend triton", gpus=("0",)).backend
    assert "mixed" == settle("--backend mixed", gpus=("0",)).backend


def test_the_page_lists_every_setting_without_a_flag() -> None:
    """docs/using.md has the settings that only `stark.toml` can set, with their defaults."""
    page = (Path(__file__).parents[2] / "docs" / "using.md").read_text(encoding="utf-8")
    section = page.partition("## Settings in `stark.toml`")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", section, re.MULTILINE)
    told: dict[str, str] = {}
    for cell, defaults in rows:
        table, *names = ["", *re.findall(r"`(\w+)`", cell)]
        table = "".join(f"{word}." for word in re.findall(r"`\[(\w+)\]`", cell))
        given = defaults.split(", ") if re.fullmatch(r"[\d., ]+", defaults) else [""] * len(names)
        told |= {table + name: default for name, default in zip(names, given, strict=True)}
    with_flag = {option.setting for option in OPTIONS} | set(flags.SWITCHES.values())
    fields = {
        f"{table}{field.name}": field
        for table, kind in (("", Settings), ("search.", SearchSettings), ("limits.", Limits))
        for field in structs.fields(kind)
    }
    no_choice = {"tasks", "model_reason", "search", "limits", "rules", "prices"}

    assert set(fields) - with_flag - no_choice == set(told)
    assert [] == [
        name for name, default in told.items() if default and float(default) != fields[name].default
    ]
