"""The import of one candidate in a process of its own, with fast builds or torch's.

    python -m actors.evaluator.fastbuild.candidate_import FILE ANSWER [STORE]

writes an `ImportReport` to ANSWER; without STORE nothing of torch's is replaced.  It confines
nothing: whoever does not trust the candidate runs it in a sandbox.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import time
from pathlib import Path

import msgspec
import torch
import torch.utils.cpp_extension

from actors.evaluator.fastbuild.build_record import BuildRecord
from actors.evaluator.fastbuild.torch_hook import install_hook
from protocol.values import Value


class ImportReport(Value, frozen=True, kw_only=True):
    """What an import did."""

    seconds: float  # of the import, once torch was there
    error: str = ""
    builds: tuple[BuildRecord, ...] = ()
    results: tuple[str, ...] = ()  # digests of what the candidate's `results()` returned, if any
    documents: tuple[str, ...] = ()  # docstrings of the built module's functions


def import_candidate(path: Path, store: Path | None) -> ImportReport:
    """Import the candidate at `path` and call its `results`, if it has one that can run here."""
    hook = install_hook(store) if store else None
    began = time.monotonic()
    error = ""
    results: list[str] = []
    documents: list[str] = []
    seconds = 0.0
    try:
        spec = importlib.util.spec_from_file_location("candidate", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} can't be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        try:
            spec.loader.exec_module(module)
        finally:
            seconds = time.monotonic() - began
        results = _results(module)
        documents = _documents(getattr(module, "module", None))
    except Exception as raised:  # noqa: BLE001  # the candidate's own: it is the answer
        error = f"{type(raised).__name__}: {raised}"
    return ImportReport(
        seconds=seconds,
        error=error,
        builds=tuple(hook.builds) if hook else (),
        results=tuple(results),
        documents=tuple(documents),
    )


def _results(module: object) -> list[str]:
    results = getattr(module, "results", None)
    if results is None:
        return []
    found = []
    for one in results():
        held = one.detach().cpu().contiguous()
        data = bytes(held.flatten().view(torch.uint8).tolist())
        content = hashlib.sha256(data).hexdigest()[:16]
        found.append(f"{held.dtype} {list(held.shape)} {content}")
    return found


def _documents(module: object) -> list[str]:
    names = [name for name in dir(module) if not name.startswith("_")]
    return [f"{name}: {getattr(module, name).__doc__}" for name in sorted(names)]


def main(arguments: list[str]) -> int:
    """Import FILE and write the answer."""
    path, answer = Path(arguments[0]), Path(arguments[1])
    store = Path(arguments[2]) if len(arguments) > 2 else None
    answer.write_bytes(msgspec.json.encode(import_candidate(path, store)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
