"""Try every use of this package's modules: `python -m PACKAGE.battery [--device cuda]`.

Each check compares `ModelNew` or the operator with the original module, in a table.  Exit status 0:
no check failed.  A check that can't be made here says why.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import warnings
from pathlib import Path

import torch

from . import PARTS, battery_checks, operator_checks
from .comparison import NotCheckableError, Subject

ADVICE = ("Set TORCHDYNAMO_VERBOSE=", "(scroll up for stack trace)", "from user code:")
CHECKS = {**battery_checks.CHECKS, **operator_checks.CHECKS}


def main():
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.battery", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the kernels' own")
    parser.add_argument("--only", action="append", metavar="CHECK", help="may be repeated")
    parser.add_argument("--json", metavar="FILE", help="write the results into a file, too")
    parsed = parser.parse_args()
    if parsed.only and not set(parsed.only) <= set(CHECKS):
        wrong = min(set(parsed.only) - set(CHECKS))
        parser.error(f"--only {wrong}: no such check; there are {', '.join(CHECKS)}")
    results = {}
    for part in PARTS:
        results[part] = run(part, parsed.device, parsed.only or CHECKS)
    failed = sum(row["outcome"] == "failed" for rows in results.values() for row in rows.values())
    passed = sum(row["outcome"] == "passed" for rows in results.values() for row in rows.values())
    left = sum(len(rows) for rows in results.values()) - passed - failed
    print(f"{passed} of {passed + failed} checks passed, {failed} failed, {left} not made")
    if parsed.json:
        text = json.dumps({"where": where(), "parts": results}, indent=1)
        Path(parsed.json).write_text(text, encoding="utf-8")
    return 1 if failed else 0


def run(part, device, names):
    """Run checks of one winner; return name -> {"outcome", "note"}."""
    module = importlib.import_module(f".{part}", __package__)
    device = device or module.JUDGED["device"]
    rows = {}
    for name in names:
        torch._dynamo.reset()
        try:
            if device == "cuda" and not torch.cuda.is_available():
                raise NotCheckableError("there is no CUDA device")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                note = CHECKS[name](Subject(module, device)) or ""
            outcome = "passed"
        except NotCheckableError as error:
            outcome, note = "not made", in_one_line(error)
        except Exception as error:
            outcome, note = "failed", f"{type(error).__name__}: {in_one_line(error)}"
        rows[name] = {"outcome": outcome, "note": note}
        print(f"{part}  {name:<18} {outcome:<9} {note}", flush=True)
    return rows


def in_one_line(error):
    """Return what an error says, without torch's advice on how to look for its cause."""
    said = " ".join(str(error).split())
    for advice in ADVICE:
        said = said.partition(advice)[0]
    return said.strip()[:400]


def where():
    """Return what the results hold for."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return {"torch": torch.__version__, "python": platform.python_version(), "device": device}


if __name__ == "__main__":
    sys.exit(main())
