"""Compiles the code of a card for its architecture, and keeps a record of what compiled.

The record is `prompts/cards/compiled.json`: for each card the digest of its code, and the compiler.
A card whose digest is not in it was changed and not compiled again; a test of the gate fails then,
also on a machine without that compiler.  Triton cards are parsed here: their compiler needs a card.
"""

from __future__ import annotations

import ast
import json
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

import msgspec

import prompts
from actors.agents.cards.card import CUDA_ARCHITECTURE, FOLDER, Card, CardError
from protocol.values import Value

RECORD = "compiled.json"
COMPILE_TIMEOUT_S = 300.0
# A candidate's code stands behind torch's headers, whose global names are these namespaces; the
# headers themselves take a minute for each card.
BESIDE_TORCH = "namespace at {} namespace c10 {} namespace torch {} namespace caffe2 {}\n"
CPU_FLAGS = {
    "cpu": (),
    "avx2": ("-mavx2", "-mfma"),
    "avx512f": ("-mavx512f", "-mfma"),
    "amx_tile": ("-mavx512f", "-mamx-tile", "-mamx-bf16"),
    "asimd": (),
    "sve": ("-march=armv8-a+sve",),
}


class CompiledCard(Value, frozen=True, kw_only=True):
    """One line of the record."""

    digest: str  # of the code and its architecture
    compiler: str


def compile_command(card: Card, include: Sequence[str] = (), *, native: str = "") -> list[str]:
    """Return the compiler's command up to the options that name files.

    `native` is the architecture of the machine at hand, "native" or "90a", where the code shall
    run; "": the least one that the card is for.
    """
    includes = [f"-I{folder}" for folder in include]
    if card.backend == "cpp":
        flags = (f"-march={native}",) if native else CPU_FLAGS[card.architecture]
        return ["g++", "-std=c++17", "-O3", "-fopenmp", *flags, *includes]
    found = CUDA_ARCHITECTURE.fullmatch(card.architecture)
    if card.backend != "cuda" or found is None:
        raise CardError(f"card {card.name}: nothing compiles {card.backend} here")
    number = native or found[1] + ("a" if found[2] == "a" else "")
    target = f"-gencode=arch=compute_{number},code=sm_{number}"
    return ["nvcc", "-std=c++17", "-O3", target, *includes]


def compile_problem(card: Card, include: Sequence[str] = ()) -> str:
    """Return why the card's code does not compile; "" if it does.

    Raises `FileNotFoundError` where there is no such compiler.
    """
    if card.backend == "triton":
        try:
            ast.parse(card.whole_code)
        except SyntaxError as error:
            return f"line {error.lineno}: {error.msg}"
        return ""
    suffix = ".cu" if card.backend == "cuda" else ".cpp"
    with tempfile.TemporaryDirectory(prefix="card-") as folder:
        source = Path(folder, f"card{suffix}")
        source.write_text(BESIDE_TORCH + card.whole_code, encoding="utf-8")
        command = [*compile_command(card, include), "-c", "-o", f"{source}.o", str(source)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
        )
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip()


def compiler_version(card: Card) -> str:
    """Return the compiler that `compile_problem` uses, with its version."""
    if card.backend == "triton":
        return "parsed"
    program = compile_command(card)[0]
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if program == "g++":
        return lines[0]
    return "nvcc " + next(line for line in lines if "release" in line).partition("release ")[2]


def read_record() -> dict[str, CompiledCard]:
    """Return the record of what was compiled: card's name -> its line."""
    file = resources.files(prompts).joinpath(FOLDER, RECORD)
    if not file.is_file():
        return {}
    return msgspec.json.decode(file.read_bytes(), type=dict[str, CompiledCard])


def write_record(lines: dict[str, CompiledCard], folder: Path) -> None:
    """Write the record into a checkout's `prompts/cards`, sorted, a card a line."""
    rows = [
        f"  {json.dumps(name)}: {msgspec.json.encode(line).decode()}"
        for name, line in sorted(lines.items())
    ]
    text = "{\n" + ",\n".join(rows) + "\n}\n"
    (folder / RECORD).write_text(text, encoding="utf-8")


def not_compiled(cards: Iterable[Card], record: dict[str, CompiledCard]) -> list[Card]:
    """Return the cards whose present code is not in the record."""
    return [c for c in cards if c.name not in record or record[c.name].digest != c.digest]
