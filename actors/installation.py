"""The place of this code: a checkout, or a folder of installed packages.

It imports only the standard library, so that every process can use it.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

VERSION = "0.1.0"  # pyproject.toml reads it here
ROOT = Path(__file__).resolve().parents[1]  # the folder that holds our packages
SUPERVISOR = ROOT / "supervisor.py"
EXAMPLES = ROOT / "examples"


def is_checkout() -> bool:
    """Whether `ROOT` holds this project only, and no other installed packages."""
    return (ROOT / "pyproject.toml").is_file()


def supervisor() -> tuple[str, ...]:
    """Return the command line of the main job, for a child process.

    In site-packages the file's folder stays off the path, as in `module_path`.
    """
    path = ("-P",) if _is_in_site_packages() else ()
    return (sys.executable, *path, str(SUPERVISOR))


def module_path(environ: Mapping[str, str]) -> str:
    """Return the PYTHONPATH with which a child finds our packages from any working directory.

    A checkout comes first: it need not be installed. A site-packages folder is left out: the
    interpreter finds it by itself, and on PYTHONPATH it would come before the standard library, so
    that an old backport (`pathlib`, `typing`) would replace the real module.
    """
    ours = "" if _is_in_site_packages() else str(ROOT)
    return os.pathsep.join(filter(None, [ours, environ.get("PYTHONPATH", "")]))


def _is_in_site_packages() -> bool:
    return ROOT in [Path(folder).resolve() for folder in site.getsitepackages()]
