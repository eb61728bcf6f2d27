"""From a region to its kernel: which writer writes it."""

from __future__ import annotations

from actors.agents.recipes.codegen.cpp import CppMaps, CppRows
from actors.agents.recipes.codegen.cpp_columns import CppColumns
from actors.agents.recipes.codegen.cpp_pool import CppPools
from actors.agents.recipes.codegen.cuda import CudaMaps
from actors.agents.recipes.codegen.cuda_columns import CudaColumns
from actors.agents.recipes.codegen.cuda_pool import CudaPools
from actors.agents.recipes.codegen.cuda_rows import CudaRows
from actors.agents.recipes.codegen.passes import Kernel
from actors.agents.recipes.ir.graph import OperationGraph
from actors.agents.recipes.schedule.fusion import Region
from actors.agents.recipes.schedule.knobs import Knobs
from actors.agents.recipes.schedule.loop_nests import plan_loops


def write_kernel(
    graph: OperationGraph, region: Region, backend: str, knobs: Knobs, name: str
) -> Kernel:
    """The kernel of a region, in C++ or CUDA."""
    kind = plan_loops(graph, region).kind
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
            return CppMaps(graph, region, knobs, name).write()
        case "rows":
            return CppRows(graph, region, knobs, name).write()
        case "columns":
            return CppColumns(graph, region, knobs, name).write()
        case "pool":
            return CppPools(graph, region, knobs, name).write()
