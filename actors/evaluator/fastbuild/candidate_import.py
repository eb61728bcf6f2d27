"""The import of one candidate in a process of its own, with fast builds or torch's.

    python -m actors.evaluator.fastbuild.candidate_import FILE ANSWER [STORE]

The program writes an `ImportReport` to ANSWER.  Without STORE torch builds.  Nothing here confines
the candidate: an untrusted one needs a sandbox around this process.
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

from actors.evaluator.fastbuild.store.build_record import ImportReport
from actors.evaluator.fastbuild.torch_hook import install_hook


def import_candidate(path: Path, store: Path | None, *, runs: bool = True) -> ImportReport:
    """Import the candidate at `path`; `runs`: call its function `results` if it has one."""
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
        results = _result_digests(module) if runs else []
        documents = _docstrings(getattr(module, "module", None))
    except Exception as raised:  # noqa: BLE001  # the candidate's error is what is reported
        error = f"{type(raised).__name__}: {raised}"
    return ImportReport(
        seconds=seconds,
        error=error,
        builds=tuple(hook.builds) if hook else (),
        results=tuple(results),
        documents=tuple(documents),
    )


def _result_digests(module: object) -> list[str]:
    results = getattr(module, "results", None)
    if results is None:
        return []
    digests = []
    for result in results():
        tensor = result.detach().cpu().contiguous()
        data = bytes(tensor.flatten().view(torch.uint8).tolist())
        content = hashlib.sha256(data).hexdigest()[:16]
        digests.append(f"{tensor.dtype} {list(tensor.shape)} {content}")
    return digests


def _docstrings(module: object) -> list[str]:
    names = [name for name in dir(module) if not name.startswith("_")]
    return [f"{name}: {getattr(module, name).__doc__}" for name in sorted(names)]


def main(arguments: list[str]) -> int:
    """Import FILE and write the report to ANSWER."""
    path, answer = Path(arguments[0]), Path(arguments[1])
    store = Path(arguments[2]) if len(arguments) > 2 else None
    answer.write_bytes(msgspec.json.encode(import_candidate(path, store)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
