"""Laws of the choice: what is shipped is a confirmed winner, or an attempt that a person names."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import msgspec
import pytest
from package_samples import PLAIN_KERNELS, TASK, winner_file

from actors.ship.battery_process import BatteryResults, CheckResult
from actors.ship.errors import NothingToShipError, ShipError
from actors.ship.package import name_of, package_files
from actors.ship.package_readme import readme
from actors.ship.shipped_winner import chosen_node, of_file, of_fitted
from actors.supervisor.reporting.run_data.snapshot import NodeView, Snapshot, TaskState
from protocol.release import LIMITS
from protocol.values import Outcome, Verdict


def node(number: int, **changes: Any) -> NodeView:
    """A correct, faster and confirmed attempt, with changes."""
    verdict = Verdict(
        verdict=changes.pop("outcome", Outcome.CORRECT), speedup=2.0, speedup_ci95=(1.9, 2.1),
        median_us=5.0, reference_us=10.0, profile={"labels": changes.pop("labels", "")},
    )  # fmt: skip
    return NodeView(
        task="t", number=number, parent=0, advice="", verdict=verdict, score_us=5.0, at=0.0,
        **{"confirmed": True, **changes},
    )  # fmt: skip


def chosen(run: Path, *nodes: NodeView, number: int | None = None, status: str = "finished") -> Any:
    task = TaskState(name="t", budget=3, status=status, nodes=nodes)
    return chosen_node(run, task, Snapshot(tasks=(task,), status=status), number)


def test_a_confirmed_winner_is_chosen_and_any_correct_attempt_by_its_number(tmp_path: Path) -> None:
    """--node needs no confirmation; without a winner there is nothing to choose."""
    assert 1 == chosen(tmp_path, node(1)).number
    assert 2 == chosen(tmp_path, node(1), node(2, confirmed=False), number=2).number
    assert chosen(tmp_path) is None


def test_a_winner_without_a_kernel_is_not_shipped_by_itself(tmp_path: Path) -> None:
    """Calls of libraries need no package; --node ships them nevertheless."""
    plain = node(1, labels="library_only, other")
    with pytest.raises(NothingToShipError, match=r"no kernel of its own.*--node 1"):
        chosen(tmp_path, plain)
    assert plain == chosen(tmp_path, plain, number=1)


def test_what_is_not_decided_is_not_shipped(tmp_path: Path) -> None:
    """A run in progress, a stopped run, a wrong attempt, an unknown one: one line each."""
    (tmp_path / "lock").write_text("x")
    first = node(1, confirmed=False)
    with pytest.raises(NothingToShipError, match=r"was stopped before .* --resume .* --node 1"):
        chosen(tmp_path, first, status="running")
    with (tmp_path / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ShipError, match="is in progress"):
            chosen(tmp_path, first, status="running")
    wrong = node(2, outcome=Outcome.WRONG)
    with pytest.raises(ShipError, match="--node 2: its verdict is wrong"):
        chosen(tmp_path, wrong, number=2)
    with pytest.raises(ShipError, match="--node 7: t has no such attempt"):
        chosen(tmp_path, wrong, number=7)


def test_an_adopted_models_package_ships_the_winners_that_its_check_kept(tmp_path: Path) -> None:
    """Before a check all winners are shipped, after it those that it kept."""
    fitted = tmp_path / "stark_fitted"
    fitted.mkdir()
    with pytest.raises(ShipError, match=r"no whole stark_fitted: run `adopt.py fit"):
        of_fitted(tmp_path)
    text = winner_file(tmp_path, PLAIN_KERNELS.format(scale=1)).read_text()
    for number in range(2):
        (fitted / f"winner_{number}.py").write_text(text)
    (fitted / "__init__.py").write_text("def fit(model): ...\n")
    sites = ", ".join(f'{{"module": "winner_{n}", "name": "task{n}"}}' for n in range(2))
    (fitted / "sites.json").write_text(f'{{"winners": [{sites}]}}')
    with pytest.raises(ShipError, match="no whole stark_fitted: run"):  # fit was killed
        of_fitted(tmp_path)
    (tmp_path / "fit.json").write_text("{}")
    winners, files = of_fitted(tmp_path)
    assert ["winner_0", "winner_1"] == [winner.name for winner in winners]
    assert {"__init__.py", "sites.json"} == set(files)
    (tmp_path / "check.json").write_text('{"kept": ["task1"]}')
    winners, files = of_fitted(tmp_path)
    assert ["winner_1"] == [winner.name for winner in winners]
    assert "winner_0" not in files["sites.json"]
    (tmp_path / "check.json").write_text('{"kept": []}')
    with pytest.raises(NothingToShipError, match="kept no winner"):
        of_fitted(tmp_path)


HEADER = """\
# level1_6_Gate_: ModelNew, a drop-in for the task's Model; it needs torch alone.
# 268 µs a call; eager PyTorch: 8.35 ms, 31.11× (first look).
# Not release-checked yet: other mode, second instance run plainly.

"""


def test_a_file_tells_its_task_and_figures_and_the_original_is_without_them(tmp_path: Path) -> None:
    """The package is named after the task, also where pip would refuse that name."""
    path = winner_file(tmp_path, PLAIN_KERNELS.format(scale=1))
    path.write_text(HEADER + path.read_text())
    winner = of_file(path)
    assert ("level1_6_Gate_", TASK.rstrip()) == (winner.name, winner.parts.task)
    assert HEADER.strip() == winner.origin["header"]
    assert "level1-6-gate" == name_of(winner)
    for task, name in (("3d", "kernels-3d"), ("class", "kernels-class"), ("json", "kernels-json")):
        assert name == name_of(msgspec.structs.replace(winner, name=task))


@pytest.mark.parametrize("task", ["1_Square_matrix", "None", "battery", "müll 2", "-"])
def test_any_tasks_name_is_a_folder_that_python_imports(tmp_path: Path, task: str) -> None:
    """Before: "invalid decimal literal" for 1_square.py, and a SyntaxError for None.py."""
    winner = of_file(winner_file(tmp_path, PLAIN_KERNELS.format(scale=1)))
    named = [msgspec.structs.replace(winner, name=name) for name in (task, "other")]
    made = package_files("gate", named)
    for path, text in made.files.items():
        if path.endswith(".py"):
            compile(text, path, "exec")
    part = next(iter(made.parts))
    assert part.isidentifier()
    assert f"gate/{part}/drop_in.py" in made.files
    assert all(space.isascii() for space in made.namespaces.values())


@pytest.mark.parametrize("limits", [LIMITS, tuple({*LIMITS} - {"second instance"})])
def test_the_battery_tries_what_the_judge_did_not(tmp_path: Path, limits: tuple[str, ...]) -> None:
    """A winner with every limit was not release-checked: its package begins without any.

    In a model it may run in several instances before, which `adopt.py check` tries.
    """
    path = winner_file(tmp_path, PLAIN_KERNELS.format(scale=1))
    checked = of_file(path)
    assert ((), ()) == (checked.limits, checked.untried)
    path.write_text(path.read_text().replace('"limits": ()', f'"limits": {limits!r}'))
    winner = of_file(path)
    assert () == winner.limits
    assert {"other mode", "second instance", "threads", "compile"} == set(winner.untried)
    files = package_files("g", [winner], limits={"gate": ("compile",)}).files
    assert "\"limits\": ('compile',)," in files["g/gate/drop_in.py"]


def test_a_readme_says_how_the_package_is_used_and_what_is_not_known(tmp_path: Path) -> None:
    """Figures of the header, limits that hold now, the licence; an adopted model has `fit`."""
    path = winner_file(tmp_path, PLAIN_KERNELS.format(scale=1))
    path.write_text(HEADER + path.read_text())
    row = CheckResult(outcome="not made", note="no card")
    found = BatteryResults(where={"torch": "2"}, parts={"level1_6_Gate_": {"values": row}})
    made = package_files("g", [of_file(path)], limits={"level1_6_Gate_": ("compile",)})
    text = readme(made, found)
    assert "module = g.ModelNew(...)  #" in text
    assert "- 268 µs a call; eager PyTorch: 8.35 ms, 31.11×" in text
    assert "run plainly" not in text
    assert "- The original runs in: compile; " in text
    assert "None was named" in text
    assert "- not checked: everything: no card" in text
    assert "compiler" not in text  # Python alone
    fitted = package_files("g", [of_file(path)], fitted={"__init__.py": ""}, license_name="MIT")
    assert "g.fit(model)" in readme(fitted, found)
    assert "\nMIT.\n" in readme(fitted, found)
