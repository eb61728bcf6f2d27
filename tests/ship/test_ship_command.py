"""Laws of `ship.py`: a package is whole, tried and placed, or one line says why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from package_samples import KEEPING_KERNELS, PLAIN_KERNELS, winner_file

from actors.ship import battery_process, stages
from actors.ship.errors import ShipError
from actors.ship.package import check_license, checked_name, opened
from scripts.ship import main

TOP = Path(__file__).parents[2]
SHIP = (sys.executable, str(TOP / "scripts" / "ship.py"))


def ship(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SHIP, *words], cwd=folder, capture_output=True, text=True, check=False)


def refused(done: subprocess.CompletedProcess[str], status: int, *parts: str) -> None:
    """Assert one line on stderr with these parts, nothing on stdout, and the exit status."""
    assert (status, "") == (done.returncode, done.stdout), done.stderr
    assert 1 == len(done.stderr.splitlines())
    assert [] == [part for part in parts if part not in done.stderr]


def test_what_is_no_winner_is_refused_in_one_line(tmp_path: Path) -> None:
    """A task's file, a folder without a run, a missing folder, a taken place: status 2."""
    (tmp_path / "task.py").write_text("class Model: pass\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    winner_file(tmp_path, PLAIN_KERNELS.format(scale=1))
    refused(ship(tmp_path, "task.py"), 2, "task can't be shipped")
    refused(ship(tmp_path, "full"), 2, "full has no stark.toml")
    refused(ship(tmp_path, "absent"), 2, "absent is not a run folder")
    refused(ship(tmp_path, "gate.py", "--out", "full"), 2, "--out full exists and is not empty")
    refused(ship(tmp_path, "gate.py", "--node", "3"), 2, "RUN is a file")
    refused(ship(tmp_path, "check", "full"), 2, "full is not a package")
    assert {"task.py", "full", "gate.py"} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "name", ["torch", "json", "class", "1x", "a b", "../x", "-x", "é", "", "a" * 101]
)
def test_a_name_that_python_or_pip_refuse_is_refused(name: str) -> None:
    """No package shadows torch or the standard library, or has a name that is no name."""
    with pytest.raises(ShipError, match="--name"):
        checked_name(name)
    assert "fused_gelu_2" == checked_name("Fused-GELU.2")


def test_a_keyword_and_an_empty_name_are_refused_for_what_they_are(tmp_path: Path) -> None:
    """Before: "expected letters, digits and hyphens" for `class`, and "" meant the default name."""
    winner_file(tmp_path, PLAIN_KERNELS.format(scale=1))
    refused(ship(tmp_path, "gate.py", "--name", "class"), 2, "class is a keyword of Python")
    refused(ship(tmp_path, "gate.py", "--name", ""), 2, "--name '': expected letters")


@pytest.mark.parametrize("text", ['MIT"', "MIT\nname = 1", "é", "[", " MIT"])
def test_a_license_that_is_no_spdx_expression_is_refused(text: str) -> None:
    """It is written into pyproject.toml and build.toml, which must stay what they are."""
    with pytest.raises(ShipError, match="--license"):
        check_license(text)
    for right in ("", "MIT", "Apache-2.0 WITH LLVM-exception", "(MIT OR BSD-3-Clause)"):
        check_license(right)


def test_a_check_that_fails_in_spite_of_its_limit_ends_the_command() -> None:
    """Limits of two batteries add up; the same ones again are no progress, and are reported."""
    found = battery_process.limits_of(results(values="passed", compile="failed"))
    assert {"gate": ("compile", "threads")} == stages.joined({"gate": ("threads",)}, found)
    assert found == stages.joined(found, found)


def test_with_more_limits_only_what_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A battery takes minutes for a large module, and a limit takes kernels out of one use only."""
    winner_file(tmp_path, PLAIN_KERNELS.format(scale=1))
    tried: list[tuple[str, ...]] = []

    def run(folder: Path, module: str, say: object, *, only: tuple[str, ...] = ()) -> object:
        tried.append(tuple(only))
        if not only:
            return results(values="passed", compile="failed", threads="failed", export="passed")
        return results(**dict.fromkeys(only, "passed"))

    monkeypatch.setattr(battery_process, "run", run)
    monkeypatch.chdir(tmp_path)
    assert 0 == main(["gate.py", "--name", "g"])
    assert [(), ("compile", "threads")] == tried
    found = msgspec.json.decode((tmp_path / "dist/g/g/battery.json").read_bytes())
    outcomes = {name: row["outcome"] for name, row in found["parts"]["gate"].items()}
    assert dict.fromkeys(["values", "compile", "threads", "export"], "passed") == outcomes
    held = json.loads((tmp_path / "dist/g/g/provenance.json").read_text())["parts"]["gate"]
    assert ["compile", "threads"] == held["original_runs_in"]


def test_kernels_that_no_compiler_could_build_are_not_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The original ran in their place, and was right; the judged device is here, so say why."""
    winner_file(tmp_path, PLAIN_KERNELS.format(scale=1))
    row = battery_process.CheckResult(outcome="not made", note="the original runs: no compiler")
    made = battery_process.CheckResult(outcome="passed")
    rows = {"values": row, "threads": made}
    found = battery_process.BatteryResults(where={}, parts={"gate": rows})
    monkeypatch.setattr(battery_process, "run", lambda *_, **__: found)
    monkeypatch.chdir(tmp_path)
    assert 1 == main(["gate.py", "--name", "g"])
    said = "nothing was written, for no kernel ran: gate: the original runs: no compiler"
    assert f"ship: {said}\n" == capsys.readouterr().err
    assert ["gate.py"] == [path.name for path in tmp_path.rglob("*") if path.is_file()]


def test_the_line_that_refuses_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, it held the whole notes of all failed checks, over 600 characters."""
    winner_file(tmp_path, PLAIN_KERNELS.format(scale=1))
    failed = battery_process.CheckResult(outcome="failed", note="AssertionError: " + "long " * 80)
    rows = dict.fromkeys(("opcheck", "values"), failed)
    found = battery_process.BatteryResults(where={"torch": "2"}, parts={"gate": rows})
    monkeypatch.setattr(battery_process, "run", lambda *_, **__: found)
    monkeypatch.chdir(tmp_path)
    assert 1 == main(["gate.py", "--name", "g"])
    line = capsys.readouterr().err
    assert "gate, opcheck: AssertionError: long" in line
    assert line.endswith("… (and 1 more, above)\n")
    assert len(line) < 400


def results(**outcomes: str) -> battery_process.BatteryResults:
    rows = {
        name.replace("_", " "): battery_process.CheckResult(outcome=outcome, note="n")
        for name, outcome in outcomes.items()
    }
    return battery_process.BatteryResults(where={"torch": "2"}, parts={"gate": rows})


def test_a_failed_check_becomes_a_limit_where_every_failure_has_one() -> None:
    """A wrong operator is a limit; a wrong value is none, whatever else failed.

    Where a second instance is wrong, other checks may fail for it: that limit is tried first.
    """
    assert {} == battery_process.limits_of(results(values="passed"))
    assert {"gate": ("compile", "operator")} == battery_process.limits_of(
        results(values="passed", operator="failed", opcheck="failed", compile="failed")
    )
    assert {} == battery_process.limits_of(results(values="failed", operator="failed"))
    second = results(**{"state": "failed", "second_instance": "failed", "operator": "failed"})
    assert {"gate": ("second instance",)} == battery_process.limits_of(second)
    assert ["gate, values: n"] == battery_process.failed_checks(results(values="failed"))


def test_what_neither_the_judge_nor_the_battery_tried_is_a_limit() -> None:
    """Without a card the original runs in those uses; what the judge tried stays as it was."""
    found = results(values="not made", compile="not made", threads="passed", operator="not made")
    assert {} == battery_process.limits_of(found)
    untried = {"gate": ("compile", "threads")}
    assert {"gate": ("compile",)} == battery_process.limits_of(found, untried)


def test_checks_that_were_not_made_for_one_reason_are_one_line() -> None:
    """A machine without a card says so once, not once a check."""
    lines = battery_process.summary_lines(results(values="not made", compile="not made"))
    made = "battery: 0 of 0 checks passed, 2 not made (torch 2)"
    assert ["not checked: everything: n", made] == lines
    lines = battery_process.summary_lines(results(values="passed", compile="not made"))
    made = "battery: 1 of 1 checks passed, 1 not made (torch 2)"
    assert ["not checked: compile: n", made] == lines


@pytest.mark.long
def test_a_package_is_placed_after_its_battery(tmp_path: Path) -> None:
    """The folder has the sources, the results and a README; the battery passed what it could."""
    winner_file(tmp_path, PLAIN_KERNELS.format(scale=1))
    done = ship(tmp_path, "gate.py", "--name", "fused-gate", "--license", "MIT")
    assert 0 == done.returncode, done.stderr
    folder = tmp_path / "dist" / "fused-gate"
    package = opened(folder)
    assert f"dist/fused-gate: fused-gate {package.version}" in done.stdout
    found = msgspec.json.decode(
        (folder / "fused_gate" / "battery.json").read_bytes(),
        type=battery_process.BatteryResults,
    )
    outcomes = {name: row.outcome for name, row in found.parts["gate"].items()}
    assert {"passed"} == {
        outcome
        for name, outcome in outcomes.items()
        if name not in ("CUDA graph", "side stream", "second device")
    }
    assert [] == list(folder.rglob("__pycache__"))
    assert 'license = "MIT"' in (folder / "pyproject.toml").read_text()
    assert "| gate | opcheck | passed |" in (folder / "README.md").read_text()


@pytest.mark.long
def test_wrong_kernels_are_not_shipped(tmp_path: Path) -> None:
    """Kernels with wrong values: status 1, one line with the check, nothing on disk."""
    winner_file(tmp_path, PLAIN_KERNELS.format(scale=1.5))
    done = ship(tmp_path, "gate.py", "--name", "g")
    assert "gate  values             failed" in done.stdout  # a line for each check as it ends
    done.stdout = ""
    refused(done, 1, "gate, values", "the error is")
    assert ["gate.py"] == [path.name for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.long
def test_kernels_that_keep_the_first_weights_are_not_shipped(tmp_path: Path) -> None:
    """They are right until a module gets other weights, which a judge's process never does."""
    winner_file(tmp_path, KEEPING_KERNELS)
    done = ship(tmp_path, "gate.py", "--name", "g")
    done.stdout = ""
    refused(done, 1, "gate, state", "the error is")
