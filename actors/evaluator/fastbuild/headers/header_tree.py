"""The light headers: a second include tree, made from the installed torch, searched before torch's.

Nine tenths of a build is the parsing of torch's headers: 840 tensor methods and 2,000 functions, of
which a candidate names ten.  The tree has the Tensor class without the bodies of its methods.  Its
umbrella headers (torch/extension.h and its like) include a small common part and the part that one
candidate names (`header_selection`).  Every header that the tree does not replace is torch's own.

The generator expects torchgen's regular layout.  When it finds less than expected it raises
`UnexpectedTorchHeadersError`, and torch's own build is used.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from pathlib import Path

import msgspec

from actors.evaluator.fastbuild.request.added_headers import AUTOGRAD, LIBRARY
from protocol.values import Value

NATIVE = Path(__file__).parent / "native"
INDEX_FILE = "index.json"
UMBRELLAS = (
    "torch/types.h",
    "torch/torch.h",
    "torch/all.h",
    "torch/script.h",
    "ATen/ATen.h",
    "ATen/Functions.h",
)
# The umbrella headers that bring pybind11.
BINDING_UMBRELLAS = ("torch/extension.h", "torch/python.h")
PREAMBLE_FILE = "stark/preamble.h"
# The headers of torch that an added header brings, where they call methods of tensors.
ADDED_PARTS = {
    LIBRARY: (
        "torch/library.h",
        "torch/custom_class*.h",
        "ATen/core/ivalue*.h",
        "ATen/core/boxing/**/*.h",
    ),
    AUTOGRAD: (
        "torch/csrc/autograd/*.h",
        "torch/csrc/dynamo/compiled_autograd.h",
        "ATen/core/ivalue*.h",
    ),
}
MIN_METHODS = 700
MIN_FUNCTIONS = 900
MIN_FACTORIES = 40

# Methods that TensorOperators.h and the remaining inline parts of Tensor use.
ALWAYS_METHODS = frozenset(
    [
        "_conj", "add", "add_", "bitwise_and", "bitwise_and_", "bitwise_not", "bitwise_or",
        "bitwise_or_", "bitwise_xor", "bitwise_xor_", "conj_physical", "contiguous", "copy_", "div",
        "div_", "eq", "fill_", "ge", "gt", "item", "le", "lt", "mul", "mul_", "ne", "neg",
        "remainder", "remainder_", "select", "sub", "sub_", "to",
    ]
)  # fmt: skip
# at::std makes cudafe++ write ::std for std, and every candidate uses std.
ALWAYS_FUNCTIONS = ["empty", "empty_like", "full", "ones", "std", "zeros", "zeros_like"]
OPERATOR_HEADER_SUFFIXES = ("_ops.h", "_native.h", "_dispatch.h", "_meta.h")

_METHOD = re.compile(r"^inline [^\n]*?\bTensor::(\w+)\([^\n]*\{\n(?:[^\n]*\n)*?\}\n", re.MULTILINE)
_DECLARED = re.compile(
    r"^  (?P<declared>(?:const )?(?:void|bool|int64_t|at::|::std::|c10::)[^()\n]*?[ &]"
    r"(?P<name>\w+)\([^\n]*\) const;)$",
    re.MULTILINE,
)
_STRUCT = re.compile(r"^struct TORCH_API (\w+) \{", re.MULTILINE)
_FACTORY = re.compile(r"^inline at::Tensor (\w+)\((?:[^\n]*\n)+?\}\n", re.MULTILINE)
_HEAVY_INCLUDE = re.compile(
    r"^#include <ATen/(?:Context|DeviceGuard|TensorUtils|TracerMode|core/Generator)\.h>\n",
    re.MULTILINE,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CALLED = re.compile(r"(?:\.|->)\s*(\w+)\s*\(")
_OPERATOR = re.compile(r"at::_ops::(\w+)::")
_TENSOR_INCLUDE = "#include <ATen/core/Tensor.h>\n"


class UnexpectedTorchHeadersError(Exception):
    """This torch's headers are not laid out as the generator expects."""


class OperatorIndex(Value, frozen=True, kw_only=True, dict=True):
    """torch's operators as its headers declare them; written once, read by every build."""

    methods: dict[str, list[str]]  # Tensor method -> its inline definitions
    operators: dict[str, str]  # struct in at::_ops -> the file under ATen/ops that declares it
    functions: list[str]  # X where ATen/ops/X.h declares at::X
    factories: dict[str, list[str]]  # function of namespace torch that makes a tensor -> its code
    always_methods: list[str]  # methods that every candidate gets, named or not
    always_functions: list[str]
    named_by_added: dict[str, list[str]]  # added header -> the methods that its inline code calls

    @cached_property
    def function_names(self) -> frozenset[str]:
        return frozenset(self.functions)

    def write(self, folder: Path) -> None:
        """Write the index into `folder`."""
        (folder / INDEX_FILE).write_bytes(msgspec.json.encode(self))


@lru_cache(maxsize=4)
def read_index(folder: Path) -> OperatorIndex:
    """Return the index in `folder`."""
    return msgspec.json.decode((folder / INDEX_FILE).read_bytes(), type=OperatorIndex)


def operators_in(definitions: list[str]) -> set[str]:
    """Return the structs of at::_ops that `definitions` call."""
    return {name for text in definitions for name in _OPERATOR.findall(text)}


def extra_includes(text: str) -> list[str]:
    """Return the headers outside the common part that declare the types named in `text`."""
    wanted = []
    if "TensorListRef" in text:
        wanted.append("ATen/core/IListRef.h")
    if "Generator" in text:
        wanted.append("ATen/core/Generator.h")
    if "c10::List<" in text:
        wanted.append("ATen/core/List.h")
    if "TensorDataContainer" in text:
        wanted += [
            "c10/util/Logging.h",
            "ATen/ScalarOps.h",
            "torch/csrc/api/include/torch/detail/TensorDataContainer.h",
        ]
    return wanted


def generate_headers(include: Path, folder: Path) -> OperatorIndex:
    """Write the tree for the torch headers in `include`; return the operators found in them."""
    light = folder / "light"
    methods = _tensor_class(include, light)
    operators = _operators(include)
    functions = _functions(include, light)
    factories = _factories(include)
    index = OperatorIndex(
        methods=methods,
        operators=operators,
        functions=functions,
        factories=factories,
        always_methods=[
            name for name in methods if name in ALWAYS_METHODS or name.startswith("__dispatch_")
        ],
        always_functions=[name for name in ALWAYS_FUNCTIONS if name in functions],
        named_by_added=_named_by_added(include, frozenset(methods)),
    )
    _check(index)
    _device_guard(include, light)
    _common_header(include, light, index)
    _umbrella_headers(light)
    index.write(folder)
    return index


def _check(index: OperatorIndex) -> None:
    for kind, found, minimum in (
        ("tensor methods", sum(map(len, index.methods.values())), MIN_METHODS),
        ("operators", len(index.operators), MIN_FUNCTIONS),
        ("functions", len(index.functions), MIN_FUNCTIONS),
        ("factories", len(index.factories), MIN_FACTORIES),
    ):
        if found < minimum:
            raise UnexpectedTorchHeadersError(
                f"{found} {kind} were found in torch's headers, expected {minimum} or more"
            )
    called = operators_in([body for bodies in index.methods.values() for body in bodies])
    missing = called - index.operators.keys()
    if missing:
        raise UnexpectedTorchHeadersError(f"no header declares {sorted(missing)[:5]}")


def write_file(path: Path, text: str) -> None:
    """Write `text` to `path`; missing folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def find_between(text: str, start: str, end: str, where: str) -> tuple[int, int]:
    """Return the offsets of `start` in `text` and of the next `end`; `where` names the text."""
    first = text.find(start)
    last = text.find(end, first)
    if first < 0 or last < 0:
        raise UnexpectedTorchHeadersError(
            f"{where} has no part between {start.strip()!r} and {end.strip()!r}"
        )
    return first, last


def _tensor_class(include: Path, light: Path) -> dict[str, list[str]]:
    name = "ATen/core/TensorBody.h"
    text = (include / name).read_text(encoding="utf-8")
    first, last = find_between(text, "\nnamespace at {\n\n// aten::", "\nnamespace c10 {\n", name)
    methods: dict[str, list[str]] = {}
    for found in _METHOD.finditer(text, first, last):
        methods.setdefault(found.group(1), []).append(found.group())
    heavy_include = "#include <ATen/MethodOperators.h>"
    if heavy_include not in text:
        raise UnexpectedTorchHeadersError(f"{name} does not include ATen/MethodOperators.h")
    needed = ("ATen/core/ATen_fwd.h", "string_view", "tuple", "vector")
    rest = (text[:first] + "\n" + text[last:]).replace(
        heavy_include, "\n".join(f"#include <{header}>" for header in needed)
    )
    write_file(light / name, _DECLARED.sub(lambda found: _inline(found, methods), rest))
    return methods


def _inline(found: re.Match[str], methods: dict[str, list[str]]) -> str:
    """Return a method's declaration with the `inline` that its definition has.

    cudafe++ adds the `inline` itself after it has read a definition.  With it in the declaration
    cudafe++ writes the same text for all candidates, which can be compiled in advance.
    """
    return f"  inline {found['declared']}" if found["name"] in methods else found.group()


def _operators(include: Path) -> dict[str, str]:
    found = {}
    for path in sorted((include / "ATen/ops").glob("*_ops.h")):
        for name in _STRUCT.findall(path.read_text(encoding="utf-8")):
            found[name] = path.name
    return found


def _functions(include: Path, light: Path) -> list[str]:
    """Write ATen/ops/X.h for each X without its heavy includes; return the names X."""
    names = []
    for path in sorted((include / "ATen/ops").glob("*.h")):
        if path.name.endswith(OPERATOR_HEADER_SUFFIXES):
            continue
        names.append(path.stem)
        text = path.read_text(encoding="utf-8")
        if "generated by torchgen" not in text:
            continue  # hand-written, like from_blob: torch's own header is used
        rest = _HEAVY_INCLUDE.sub("", text)
        wanted = "".join(f"#include <{header}>\n" for header in extra_includes(rest))
        write_file(
            light / "ATen/ops" / path.name,
            rest.replace(_TENSOR_INCLUDE, _TENSOR_INCLUDE + wanted, 1),
        )
    return names


def _factories(include: Path) -> dict[str, list[str]]:
    name = "torch/csrc/autograd/generated/variable_factories.h"
    text = (include / name).read_text(encoding="utf-8")
    first, last = find_between(text, "\nnamespace torch {", "\n} // namespace torch", name)
    found: dict[str, list[str]] = {}
    for match in _FACTORY.finditer(text, first, last + 1):
        body = match.group().replace(" autograd::make_variable(", " ::stark::make_variable(")
        found.setdefault(match.group(1), []).append(body)
    return found


def _named_by_added(include: Path, methods: frozenset[str]) -> dict[str, list[str]]:
    """Return the methods that the parts of torch whose headers may be added seem to call."""
    found = {}
    for header, patterns in ADDED_PARTS.items():
        files = [file for pattern in patterns for file in sorted(include.glob(pattern))]
        texts = [_COMMENT.sub(" ", file.read_text(encoding="utf-8")) for file in files]
        found[header] = sorted(methods.intersection(_CALLED.findall(" ".join(texts))))
    return found


def _device_guard(include: Path, light: Path) -> None:
    """Write DeviceGuard.h without the overload for lists, which needs every boxed type."""
    name = "ATen/DeviceGuard.h"
    text = (include / name).read_text(encoding="utf-8")
    overload = re.search(r"inline [^\n]*device_of\(ITensorListRef \w+\) \{\n.*?\n\}\n", text, re.S)
    if overload is None:
        raise UnexpectedTorchHeadersError(f"{name} has no device_of for lists")
    rest = text.replace(overload.group(), "").replace("#include <ATen/core/IListRef.h>\n", "")
    write_file(light / name, rest)


def _common_header(include: Path, light: Path, index: OperatorIndex) -> None:
    name = "torch/csrc/api/include/torch/types.h"
    text = (include / name).read_text(encoding="utf-8")
    first, last = find_between(text, "\nnamespace torch {", "\n} // namespace torch", name)
    types = text[first:last] + "\n} // namespace torch\n"
    bodies = [body for method in index.always_methods for body in index.methods[method]]
    files = sorted({index.operators[struct] for struct in operators_in(bodies)})
    factories = [body for name in index.always_functions for body in index.factories.get(name, [])]
    operators = [
        *(f"#include <ATen/ops/{file}>\n" for file in files),
        "namespace at {\n",
        *bodies,
        "} // namespace at\n",
        *(f"#include <ATen/ops/{function}.h>\n" for function in index.always_functions),
        "#include <ATen/TensorOperators.h>\n#include <ATen/Dispatch.h>\n",
        "namespace torch {\n",
        *factories,
        "} // namespace torch\n",
    ]
    template = (NATIVE / "light.h").read_text(encoding="utf-8")
    filled = re.sub(r"^//@ types:[^\n]*\n", lambda _: types, template, flags=re.MULTILINE)
    filled = re.sub(
        r"^//@ operators:[^\n]*\n", lambda _: "".join(operators), filled, flags=re.MULTILINE
    )
    write_file(light / "stark/common.h", filled)
    write_file(
        light / "stark/common_end.h", "#pragma once\nnamespace stark { enum { common_end }; }\n"
    )
    write_file(light / PREAMBLE_FILE, preamble_header(()))


def preamble_header(added: tuple[str, ...]) -> str:
    """Return the header of what many candidates have in common: the common part and `added`."""
    # The last include marks the end of the preamble in preprocessed text.
    names = ("stark/common.h", *added, "stark/common_end.h")
    # nvcc includes this header before its own one for CUDA sources.
    cuda = "#ifdef __CUDACC__\n#include <cuda_runtime.h>\n#endif\n"
    return f"#pragma once\n{cuda}" + "".join(f"#include <{name}>\n" for name in names)


def _umbrella_headers(light: Path) -> None:
    lead = f"#pragma once\n#include <{PREAMBLE_FILE}>\n#include <stark/candidate.h>\n"
    for name in UMBRELLAS:
        write_file(light / name, lead)
    binding = (
        "#if defined(STARK_TABLE)\n#include <stark/table.h>\n"
        "#elif defined(STARK_PYBIND)\n#include <stark/pybind.h>\n#endif\n"
    )
    for name in BINDING_UMBRELLAS:
        write_file(light / name, lead + binding)
    pybind = ("python_headers.h", "utils/pybind.h", "Exceptions.h")
    write_file(
        light / "stark/pybind.h",
        "#pragma once\n" + "".join(f"#include <torch/csrc/{header}>\n" for header in pybind),
    )
    write_file(
        light / AUTOGRAD,
        "#pragma once\n#include <ATen/Context.h>\n#if __has_include(<ATen/DeviceAccelerator.h>)\n"
        "#include <ATen/DeviceAccelerator.h>\n#endif\n"
        "#include <torch/csrc/autograd/custom_function.h>\n",
    )
    for name in ("table.h", "record.h"):
        write_file(light / "stark" / name, (NATIVE / name).read_text(encoding="utf-8"))
