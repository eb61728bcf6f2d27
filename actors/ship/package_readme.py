"""A package's README.md: use, cases, provenance, and what the battery found."""

from __future__ import annotations

from importlib import resources

from actors.ship.battery_process import BatteryResults, is_untried, summary_lines
from actors.ship.package import PackageFiles, uses_compiler
from actors.ship.shipped_winner import ShippedWinner

TEMPLATE = "package_readme.md"
EXAMPLE = """\
module = {use}.ModelNew(...){to_device}  # the arguments, parameters and state_dict of {use}.Model
with torch.no_grad():
    module(...)  # kernels for what they were made for, the original for everything else
print({use}.stats())  # calls of the kernels, of the original, and why"""
FITTED_EXAMPLE = """\
{module}.fit(model)  # the model that was adopted: its modules run the kernels now
with torch.no_grad():
    model(...)
print({module}.report(model))  # calls of the kernels, of the originals, and why
{module}.unfit(model)  # as it was before"""
LICENSED = "{0}."
UNLICENSED = "None was named: ask the author before you use or pass on this package."
BUILD = """\
- C++ and CUDA kernels are compiled at first use, unless a wheel holds them. This needs a compiler,
  ninja and setuptools (`pip install ".[jit]"`); what is compiled stays in `$STARK_KERNEL_CACHE`
  (default: `~/.cache/stark-kernels/packages`). `python -m {module}.prebuild` does it now. Without a
  compiler the original runs, and a warning says so.
"""
# Lines of a winner's header that a package says from what it found itself.
SAID_ELSEWHERE = ("Not release-checked yet:", "The kernels were not right in:")


def readme(package: PackageFiles, results: BatteryResults) -> str:
    """Return the README of a package."""
    parts = list(package.parts)
    text = resources.files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    compiled = any(map(uses_compiler, package.parts.values()))
    on_card = package.parts[parts[0]].device == "cuda"
    license_name = package.license
    return text.format(
        name=package.name,
        module=package.module,
        parts=", ".join(parts),
        example=(FITTED_EXAMPLE if package.is_fitted else EXAMPLE).format(
            module=package.module,
            use=package.module if len(parts) == 1 else f"{package.module}.{parts[0]}",
            to_device=".cuda()" if on_card else "",
        ),
        space=f"stark_{package.namespaces[parts[0]]}",
        build=BUILD.format(module=package.module) if compiled else "",
        winners="\n\n".join(
            _section(part, winner, package.limits[part]) for part, winner in package.parts.items()
        ),
        license=LICENSED.format(license_name) if license_name else UNLICENSED,
        battery="\n".join(f"- {line}" for line in summary_lines(results)),
        table="" if is_untried(results) else _table(results),
    )


def _section(part: str, winner: ShippedWinner, limits: tuple[str, ...]) -> str:
    """Return what is known of one winner."""
    origin = winner.origin
    header = str(origin.get("header", "")).splitlines()
    said = [line.removeprefix("#").strip() for line in header]
    facts = [f"- {line}" for line in said if line and not line.startswith(SAID_ELSEWHERE)]
    if not facts:
        facts = [f"- From {origin.get('file') or origin.get('task')}."]
    if limits:
        uses = ", ".join(limits)
        facts.append(
            f"- The original runs in: {uses}; the kernels are not right there, or untried."
        )
    return f"### {part}\n\n" + "\n".join([*facts, "", f"sha256 of its source: {_digest(origin)}"])


def _table(results: BatteryResults) -> str:
    """Return a table of all checks."""
    rows = [
        f"| {part} | {name} | {row.outcome} | {row.note.replace('|', '/')} |"
        for part, checks in results.parts.items()
        for name, row in checks.items()
    ]
    return "\n".join(["", "| winner | check | outcome | |", "|---|---|---|---|", *rows])


def _digest(origin: dict[str, object]) -> str:
    return str(origin["kernels_sha256"])
