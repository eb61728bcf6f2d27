"""A package's README.md: use, cases, provenance, and what the battery found."""

from __future__ import annotations

from importlib import resources

from actors.ship.battery_process import BatteryResults, summary_lines
from actors.ship.package import PackageFiles

TEMPLATE = "package_readme.md"


def readme(package: PackageFiles, results: BatteryResults) -> str:
    """Return the README of a package."""
    parts = list(package.parts)
    winners = []
    for part, winner in package.parts.items():
        header = str(winner.origin.get("header", "")).replace("# ", "").strip()
        facts = header or f"From {winner.origin.get('file') or winner.origin.get('task')}."
        winners.append(f"### {part}\n\n{facts}\n\n`kernels.py` sha256: {_digest(winner.origin)}")
    rows = [
        f"| {part} | {name} | {row.outcome} | {row.note.replace('|', '/')} |"
        for part, checks in results.parts.items()
        for name, row in checks.items()
    ]
    text = resources.files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    return text.format(
        name=package.name,
        module=package.module,
        parts=", ".join(parts),
        first=parts[0],
        use=parts[0],
        space=f"stark_{package.namespaces[parts[0]]}",
        winners="\n\n".join(winners),
        battery="\n".join(f"- {line}" for line in summary_lines(results)),
        table="\n".join(rows),
    )


def _digest(origin: dict[str, object]) -> str:
    return str(origin["kernels_sha256"])
