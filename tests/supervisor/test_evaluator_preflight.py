"""What evaluators would refuse at every start is one line before anything is made."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from actors.cli import UsageError
from actors.supervisor.cli.preflight import check_evaluators
from protocol.settings import Settings

WEAK = """#!/bin/sh
echo "evaluator: sandbox level 3 is asked for, this machine gives this user level 2; see -h" >&2
exit 2
"""
EXCLUSIVE = """#!/bin/sh
echo "$*" | grep -q -e "--device cuda --min-sandbox 1" || exit 0
echo "evaluator: the card is in compute mode Exclusive_Process; see -h" >&2
exit 2
"""


def answer_with(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a script answer for the evaluator."""
    program = folder / "evaluator"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_sandbox_that_this_machine_lacks_is_one_line_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluators would refuse at every start; a run without evaluators needs no sandbox."""
    answer_with(WEAK, tmp_path, monkeypatch)
    strict = Settings(tasks=("t",), min_sandbox=3)
    with pytest.raises(UsageError) as refused:
        check_evaluators(strict, os.environ)
    assert str(refused.value) == (
        "sandbox level 3 is asked for, this machine gives this user level 2"
    )
    check_evaluators(replace(strict, evaluators=0), os.environ)
    check_evaluators(replace(strict, min_sandbox=1), os.environ)


def test_a_card_for_one_process_is_one_line_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluator is asked for its cards at every level of the sandbox."""
    answer_with(EXCLUSIVE, tmp_path, monkeypatch)
    for level in (0, 1):
        settings = Settings(tasks=("t",), device="cuda", min_sandbox=level)
        with pytest.raises(UsageError, match=r"^the card is in compute mode Exclusive_Process$"):
            check_evaluators(settings, os.environ)
    check_evaluators(replace(settings, evaluators=0), os.environ)
    check_evaluators(replace(settings, device="cpu"), os.environ)
