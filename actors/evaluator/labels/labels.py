"""Labels of a candidate: remarks for readers on how it computes its result.

See `docs/evaluation-laws.md`, law 12.

Labels are heuristics on the candidate's source and on the kernel names of the profiler.  A label is
not a verdict and does not change one, except that --require-custom-kernel rejects three of them
(`rejection_reason`).  In doubt there is no label, so that honest code is not rejected for its
wording.

library_only        no kernel of its own at all: torch's operators, torch.compile, C++ around them
fallback_swallowed  a kernel's failure is swallowed and torch does the work
decoy_kernel        a kernel is built, and forward does not call it or drops its result
precision_cast      computes in a lower precision than the task's
algebraic_shortcut  leaves out work of the reference: inputs, matrix products, or their order
renamed_reference   is the task's own module under another name; never a winner
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from actors.evaluator.labels import precision, renamed_reference, shortcuts
from actors.evaluator.labels.candidate_structure import CandidateStructure
from actors.evaluator.labels.syntax import calls_in, is_library_name, last_name, variables_read
from protocol.values import RENAMED_REFERENCE

REJECTION_REASONS = {
    "library_only": "it has no kernel of its own, and --require-custom-kernel asks for one",
    "fallback_swallowed": "it swallows its kernel's failure and lets torch do the work "
    "(--require-custom-kernel)",
    "decoy_kernel": "it builds a kernel that forward does not use (--require-custom-kernel)",
}
MAX_CHARS = 1 << 18  # longer than honest code; parsing a hostile text must not take long
BROAD_EXCEPTIONS = frozenset(["", "Exception", "BaseException", "RuntimeError", "OSError"])
EXIT_CALLS = frozenset(["exit", "_exit", "abort", "fail"])
# The functions of torch that compute nothing.
ALLOCATION_CALLS = frozenset(
    [
        *("empty", "empty_like", "zeros", "zeros_like", "new_empty", "new_zeros", "device"),
        *("contiguous", "view", "reshape", "flatten", "to", "cuda", "cpu", "size", "numel", "dim"),
        *("stride", "data_ptr", "is_contiguous", "synchronize", "current_stream", "no_grad"),
        *("tensor", "Parameter", "compile", "load_inline", "load", "is_available", "manual_seed"),
        *("register_buffer", "detach", "expand", "permute", "transpose", "unsqueeze", "squeeze"),
        *("get_device_capability", "get_device_properties", "device_count", "inference_mode"),
    ]
)
# Text that computes something in C++ or CUDA, beyond one call of torch.
KERNEL_WORK = re.compile(
    r"__global__|\b(?:for|while)\s*\(|\bparallel_for\b|\basm\b|_mm\d*_|TensorIterator|"
    r"\bstd::(?:transform|accumulate|for_each|reduce|generate|fill)|"
    r"\b(?:thrust|cub|cutlass|cute|dnnl|Eigen)::|cu(?:blas|dnn|fft|sparse)|cblas_|\bmkl_|"
    r"#\s*include\s*\"|data_ptr"
)


def labels_of(
    source: str, *, reference: str = "", kernels: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the labels of `source`, sorted; () where it can't be parsed or is too long.

    `reference` is the task's source, `kernels` the kernel names in the profile of a card (None or
    empty: no card, or no profile).
    """
    if len(source) > MAX_CHARS:
        return ()
    try:
        candidate = CandidateStructure(source)
        task = CandidateStructure(reference, "Model")
        found = {
            "library_only": is_library_only(candidate),
            "fallback_swallowed": has_silent_fallback(candidate),
            "decoy_kernel": has_decoy_kernel(candidate, kernels or ()),
            "precision_cast": precision.has_lower_precision(candidate, task),
            "algebraic_shortcut": shortcuts.leaves_out_work(candidate, task),
            RENAMED_REFERENCE: renamed_reference.is_renamed(source, reference),
        }
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(sorted(label for label, applies in found.items() if applies))


def rejection_reason(labels: Sequence[str]) -> str | None:
    """Return why --require-custom-kernel rejects a candidate of these labels; None: it does not."""
    return next((reason for label, reason in REJECTION_REASONS.items() if label in labels), None)


def is_library_only(structure: CandidateStructure) -> bool:
    """Whether the file has no kernel of its own."""
    if structure.runs_dynamic_code:
        return False
    if not structure.has_kernel:
        return True
    if structure.kernel_names or not structure.native_texts:
        return False
    return not any(KERNEL_WORK.search(text) for text in structure.native_texts)


# --- decoys ---------------------------------------------------------------------------------------


def has_decoy_kernel(structure: CandidateStructure, kernels: Sequence[str]) -> bool:
    """Whether the file has a kernel that does not contribute to forward's result."""
    if not structure.has_kernel or structure.runs_dynamic_code:
        return False
    used = [
        call
        for part in structure.forward_path
        for call in calls_in(part)
        if structure.calls_kernel(call)
    ]
    if {id(call) for call in used} <= _calls_without_effect(structure):
        return True
    return bool(kernels) and _never_ran(structure, kernels)


def _calls_without_effect(structure: CandidateStructure) -> set[int]:
    """Return the kernel calls in forward whose result is not read and that write nothing."""
    forward = structure.forward
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
    without_effect = set()
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
        inputs = {name for argument in arguments for name in variables_read(argument)} - {
            "self",
            "torch",
        }
        # A call that works in place writes to the module's own memory, or the input check finds it.
        if inputs <= given - stored and not any(map(_own_memory, arguments)):
            without_effect.add(id(call))
    return without_effect


def _own_memory(argument: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute) and variables_read(node) == {"self"}
        for node in ast.walk(argument)
    )


def _never_ran(structure: CandidateStructure, kernels: Sequence[str]) -> bool:
    """Whether the card's profile has none of the kernels that the file defines."""
    text = " ".join(structure.native_texts)
    if not structure.kernel_names or "##" in text:
        return False
    own = [
        *structure.kernel_names,
        *(name for name in ("cub", "thrust", "cutlass") if name in text),
    ]
    return not any(name in kernel for name in own for kernel in kernels)


# --- fallbacks ------------------------------------------------------------------------------------


def has_silent_fallback(structure: CandidateStructure) -> bool:
    """Whether a kernel may fail silently because torch takes over."""
    computing = [
        call for part in structure.forward_path for call in calls_in(part) if _computes(call)
    ]
    return any(_takes_over(structure, computing, *parts) for parts in _guarded(structure.tree))


def _guarded(tree: ast.AST) -> Iterator[tuple[list[ast.stmt], list[ast.stmt]]]:
    """Yield the bodies of `try` and of `suppress`, each with its handler."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
                if any((last_name(kind) if kind else "") in BROAD_EXCEPTIONS for kind in kinds):
                    yield node.body, handler.body
        elif isinstance(node, ast.With):
            names = {last_name(item.context_expr) for item in node.items}
            if "suppress" in names:
                yield node.body, []


def _takes_over(
    structure: CandidateStructure,
    computing: list[ast.Call],
    body: list[ast.stmt],
    handler: list[ast.stmt],
) -> bool:
    guarded = ast.Module(body=body, type_ignores=[])
    fallback = ast.Module(body=handler, type_ignores=[])
    if not any(
        structure.produces_kernel(call) or structure.calls_kernel(call)
        for call in calls_in(guarded)
    ):
        return False
    if any(isinstance(node, ast.Raise) for node in ast.walk(fallback)):
        return False
    for call in calls_in(fallback):
        if (
            last_name(call.func) in EXIT_CALLS
            or structure.produces_kernel(call)
            or structure.calls_kernel(call)
        ):
            return False
    inside = {id(node) for node in ast.walk(guarded)}
    if any(isinstance(node, ast.BinOp) for node in ast.walk(fallback)):
        return True
    return any(id(call) not in inside for call in computing)


def _computes(call: ast.Call) -> bool:
    """Whether a call makes torch compute something."""
    name = last_name(call.func)
    if name in ALLOCATION_CALLS or not isinstance(call.func, ast.Attribute):
        return False
    return is_library_name(call.func) or name in shortcuts.CONTRACTIONS | shortcuts.SUMS | {
        "softmax",
        "relu",
    }
