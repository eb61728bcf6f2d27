"""The files of a package for modules whose forwards run in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import torch

from actors.adopt.regions.forward_splitter import Split, forward_names, split_source
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.taken_tasks import Take
from protocol.layouts import Layout


class SplitCall(msgspec.Struct, frozen=True, kw_only=True):
    """One layout of the calls that run in parts; `fitted_package/split_forward.py` reads it."""

    layout: Layout
    same: tuple[int, ...]
    regions: tuple[str, ...]
    function: str


class SplitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One module's record in sites.json."""

    module: str  # the file with its functions; equal modules have one
    structure: str
    inlined: tuple[str, ...]
    leaves: tuple[str, ...]
    state: dict[str, str]
    layouts: tuple[SplitCall, ...]
    regions: dict[str, dict[str, str]]  # region -> name of a tensor -> its path in the module


class SplitFiles:
    """Writes the functions of split modules, each text once."""

    def __init__(
        self,
        folder: StageFolder,
        package: str,
        model: torch.nn.Module,
        structure: Callable[[torch.nn.Module], str],
    ) -> None:
        """`package`: its folder's name.  `structure`: the package's own function of that name."""
        self.records: list[SplitRecord] = []
        self._folder, self._package = folder, package
        self._model, self._structure = model, structure
        self._numbers: dict[str, int] = {}  # site -> number of its record
        self._modules: dict[str, str] = {}  # text -> file

    def numbers(self, taken: Take, sites: Iterable[str]) -> dict[str, int]:
        """Return region -> number of its module's record, which is written if it is new."""
        found = {}
        for site in sites:
            place = taken.split_of(site)
            if place is not None:
                found[site] = self._number(place[0])
        return found

    def _number(self, split: Split) -> int:
        if split.site not in self._numbers:
            module = self._model.get_submodule(split.site)
            text = split_source(split, type(module).__name__)
            if text not in self._modules:
                self._modules[text] = f"split_{len(self._modules)}"
                self._folder.write_text(f"{self._package}/{self._modules[text]}.py", text)
            self._numbers[split.site] = len(self.records)
            self.records.append(
                SplitRecord(
                    module=self._modules[text],
                    structure=self._structure(module),
                    inlined=split.inlined,
                    leaves=split.leaves,
                    state=split.state,
                    layouts=tuple(
                        SplitCall(
                            layout=each.kind.layout,
                            same=each.same,
                            regions=tuple(each.regions),
                            function=name,
                        )
                        for each, name in zip(split.layouts, forward_names(split), strict=True)
                    ),
                    regions={name: text.state for name, text in split.regions.items()},
                )
            )
        return self._numbers[split.site]
