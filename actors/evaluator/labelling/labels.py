"""Labels of a candidate: what a reader should know of how it gets its result.

See `docs/evaluation-laws.md`, law 12.

Heuristics on its text, and on the names of the kernels that a profiler saw.  A label is no verdict
and changes none; only with --require-custom-kernel do three of them count (`rejects`).  When in
doubt there is no label: honest code is never refused for its words.

library_only        no kernel of its own at all: torch's operators, torch.compile, C++ around them
fallback_swallowed  a kernel's failure is swallowed and torch does the work
decoy_kernel        a kernel is built, and forward does not call it or drops what it returns
precision_cast      computes in a lower precision than the task's
algebraic_shortcut  leaves out work of the reference: inputs, matrix products, or their order
renamed_reference   is the task's own module under another name: see `renamed`; never a winner
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from actors.evaluator.labelling import precision, renamed, shortcuts
from actors.evaluator.labelling.anatomy import Anatomy
from actors.evaluator.labelling.syntax import calls, last_name, of_library, roots
from protocol.values import RENAMED_REFERENCE

REJECTED = {
    "library_only": "it has no kernel of its own, and --require-custom-kernel asks for one",
    "fallback_swallowed": "it swallows its kernel's failure and lets torch do the work "
    "(--require-custom-kernel)",
    "decoy_kernel": "it builds a kernel that forward does not use (--require-custom-kernel)",
}
MOST_CHARS = 1 << 18  # nobody writes more; reading a hostile text must not take long
SWALLOWING = frozenset(["", "Exception", "BaseException", "RuntimeError", "OSError"])
LEAVING = frozenset(["exit", "_exit", "abort", "fail"])
# Of torch, what computes nothing.
IDLE = frozenset(
    [
        *("empty", "empty_like", "zeros", "zeros_like", "new_empty", "new_zeros", "device"),
        *("contiguous", "view", "reshape", "flatten", "to", "cuda", "cpu", "size", "numel", "dim"),
        *("stride", "data_ptr", "is_contiguous", "synchronize", "current_stream", "no_grad"),
        *("tensor", "Parameter", "compile", "load_inline", "load", "is_available", "manual_seed"),
        *("register_buffer", "detach", "expand", "permute", "transpose", "unsqueeze", "squeeze"),
        *("get_device_capability", "get_device_properties", "device_count", "inference_mode"),
    ]
)
# In C++ or CUDA text: something computes there that is not one call into torch.
WORK = re.compile(
    r"__global__|\b(?:for|while)\s*\(|\bparallel_for\b|\basm\b|_mm\d*_|TensorIterator|"
    r"\bstd::(?:transform|accumulate|for_each|reduce|generate|fill)|"
    r"\b(?:thrust|cub|cutlass|cute|dnnl|Eigen)::|cu(?:blas|dnn|fft|sparse)|cblas_|\bmkl_|"
    r"#\s*include\s*\"|data_ptr"
)


def of(
    source: str, *, reference: str = "", kernels: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the labels of `source`, sorted; () where it can't be read or is endless.

    `reference` is the task's source, `kernels` the names that a profiler saw on a card (None or
    empty: no card, or not profiled).
    """
    if len(source) > MOST_CHARS:
        return ()
    try:
        candidate = Anatomy(source)
        task = Anatomy(reference, "Model")
        found = {
            "library_only": library_only(candidate),
            "fallback_swallowed": fallback_swallowed(candidate),
            "decoy_kernel": decoy_kernel(candidate, kernels or ()),
            "precision_cast": precision.lower(candidate, task),
            "algebraic_shortcut": shortcuts.taken(candidate, task),
            RENAMED_REFERENCE: renamed.is_renamed(source, reference),
        }
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(sorted(label for label, there in found.items() if there))


def rejects(labels: Sequence[str]) -> str | None:
    """Return why --require-custom-kernel refuses a candidate of these labels; None: it does not."""
    return next((words for label, words in REJECTED.items() if label in labels), None)


def library_only(code: Anatomy) -> bool:
    """Whether nothing in the file is a kernel of its own."""
    if code.obscure:
        return False
    if not code.has_kernel:
        return True
    if code.kernel_names or not code.native:
        return False
    return not any(WORK.search(text) for text in code.native)


# --- decoys ---------------------------------------------------------------------------------------


def decoy_kernel(code: Anatomy, kernels: Sequence[str]) -> bool:
    """Whether there is a kernel and it has no part in what forward returns."""
    if not code.has_kernel or code.obscure:
        return False
    used = [call for part in code.path for call in calls(part) if code.calls_kernel(call)]
    if {id(call) for call in used} <= _dropped(code):
        return True
    return bool(kernels) and _unseen(code, kernels)


def _dropped(code: Anatomy) -> set[int]:
    """Return the kernel calls in forward whose result nobody reads and that write nothing."""
    forward = code.forward
    if forward is None:
        return set()
    given = {argument.arg for argument in forward.args.args} - {"self"}
    stored = {
        node.id
        for node in ast.walk(forward)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    read = {
        node.id
        for node in ast.walk(forward)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    dropped = set()
    for node in ast.walk(forward):
        match node:
            case ast.Expr(value=ast.Call() as call):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                if name in read:
                    continue
            case _:
                continue
        arguments = [*call.args, *(word.value for word in call.keywords)]
        inputs = {name for argument in arguments for name in roots(argument)} - {"self", "torch"}
        # One that writes in place writes to something of its own, or the input check finds it.
        if inputs <= given - stored and not any(map(_own_memory, arguments)):
            dropped.add(id(call))
    return dropped


def _own_memory(argument: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute) and roots(node) == {"self"} for node in ast.walk(argument)
    )


def _unseen(code: Anatomy, kernels: Sequence[str]) -> bool:
    """Whether a card ran none of the kernels that the file writes."""
    words = " ".join(code.native)
    if not code.kernel_names or "##" in words:
        return False
    own = [*code.kernel_names, *(name for name in ("cub", "thrust", "cutlass") if name in words)]
    return not any(name in kernel for name in own for kernel in kernels)


# --- fallbacks ------------------------------------------------------------------------------------


def fallback_swallowed(code: Anatomy) -> bool:
    """Whether a kernel may fail unnoticed because torch takes over."""
    computing = [call for part in code.path for call in calls(part) if _computes(call)]
    return any(_takes_over(code, computing, *parts) for parts in _guarded(code.tree))


def _guarded(tree: ast.AST) -> Iterator[tuple[list[ast.stmt], list[ast.stmt]]]:
    """Yield what is tried, and what is done when it fails."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
                if any((last_name(kind) if kind else "") in SWALLOWING for kind in kinds):
                    yield node.body, handler.body
        elif isinstance(node, ast.With):
            names = {last_name(item.context_expr) for item in node.items}
            if "suppress" in names:
                yield node.body, []


def _takes_over(
    code: Anatomy, computing: list[ast.Call], body: list[ast.stmt], handler: list[ast.stmt]
) -> bool:
    tried = ast.Module(body=body, type_ignores=[])
    done = ast.Module(body=handler, type_ignores=[])
    if not any(code.produces(call) or code.calls_kernel(call) for call in calls(tried)):
        return False
    if any(isinstance(node, ast.Raise) for node in ast.walk(done)):
        return False
    for call in calls(done):
        if last_name(call.func) in LEAVING or code.produces(call) or code.calls_kernel(call):
            return False
    inside = {id(node) for node in ast.walk(tried)}
    if any(isinstance(node, ast.BinOp) for node in ast.walk(done)):
        return True
    return any(id(call) not in inside for call in computing)


def _computes(call: ast.Call) -> bool:
    """Whether a call lets torch compute something."""
    name = last_name(call.func)
    if name in IDLE or not isinstance(call.func, ast.Attribute):
        return False
    return of_library(call.func) or name in shortcuts.CONTRACTIONS | shortcuts.SUMS | {
        "softmax",
        "relu",
    }
