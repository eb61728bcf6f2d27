"""From a region to its kernel: which writer writes it."""

from __future__ import annotations

from actors.agents.recipes.cpp import Maps, Rows
from actors.agents.recipes.cpp_columns import Columns
from actors.agents.recipes.cpp_pool import Pools
from actors.agents.recipes.cuda import CudaMaps
from actors.agents.recipes.cuda_columns import CudaColumns
from actors.agents.recipes.cuda_pool import CudaPools
from actors.agents.recipes.cuda_rows import CudaRows
from actors.agents.recipes.flow import Kernel
from actors.agents.recipes.fusion import Region
from actors.agents.recipes.graph import Graph
from actors.agents.recipes.knobs import Knobs
from actors.agents.recipes.layout import lay_out


def write(graph: Graph, region: Region, backend: str, knobs: Knobs, name: str) -> Kernel:
    """The kernel of a region, in C++ or CUDA."""
    kind = lay_out(graph, region).kind
    if backend == "cuda":
        match kind:
            case "map":
                return CudaMaps(graph, region, knobs, name).write()
            case "rows":
                return CudaRows(graph, region, knobs, name).write()
            case "columns":
                return CudaColumns(graph, region, knobs, name).write()
            case "pool":
                return CudaPools(graph, region, knobs, name).write()
    match kind:
        case "map":
            return Maps(graph, region, knobs, name).write()
        case "rows":
            return Rows(graph, region, knobs, name).write()
        case "columns":
            return Columns(graph, region, knobs, name).write()
        case "pool":
            return Pools(graph, region, knobs, name).write()
