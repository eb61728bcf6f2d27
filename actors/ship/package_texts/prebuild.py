"""Build the libraries of all kernels now: `python -m PACKAGE.prebuild`; they stay in the cache."""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import importlib
import json
import sys
import warnings
from pathlib import Path

import torch

from . import PARTS, extensions
from .comparison import move
from .judged_calls import call_inputs, constructor_arguments


def main():
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.prebuild", description=__doc__)
    parser.add_argument("--requests", metavar="FILE", help="write what was built as JSON")
    parsed = parser.parse_args()
    failed = {}
    for part in PARTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            reason = use(importlib.import_module(f".{part}", __package__))
        if reason:
            failed[part] = reason
        print(f"{part}: {reason or 'the kernels ran'}")
    for digest, (asked, how) in extensions.requests.items():
        print(f"{asked['name']} ({digest}): {how}")
    if parsed.requests:
        made = {digest: asked for digest, (asked, _) in extensions.requests.items()}
        Path(parsed.requests).write_text(json.dumps(made), encoding="utf-8")
    return 1 if failed else 0


def use(part):
    """Construct a winner and call it once; return why its kernels did not run, or ""."""
    device = part.JUDGED["device"]
    if device == "cuda" and not torch.cuda.is_available():
        return "its kernels need a CUDA device"
    with torch.no_grad():
        module = part.ModelNew(*move(constructor_arguments(part), device))
        module.to(device, part.JUDGED.get("dtype"))
        module(*move(call_inputs(part), device))
    return "; ".join(module.kernel_stats()["reasons"])


if __name__ == "__main__":
    sys.exit(main())
