"""The parts of a candidate's file that are the same for all, and what is kept of the task's own."""

from __future__ import annotations

import ast
import copy

from actors.agents.recipes.source import Source

CPP_BUILD = """\
FLAGS = [
    "-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=fast", "-mprefer-vector-width=512", "-Wno-psabi", "-Wno-ignored-attributes",
]
# No torch header and no binding: C functions over pointers build in about two seconds.  OpenMP's
# functions come from the library that torch has loaded, so that both share one team of threads.
if platform.machine() not in ("x86_64", "AMD64"):
    FLAGS.remove("-mprefer-vector-width=512")
library = ctypes.CDLL(
    load_inline(
        name="recipe_" + hashlib.sha256(SOURCE.encode()).hexdigest()[:16],
        cpp_sources=SOURCE,
        extra_cflags=FLAGS,
        no_implicit_headers=True,
        is_python_module=False,
    )
)
"""

CUDA_BUILD = """\
# No torch header and no binding: plain CUDA behind C functions builds in a second or two.
library = ctypes.CDLL(
    load_inline(
        name="recipe_" + hashlib.sha256(SOURCE.encode()).hexdigest()[:16],
        cpp_sources="",
        cuda_sources=SOURCE,
        extra_cuda_cflags=["-O3", "-std=c++17", "-diag-suppress", "177"],
        no_implicit_headers=True,
        is_python_module=False,
    )
)
"""

FITS = '''

def fits(tensor, shape):
    """Whether the kernels were written for this tensor."""
    return (
        tensor.shape == shape
        and tensor.dtype is torch.float32
        and tensor.is_{device}
    )


def ready(tensor, shape):
    """The tensor as contiguous memory, or an error that says what was expected."""
    if not fits(tensor, shape):
        raise RuntimeError(
            f"a kernel takes float32{{list(shape)}} on {device}, "
            f"got {{tensor.dtype}}{{list(tensor.shape)}} on {{tensor.device.type}}"
        )
    return tensor.contiguous()
'''

CHECKED = '''

def aligned(tensor):
    """The tensor as contiguous memory that begins where a vector load may."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def checked(status):
    """Raises when a launch failed."""
    if status:
        raise RuntimeError(f"CUDA error {status} at a kernel's launch")
'''


class Renamed(ast.NodeTransformer):
    """Model becomes ModelNew wherever the file names it."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id == "Model":
            node.id = "ModelNew"
        return node


def kept_module(source: Source) -> str:
    """What the task's file holds besides Model and its get_… functions."""
    lines: list[str] = []
    have = {"import torch", "from torch import nn"}
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            continue
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            continue
        if isinstance(node, ast.Expr | ast.If):
            continue
        text = ast.unparse(Renamed().visit(copy.deepcopy(node)))
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        if text in have:
            continue
        spaced = isinstance(node, ast.FunctionDef | ast.ClassDef)
        lines.append(f"\n\n{text}\n" if spaced else text)
    return "\n".join(lines)
