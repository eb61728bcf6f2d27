"""The package of one or several winners: a folder that can be read, installed and copied.

    NAME/pyproject.toml            for pip; `ship.py wheel` builds wheels from it
    NAME/README.md                 how it is used, what it was judged on, what the battery found
    NAME/IMPORT/__init__.py        the public names
    NAME/IMPORT/PART/original.py   the task's file, unchanged
    NAME/IMPORT/PART/kernels.py    the candidate; its builds go through `extensions`
    NAME/IMPORT/PART/drop_in.py    ModelNew, the operator, and the guard around the kernels
    NAME/IMPORT/*.py               battery, comparison, extensions, prebuild
    NAME/IMPORT/provenance.json    where the kernels come from

The folder is written beside its place and renamed: it is whole or not there.
"""

from __future__ import annotations

import hashlib
import json
import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from actors.release.composition import UnreleasableError
from actors.release.package_module import package_module, with_limits
from actors.ship.errors import ShipError
from actors.ship.kernel_sources import packaged
from actors.ship.shipped_winner import ShippedWinner

COMMON = (
    *("battery.py", "battery_checks.py", "call_arguments.py", "check_inputs.py", "comparison.py"),
    *("extensions.py", "judged_calls.py", "operator_checks.py", "prebuild.py", "random_fills.py"),
)
TEXTS = "actors.ship.package_texts"
OTHER_TEXTS = {  # the judge's own files
    file: "actors.evaluator.children.tensors" for file in ("call_arguments.py", "random_fills.py")
}
NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_.][A-Za-z0-9]+)*")
MAX_NAME = 100  # characters; files of a package have names made of it
LICENSE = re.compile(r"[A-Za-z0-9(][A-Za-z0-9.+ ()-]{0,199}")  # an SPDX expression's characters
RESERVED = {*(name.removesuffix(".py") for name in COMMON), "native", "battery_results"}
TORCH = "torch>=2.11"
PROVENANCE = "provenance.json"

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "{description}"
readme = "README.md"
requires-python = ">=3.10"
dependencies = ["{torch}"{more}]
{license}
[project.optional-dependencies]
jit = ["ninja>=1.11", "setuptools>=77"] # torch compiles C++ and CUDA kernels with them

[tool.setuptools]
packages = [{packages}]

[tool.setuptools.package-data]
"*" = ["*.json", "native/*"]
"""
PART_INIT = '''\
"""{title}."""

from .drop_in import _JUDGED as JUDGED
from .drop_in import _LIBRARY, _STATE_NAMES, Model, ModelNew, forward, stats
from .original import get_init_inputs, get_inputs

NAMESPACE = _LIBRARY.ns
STATE_NAMES = tuple(_STATE_NAMES)
__all__ = ["Model", "ModelNew", "forward", "get_init_inputs", "get_inputs", "stats"]
'''


def checked_name(name: str) -> str:
    """Return the name under which a distribution is imported; raise ShipError for a bad name."""
    module = re.sub(r"[-.]", "_", name).lower()
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ShipError(
            f"--name {name or repr(name)}: expected letters, digits and hyphens, such as fused-gelu"
        )
    refused = _refused_module(module)
    if refused:
        raise ShipError(f"--name {name}: {refused}")
    return module


def _refused_module(module: str) -> str:
    """Return why no package can be imported under a name, or ""."""
    if keyword.iskeyword(module):
        return f"{module} is a keyword of Python, and can't be imported"
    if module in sys.stdlib_module_names or module in ("torch", "triton", "numpy"):
        return f"Python has a module {module} already: choose another"
    return ""


def check_license(license_name: str) -> None:
    """Raise ShipError unless it is empty or may be an SPDX expression."""
    if license_name and not LICENSE.fullmatch(license_name):
        raise ShipError(
            f"--license {license_name}: expected a name of the SPDX list, such as MIT or Apache-2.0"
        )


class PackageFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a package, before it is written."""

    name: str  # of the distribution
    module: str  # as it is imported
    version: str  # 1.0.0+DIGEST: another content, another version
    digest: str
    license: str  # "" for none
    is_fitted: bool  # whether it is an adopted model's
    parts: dict[str, ShippedWinner]
    namespaces: dict[str, str]  # part -> of its operator, without `stark_`
    limits: dict[str, tuple[str, ...]]  # part -> uses in which the original runs
    files: dict[str, str]  # path in the folder -> text


class OpenedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package on disk."""

    folder: Path
    module: str
    name: str
    version: str
    license: str
    parts: tuple[str, ...]


def package_files(
    name: str,
    winners: Sequence[ShippedWinner],
    *,
    license_name: str = "",
    fitted: Mapping[str, str] | None = None,
    limits: Mapping[str, tuple[str, ...]] | None = None,
) -> PackageFiles:
    """Return the files of a package.

    `fitted`: for an adopted model, the files of its package that are not winners: name -> text.
    `limits`: part -> uses in which its original runs (default: those that the judge found).
    """
    module = checked_name(name)
    parts = parts_of(winners)
    held = {part: winner.limits for part, winner in parts.items()} | dict(limits or {})
    sources = {part: _part_sources(winner, held[part]) for part, winner in parts.items()}
    common = {file: _text(file) for file in COMMON}
    digest = _digest(name, sources, common, fitted or {})
    version = f"1.0.0+{digest}"
    spaces = _namespaces(module, list(parts), digest)
    files = {f"{module}/{file}": text for file, text in {**common, **(fitted or {})}.items()}
    for part, texts in sources.items():
        part_files = _part_files(part, name, texts, spaces[part])
        files |= {f"{module}/{part}/{file}": text for file, text in part_files.items()}
    files[f"{module}/__init__.py"] = _init_text(name, version, list(parts), fitted)
    files[f"{module}/{PROVENANCE}"] = _provenance(name, version, license_name, parts, held)
    files["pyproject.toml"] = _pyproject(name, version, parts, license_name)
    return PackageFiles(
        name=name,
        module=module,
        version=version,
        digest=digest,
        license=license_name,
        is_fitted=fitted is not None,
        parts=parts,
        namespaces=spaces,
        limits=held,
        files=files,
    )


def _digest(name: str, *texts: Mapping[str, object]) -> str:
    """Return eight characters that are other ones for a package of another content."""
    content = json.dumps([name, *texts], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _namespaces(module: str, parts: Sequence[str], digest: str) -> dict[str, str]:
    """Return part -> the namespace of its operator."""
    if len(parts) == 1:
        return {parts[0]: f"{module}_{digest}"}
    return {part: f"{module}_{part}_{digest}" for part in parts}


def _provenance(
    name: str,
    version: str,
    license_name: str,
    parts: Mapping[str, ShippedWinner],
    limits: Mapping[str, tuple[str, ...]],
) -> str:
    """Return provenance.json."""
    origins = {
        part: {**winner.origin, "original_runs_in": limits[part]} for part, winner in parts.items()
    }
    record = {"name": name, "version": version, "license": license_name, "parts": origins}
    return json.dumps(record, indent=1) + "\n"


def parts_of(winners: Sequence[ShippedWinner]) -> dict[str, ShippedWinner]:
    """Return the winners by the names of their folders; raise ShipError where two have one."""
    parts = {_part_name(winner.name): winner for winner in winners}
    if len(parts) != len(winners):
        raise ShipError(f"two winners have one name: {', '.join(w.name for w in winners)}")
    return parts


def name_of(winner: ShippedWinner) -> str:
    """Return the name of a package that gets none: its winner's, as pip allows it."""
    words = re.findall(r"[A-Za-z0-9]+", winner.name)
    if not words or not words[0][0].isalpha() or _refused_module("_".join(words).lower()):
        words = ["kernels", *words]
    return "-".join(words).lower()


def _part_files(
    part: str, package: str, texts: Mapping[str, str], namespace: str
) -> dict[str, str]:
    """Return the files of one winner's folder: name -> text; `namespace`: of its operator."""
    title = f"{part} of {package}"
    try:
        guarded = package_module(title, texts["judged"], namespace)
    except UnreleasableError as error:
        raise ShipError(f"{part} can't be shipped: {error}") from error
    return {
        "__init__.py": PART_INIT.format(title=title),
        "original.py": texts["original"],
        "kernels.py": texts["kernels"],
        "drop_in.py": guarded,
    }


def _pyproject(
    name: str, version: str, parts: Mapping[str, ShippedWinner], license_name: str
) -> str:
    module = checked_name(name)
    packages = ", ".join(f'"{path}"' for path in (module, *(f"{module}.{p}" for p in parts)))
    return PYPROJECT.format(
        name=name,
        version=version,
        description=f"Kernels for {', '.join(parts)}, with the original modules beside them",
        torch=TORCH,
        more=', "triton"' if any(map(uses_triton, parts.values())) else "",
        license=f'license = "{license_name}"\n' if license_name else "",
        packages=packages,
    )


def uses_triton(winner: ShippedWinner) -> bool:
    """Whether a candidate imports Triton."""
    return bool(re.search(r"^\s*(?:import|from) triton\b", winner.parts.candidate, re.MULTILINE))


def uses_compiler(winner: ShippedWinner) -> bool:
    """Whether a candidate compiles C++ or CUDA."""
    return "cpp_extension" in winner.parts.candidate


def _part_name(name: str) -> str:
    part = re.sub(r"\W", "_", name, flags=re.ASCII)  # also a part of its operator's namespace
    is_free = part.isidentifier() and not keyword.iskeyword(part) and part not in RESERVED
    return part if is_free else f"kernels_{part}"


def _part_sources(winner: ShippedWinner, limits: Sequence[str]) -> dict[str, str]:
    try:
        kernels = packaged(winner.parts.candidate)
    except SyntaxError as error:
        raise ShipError(f"{winner.name}: the kernels can't be read: {error}") from error
    return {
        "original": winner.parts.task.rstrip() + "\n",
        "kernels": kernels,
        "judged": with_limits(winner.parts.judged, limits),
    }


def _text(file: str) -> str:
    folder = resources.files(OTHER_TEXTS.get(file, TEXTS))
    return folder.joinpath(file).read_text(encoding="utf-8")


def _init_text(
    name: str, version: str, parts: Sequence[str], fitted: Mapping[str, str] | None
) -> str:
    """Return the package's `__init__.py`; the names of a single winner are its own, too.

    `fitted`: of an adopted model's package, whose names these are.
    """
    about = f"__version__ = {version!r}\nPARTS = {tuple(parts)!r}\n"
    if fitted is not None:
        return f"{fitted['__init__.py']}\n\n{about}"
    lines = [
        f'"""{name}: kernels for {", ".join(parts)}; see README.md."""',
        "",
        *(f"from . import {part}" for part in parts),
    ]
    names = [*parts]
    if len(parts) == 1:
        shared = ["Model", "ModelNew", "forward", "stats"]
        lines.append(f"from .{parts[0]} import {', '.join(shared)}")
        names += shared
    listed = ", ".join(f'"{each}"' for each in names)
    return "\n".join([*lines, "", f"{about}__all__ = [{listed}]"]) + "\n"


def opened(folder: Path) -> OpenedPackage:
    """Return the package in a folder; raise ShipError where there is none."""
    for path in sorted(folder.glob(f"*/{PROVENANCE}")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            return OpenedPackage(
                folder=folder,
                module=path.parent.name,
                name=record["name"],
                version=record["version"],
                license=record.get("license", ""),
                parts=tuple(record["parts"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ShipError(f"{path} can't be read: {error!r}") from error
    raise ShipError(f"{folder} is not a package that ship.py made: it has no {PROVENANCE}")
