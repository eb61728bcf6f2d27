"""Figures of facts and profiles as text.  Pure."""

from __future__ import annotations

import re

from protocol.facts import MatrixPrecision

NAME_CHARS = 80  # of a kernel
_INNERMOST_ARGUMENTS = re.compile(r"<[^<>]+>")
_LEFT_OUT = "\0"  # stands for arguments that are left out
_UNNAMED = re.compile(r"<unnamed>::|\(anonymous namespace\)::|void |<lambda[^>]*>")

PRECISION_NAMES: dict[MatrixPrecision, str] = {"tf32": "TF32"}


def us(microseconds: float) -> str:
    """Return a time with its unit: "0.42 µs", "12.3 µs", "2.79 ms"."""
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3g} s"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.3g} ms"
    return f"{microseconds:.3g} µs"


def amount_text(amount: float, digits: int = 4) -> str:
    """Return a figure without its unit, never as a power of ten: "62.3", "2,971"."""
    return f"{amount:,.0f}" if amount >= 1e3 else f"{amount:.{digits}g}"


def rate_text(gb_s: float) -> str:
    """Return GB/s without the unit: "843.2", "12,300"."""
    return f"{gb_s:,.0f}" if gb_s >= 1e4 else f"{gb_s:,.4g}"


def tflops_text(rate: float) -> str:
    """Return TFLOP/s without the unit: "19.5", "1,979"."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def bytes_text(count: float) -> str:
    """Return a number of bytes with its unit: "512 B", "3.75 KiB", "64 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.4g} {unit}"


def flops_text(count: float) -> str:
    """Return a number of operations with its unit: "3.2 GFLOP"."""
    for unit, size in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g} FLOP"


def share_text(part: float) -> str:
    """Return "42%", or "less than 1%"."""
    return f"{part:.0%}" if part >= 0.01 else "less than 1%"


def ratio_text(ratio: float) -> str:
    """Return a ratio with two digits, large ones whole: "0.54", "3.2", "987"."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def number_text(amount: float) -> str:
    """Return a count: "1,234", "1.5 million"."""
    for name, size in (("billion", 1e9), ("million", 1e6)):
        if amount >= size:
            return f"{amount / size:.3g} {name}"
    return f"{amount:,.0f}"


def precision_name(precision: MatrixPrecision) -> str:
    """Return how a precision is written: "TF32", "bfloat16"."""
    return PRECISION_NAMES.get(precision, precision)


def launches_text(count: int) -> str:
    """Return "1 launch", "3 launches"."""
    return f"{count} {'launch' if count == 1 else 'launches'}"


def dimensions_text(size: tuple[int, int, int]) -> str:
    """Return the blocks of a grid, or the threads of a block: "128", "32x8"."""
    kept = list(size)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return "x".join(map(str, kept))


def in_brackets(parts: list[str]) -> str:
    """Return " (a, b)", or nothing where there are no parts."""
    return f" ({', '.join(parts)})" if parts else ""


def kernel_name(line: str) -> str:
    """Return a kernel's name without parameters, and without template arguments if it is long."""
    line = _without_parameters(without_unnamed(line))
    while len(line) > NAME_CHARS and (shorter := _INNERMOST_ARGUMENTS.sub(_LEFT_OUT, line)) != line:
        line = shorter
    line = line.replace(_LEFT_OUT, "<…>")
    return line if len(line) <= NAME_CHARS else f"{line[: NAME_CHARS - 1]}…"


def without_unnamed(line: str) -> str:
    """Return a function's name without its result, unnamed namespaces and lambdas."""
    return _UNNAMED.sub("", line)


def _without_parameters(line: str) -> str:
    depth = 0
    for at, char in enumerate(line):
        depth += (char in "<[") - (char in ">]")
        if char == "(" and depth == 0 and at:
            return line[:at].rstrip()
    return line
