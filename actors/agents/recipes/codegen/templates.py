"""The constant parts of a candidate's file, and the parts that come from the task's file."""

from __future__ import annotations

import ast
import copy
import re

import msgspec

from actors.agents.recipes.frontend.statements import ForwardProgram
from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError
from actors.agents.recipes.frontend.task_source import (
    TASK_GETTERS,
    TaskSource,
    bound_names,
    is_main,
    method,
)

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

FITS_FUNCTION = '''

def fits(tensor, shape):
    """Whether the kernels were written for this tensor."""
    return (
        tensor.shape == shape
        and tensor.dtype is torch.{dtype}
        and tensor.is_{device}
    )


def ready(tensor, shape, order=None):
    """The tensor as contiguous memory, or an error that says what was expected.

    `order`: of its dimensions in that memory.
    """
    if not fits(tensor, shape):
        raise RuntimeError(
            f"a kernel takes {dtype}{{list(shape)}} on {device}, "
            f"got {{tensor.dtype}}{{list(tensor.shape)}} on {{tensor.device.type}}"
        )
    return (tensor if order is None else tensor.permute(order)).contiguous()
'''

ALIGNED_FUNCTION = '''

def aligned(tensor):
    """The tensor as contiguous memory that begins where a vector load may."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def checked(status):
    """Raises when a launch failed."""
    if status:
        raise RuntimeError(f"CUDA error {status} at a kernel's launch")
'''

STREAM_FUNCTION = '''

# Its handle alone: `torch.cuda.current_stream()` makes an object each time, for microseconds.
RAW_STREAM = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def current_stream():
    """The handle of the stream that the caller works on, on the current device."""
    if RAW_STREAM is None:  # a torch that has no such function
        return torch.cuda.current_stream().cuda_stream
    return RAW_STREAM(torch.cuda.current_device())
'''


# The names that a candidate's file defines, besides torch's and Python's modules.
RESERVED_NAMES = frozenset(
    [
        "FLAGS",
        "SOURCE",
        "library",
        "fits",
        "ready",
        "aligned",
        "checked",
        "current_stream",
        "RAW_STREAM",
        "load_inline",
        "ModelNew",
        "KernelsWithGradients",
    ]
)
IMPORTED_MODULES = ("torch", "math", "ctypes", "hashlib", "platform")
CASE_FORWARD = "forward_of_case_"  # and a number: the methods for the task's further cases
GENERATED_NAME = re.compile(r"[tpc]\d+|scratch")


class ModelText(msgspec.Struct, frozen=True, kw_only=True):
    """ModelNew up to its forward."""

    text: str
    checks_arguments: bool  # its constructor sets `as_written`: made with the expected arguments


class ModelRenamer(ast.NodeTransformer):
    """Renames Model to ModelNew wherever the file names it."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id == "Model":
            node.id = "ModelNew"
        return node


def new_model_class(program: ForwardProgram) -> tuple[ast.FunctionDef, ModelText]:
    """The task's forward, and a ModelNew that has it as `plain_forward`.

    A Model that is one plain class is copied.  A Model that gets methods from a base class or an
    assignment stays as it is, and ModelNew inherits from it.
    """
    source = program.source
    found = source.method(source.model, "forward")
    if found is None:
        raise UnsupportedSourceError("Model has no forward")
    guard = program.constructor_guard
    if source.is_one_plain_class:
        return copied_class(source, guard)
    lines = ["class ModelNew(Model):"]
    init = source.method(source.model, "__init__")
    if guard and init is not None:
        spec = copy.deepcopy(init[0].args)
        (spec.posonlyargs or spec.args)[0].arg = "self"
        passed = [arg.arg for arg in spec.posonlyargs + spec.args][1:]
        passed += [f"*{spec.vararg.arg}"] if spec.vararg else []
        passed += [f"{arg.arg}={arg.arg}" for arg in spec.kwonlyargs]
        passed += [f"**{spec.kwarg.arg}"] if spec.kwarg else []
        lines += [
            f"    def __init__({ast.unparse(spec)}):",
            f"        super().__init__({', '.join(passed)})",
            f"        self.as_written = {guard}",
            "",
        ]
    lines.append("    plain_forward = Model.forward")
    text = ModelText(text="\n".join(lines), checks_arguments=bool(guard))
    return copy.deepcopy(found[0]), text


def copied_class(source: TaskSource, guard: str) -> tuple[ast.FunctionDef, ModelText]:
    """The same for a Model that is copied: its class under the name ModelNew."""
    body = copy.deepcopy(source.model)
    body.name = "ModelNew"
    ModelRenamer().visit(body)
    init, forward = method(body, "__init__"), method(body, "forward")
    if forward is None:
        raise UnsupportedSourceError("Model has no forward")
    own = copy.deepcopy(forward)
    forward.name = "plain_forward"
    if init is not None and guard:
        owner = (init.args.posonlyargs + init.args.args)[0].arg
        # At the beginning: later, the arguments' names may have other values.
        at = int(ast.get_docstring(init) is not None)
        init.body[at:at] = ast.parse(f"{owner}.as_written = {guard}").body
    has_guard = init is not None and bool(guard)
    return own, ModelText(text=ast.unparse(body), checks_arguments=has_guard)


def refuse_clashes(program: ForwardProgram, forward: ast.FunctionDef) -> None:
    """Raise where the task's file uses a name that a candidate's file defines."""
    source = program.source
    for node in source.tree.body:
        for name in bound_names(node):
            symbol = source.imports.get(name)
            other = name in IMPORTED_MODULES and (symbol is None or symbol.name != name)
            if name in RESERVED_NAMES or other:
                raise UnsupportedSourceError(
                    f"the name {name} is one that a candidate needs for itself"
                    f" ({source.describe_line(node.lineno)})"
                )
    spec = forward.args
    for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg):
        if arg is not None and (
            GENERATED_NAME.fullmatch(arg.arg) or arg.arg in RESERVED_NAMES | {*IMPORTED_MODULES}
        ):
            raise UnsupportedSourceError(
                f"forward's argument {arg.arg} has a name that a candidate needs for itself"
                f" ({source.describe_line(arg.lineno)})"
            )
    for name in ("plain_forward", "as_written", f"{CASE_FORWARD}1"):
        if source.method(source.model, name) is not None:
            raise UnsupportedSourceError(
                f"Model has a method {name}, which a candidate needs for itself"
            )


def future_imports(source: TaskSource) -> list[str]:
    """The file's imports from __future__, which have to come first."""
    found = [n for n in source.tree.body if isinstance(n, ast.ImportFrom)]
    return [ast.unparse(node) for node in found if node.module == "__future__"]


def task_remainder(source: TaskSource) -> str:
    """The task's file without its get_… functions, and without Model if that is copied."""
    lines: list[str] = []
    have = {"import torch", "from torch import nn"}
    dropped = set(TASK_GETTERS) | ({"Model"} if source.is_one_plain_class else set())
    for node in source.tree.body:
        if is_left_out(node, source, dropped):
            dropped |= set(bound_names(node)) - {"Model"}
            continue
        text = ast.unparse(node)
        if source.is_one_plain_class:
            text = ast.unparse(ModelRenamer().visit(copy.deepcopy(node)))
        if text in have:
            continue
        spaced = isinstance(node, ast.FunctionDef | ast.ClassDef)
        lines.append(f"\n\n{text}\n" if spaced else text)
    return "\n".join(lines)


def is_left_out(node: ast.stmt, source: TaskSource, dropped: set[str]) -> bool:
    """Whether a candidate does not need a statement: the task's test run, its docstring."""
    match node:
        case ast.ClassDef(name="Model"):
            return source.is_one_plain_class
        case ast.FunctionDef(name=name):
            return name in TASK_GETTERS
        case ast.ClassDef():
            return False
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=test) if is_main(test):
            return True
        case ast.ImportFrom(module="__future__"):
            return True
        case ast.Import() | ast.ImportFrom():
            return False
    used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return bool(used & dropped)
