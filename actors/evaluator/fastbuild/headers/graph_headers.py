"""The light header of torch::autograd::Function, and the source of what it only declares.

torch's header has the whole node of a custom function as a template: each candidate instantiates
and compiles all of it, with the part for torch.compile.  Here the statements that do not depend on
the candidate's function are those of a base class, `GraphNode`, which is compiled once.  They are
torch's own text, cut out of its header.
"""

from __future__ import annotations

import re
from pathlib import Path

from actors.evaluator.fastbuild.headers.header_tree import (
    NATIVE,
    UnexpectedTorchHeadersError,
    find_between,
    write_file,
)

HEADER = "torch/csrc/autograd/custom_function.h"
SOURCE_FILE = "graphs.cpp"
_FOR_COMPILE = "#include <torch/csrc/dynamo/compiled_autograd.h>\n"
_POINTER = re.compile(r"void set_ctx_grad_fn\((?:const )?(?P<kind>[\w:]+)<Node>&? node\);")
_METHOD = re.compile(
    r"^template <class T>\nvoid CppNode<T>::(\w+\([^\n]*\{\n.*?^\}\n)", re.M | re.S
)
_ASSERTION = re.compile(r"    static_assert\(\s*std::is_same_v<[^;]*T::is_traceable[^;]*;\n")
_MARK = re.compile(r"^ *//@ ([a-z ]+)(?::[^\n]*)?\n", re.MULTILINE)
_NAMESPACE = "\nnamespace torch::autograd {\n"


class GraphHeadersError(UnexpectedTorchHeadersError):
    """torch's header of custom functions is not laid out as expected; it is used as it is."""


def generate_graph_headers(include: Path, folder: Path) -> bool:
    """Write the light header and the source into `folder`, for the torch headers in `include`.

    Returns False, and writes nothing, if torch's header is laid out in another way.
    """
    try:
        text = (include / HEADER).read_text(encoding="utf-8")
        parts = _parts(text)
    except (OSError, UnexpectedTorchHeadersError):
        return False
    for native, file in (
        ("custom_function.h", folder / HEADER),
        (SOURCE_FILE, folder / SOURCE_FILE),
    ):
        template = (NATIVE / native).read_text(encoding="utf-8")
        write_file(file, _MARK.sub(lambda mark: f"{parts[mark[1]]}\n", template))
    return True


def _cut(text: str, start: str, end: str) -> str:
    """Return what is between `start` and the next `end` in torch's header."""
    first, last = find_between(text, start, end, HEADER)
    return text[first + len(start) : last]


def _replaced(text: str, old: str, new: str) -> str:
    """Return `text` with `new` for `old`, which must be in it."""
    if old not in text:
        raise GraphHeadersError(f"{HEADER} has no {old!r}")
    return text.replace(old, new)


def _parts(text: str) -> dict[str, str]:
    """Return the marked parts of the two files, cut out of torch's header."""
    if _FOR_COMPILE not in text:
        raise GraphHeadersError(f"{HEADER} has no {_FOR_COMPILE!r}")
    includes = _cut(text, "#pragma once\n", _NAMESPACE).replace(_FOR_COMPILE, "")
    declarations = _cut(text, _NAMESPACE, "\ntemplate <typename T>\ninline variable_list CppNode_")
    return {
        "includes": includes,
        "declarations": _replaced(
            declarations,
            "  template <class T>\n  friend struct CppNode;\n",
            "  template <class T>\n  friend struct CppNode;\n  friend struct GraphNode;\n",
        ),
        **_node_parts(text),
        **_backward_parts(text),
        **_apply_parts(text),
    }


def _node_parts(text: str) -> dict[str, str]:
    """Return the parts of the node: its members, and its methods with T's part made virtual."""
    node = _cut(text, "struct CppNode : public Node {\n", "\n};\n")
    pointer = _POINTER.search(node)
    methods = _METHOD.findall(text)
    declared = _cut(node, "\n\n", "  void compiled_args(")
    if pointer is None or len(methods) != declared.count(";"):
        raise GraphHeadersError(f"{HEADER} has other methods of nodes")
    saved = _cut(node + "\n", "SwapSavedVariables& saved) override {\n", "\n  }\n")
    saved = _replaced(saved, "CppNode_apply_functional_ivalue<T>", "backward_of_values()")
    saved = _replaced(saved, "T::is_traceable);", "is_function_traceable());")
    return {
        "pointer": f"  using Pointer = {pointer['kind']}<GraphNode>;",
        "members": _cut(node, "override;\n", "\n\n"),
        "methods": declared,
        "bodies": "\n".join(f"void GraphNode::{method}" for method in methods),
        "compiled arguments": _of_function(
            _cut(node, "compiled_args(CompiledNodeArgs& args) const override {\n", "\n  }\n")
        ),
        "apply with saved variables": _of_function(_ASSERTION.sub("", saved)),
    }


def _of_function(body: str) -> str:
    """Return `body` with the candidate's type asked for instead of named."""
    body = _replaced(body, "typeid(T)", "function_type()")
    if re.search(r"\bT\b", body):
        raise GraphHeadersError(f"{HEADER} names a function in another way")
    return body


def _backward_parts(text: str) -> dict[str, str]:
    """Return the bodies of the two functions that call the candidate's backward."""
    backward = _cut(text, "    const std::string& name) {\n", "\n}\n")
    values = _cut(text, "    const std::vector<c10::IValue>& args) {\n", "\n}\n")
    call = "auto outputs = T::backward(&ctx_, backward_inputs);"
    again = _replaced(values, "CppNode_apply_functional<T>(", "apply_backward(")
    return {
        "backward": _replaced(backward, call, "auto outputs = backward(&ctx_, backward_inputs);"),
        "backward of values": _replaced(
            again, "output_info, name);", "output_info, name, backward);"
        ),
    }


def _apply_parts(text: str) -> dict[str, str]:
    """Return the parts of `Function<T>::apply`: its template, and the statements without T."""
    head = "template <class T>\ntemplate <typename X, typename... Args>\nauto Function<T>::apply("
    body = _cut(text, head, "\n}\n")
    transforms = _cut(body, "> {\n", "\n\n")
    begin = "  bool is_executable =" + _cut(
        body, "  bool is_executable =", "\n\n  node->input_info_"
    )
    begin += "\n\n  node->input_info_" + _cut(body, "\n\n  node->input_info_", "\n\n  using ")
    finish = "  _jvp_fn_t jvp_fn =" + _cut(body, "  _jvp_fn_t jvp_fn =", "\n\n  // wrapped_outputs")
    apply = _replaced(body, transforms, "  GraphNode::check_transforms();")
    apply = _replaced(apply, begin, "  bool is_executable = GraphNode::begin(node, input_vars);")
    apply = _replaced(
        apply,
        finish,
        "  auto wrapped_outputs =\n"
        "      GraphNode::finish(node, input_vars, to_optional(outputs), is_executable);",
    )
    return {
        "transforms": transforms,
        "begin": begin,
        "finish": _replaced(finish, "to_optional(outputs)", "outputs"),
        "conversions": "struct ExtractVariables"
        + _cut(text, "\nstruct ExtractVariables", f"\n{head}"),
        "apply": f"{head}{apply}\n}}",
    }
