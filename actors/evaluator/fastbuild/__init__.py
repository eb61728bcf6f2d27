"""Fast builds: `load_inline` and `load` in seconds instead of a minute, candidates unchanged.

This module is the only door: code outside of this folder imports its names from here, and modules
inside import each other directly.  A caller goes through it in this order:

- `store_of_user`, `BuildStore`: the folder on this machine in which builds keep what lasts.
- `may_compile`, `needs_headers`, `flag_sets_of`: what a candidate's text seems to need.
- `prepare_toolkit`: trusted code makes a toolkit, and headers for flag sets, in the store.
- `install_hook`: in the process that imports a candidate, torch's builds use the toolkit.
- `ResultCache`, `BuildSlots`, `slots_here`: results of earlier builds; how many builds run at once.
- `remarks_of_builds`: what the compiler said of code that it compiled and that loses time.
- `import_in_child`: one candidate imported in a child process, with an `ImportReport`;
  `import_candidate`: the same in this process.
- `FlagSet`, the constants and the errors: what these functions take, read and raise.

The judge's process must stay without torch.  So the three names that need torch, `install_hook`,
`prepare_toolkit` and `import_candidate`, are imported at their first use.  An import of one of them
at a module's top imports torch there: the zygote does so, and the children that it forks need not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from actors.evaluator.fastbuild.candidate_process import import_in_child
from actors.evaluator.fastbuild.headers.precompiled_headers import PrecompiledHeaderError
from actors.evaluator.fastbuild.request.compiler_process import BuildTimeoutError
from actors.evaluator.fastbuild.request.flag_set import ADDED_FLAGS_VARIABLE, FlagSet
from actors.evaluator.fastbuild.request.source_requirements import (
    flag_sets_of,
    may_compile,
    needs_headers,
)
from actors.evaluator.fastbuild.store.build_record import ImportReport, remarks_of_builds
from actors.evaluator.fastbuild.store.build_slots import BuildSlots, slots_here
from actors.evaluator.fastbuild.store.build_store import (
    STORE_VARIABLE,
    TOOLKITS_VARIABLE,
    UNFINISHED_PREFIX,
    BuildStore,
    ToolkitMissingError,
    store_of_user,
)
from actors.evaluator.fastbuild.store.result_cache import ResultCache

if TYPE_CHECKING:
    from actors.evaluator.fastbuild.candidate_import import import_candidate
    from actors.evaluator.fastbuild.toolkit_builder import prepare_toolkit
    from actors.evaluator.fastbuild.torch_hook import install_hook
else:
    _NEEDS_TORCH = {
        "prepare_toolkit": "toolkit_builder",
        "install_hook": "torch_hook",
        "import_candidate": "candidate_import",
    }

    def __getattr__(name: str) -> object:
        """Import the module of a name that needs torch when the name is first used."""
        if name not in _NEEDS_TORCH:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_NEEDS_TORCH[name]}"), name)


__all__ = [
    "ADDED_FLAGS_VARIABLE",
    "STORE_VARIABLE",
    "TOOLKITS_VARIABLE",
    "UNFINISHED_PREFIX",
    "BuildSlots",
    "BuildStore",
    "BuildTimeoutError",
    "FlagSet",
    "ImportReport",
    "PrecompiledHeaderError",
    "ResultCache",
    "ToolkitMissingError",
    "flag_sets_of",
    "import_candidate",
    "import_in_child",
    "install_hook",
    "may_compile",
    "needs_headers",
    "prepare_toolkit",
    "remarks_of_builds",
    "slots_here",
    "store_of_user",
]
