"""From a schedule to the kernels of a candidate: which writer writes which region."""

from __future__ import annotations

from actors.agents.recipes.cpp import Maps, Rows
from actors.agents.recipes.cpp_columns import Columns
from actors.agents.recipes.cpp_pool import Pools
from actors.agents.recipes.flow import Kernel
from actors.agents.recipes.fusion import Region
from actors.agents.recipes.graph import Graph
from actors.agents.recipes.knobs import Knobs
from actors.agents.recipes.layout import lay_out

CPP = {"map": Maps, "rows": Rows, "columns": Columns, "pool": Pools}


def write_cpp(graph: Graph, region: Region, knobs: Knobs, name: str) -> Kernel:
    """The C++ kernel of a region."""
    return CPP[lay_out(graph, region).kind](graph, region, knobs, name).write()
