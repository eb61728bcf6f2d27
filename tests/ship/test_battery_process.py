"""Where the battery's process finds its modules."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.ship import battery_process

BATTERY = """\
import json, sys
import only_on_the_path
row = {"outcome": "passed"}
results = {"where": {}, "parts": {"gate": {"values": row}}}
open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps(results))
"""


def test_the_battery_imports_what_the_command_can_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch may be on PYTHONPATH. Before: "No module named 'torch'", and nothing was shipped."""
    package, path = tmp_path / "package" / "gate", tmp_path / "path"
    for folder in (package, path):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "battery.py").write_text(BATTERY)
    (path / "only_on_the_path.py").write_text("")
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(path), before])))
    results = battery_process.run(package.parent, "gate", lambda line: None)
    assert "passed" == results.parts["gate"]["values"].outcome
