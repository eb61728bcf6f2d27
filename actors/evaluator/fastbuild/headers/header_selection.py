"""The part of torch's headers that one candidate gets: the part that its identifiers name.

An identifier that names a method, a function or a factory brings every overload of it, so that
overload resolution has the same choice as with torch's own headers.
"""

from __future__ import annotations

from actors.evaluator.fastbuild.headers.header_tree import (
    OperatorIndex,
    extra_includes,
    operators_in,
)
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource

_COMPARISONS = ("EQ", "NE", "LE", "LT", "GE", "GT")
# Headers that torch's umbrella includes and few candidates need, with what they declare.
TORCH_HEADERS: tuple[tuple[str, frozenset[str]], ...] = (
    ("ATen/Dispatch_v2.h", frozenset(["AT_DISPATCH_V2", "AT_WRAP", "AT_EXPAND"])),
    (
        "ATen/Parallel.h",
        frozenset(
            [
                "parallel_for",
                "parallel_reduce",
                "get_num_threads",
                "set_num_threads",
                "get_thread_num",
                "in_parallel_region",
                "divup",
                "internal",
                "intraop_launch",
                "launch",
            ]
        ),
    ),
    (
        "ATen/TensorIndexing.h",
        frozenset(["indexing", "Slice", "TensorIndex", "Ellipsis", "index", "index_put_"]),
    ),
    ("ATen/Context.h", frozenset(["globalContext", "manual_seed", "hasCUDA", "hasMKL"])),
    (
        "ATen/Formatting.h",
        frozenset(
            [
                "cout",
                "cerr",
                "clog",
                "ostringstream",
                "stringstream",
                "print",
                "ostream",
                "ofstream",
                "toString",
                # Their messages may hold whole tensors.
                "TORCH_CHECK",
                "TORCH_CHECK_INDEX",
                "TORCH_CHECK_NOT_IMPLEMENTED",
                "TORCH_CHECK_TYPE",
                "TORCH_CHECK_VALUE",
                "TORCH_INTERNAL_ASSERT",
                "TORCH_WARN",
                "TORCH_WARN_ONCE",
            ]
        ),
    ),
    ("torch/version.h", frozenset(["TORCH_VERSION", "TORCH_VERSION_MAJOR", "TORCH_VERSION_MINOR"])),
    (
        "ATen/TensorIterator.h",
        frozenset(
            ["GRAIN_SIZE", "TensorIterator", "TensorIteratorBase", "TensorIteratorConfig"],
        ),
    ),
    (
        "ATen/TensorUtils.h",
        frozenset(["TensorArg", "TensorGeometryArg", "CheckedFrom", "checkAllSameGPU"]),
    ),
    ("ATen/WrapDimUtils.h", frozenset(["maybe_wrap_dim", "maybe_wrap_dims"])),
    (
        "ATen/CPUGeneratorImpl.h",
        frozenset(["CPUGeneratorImpl", "createCPUGenerator", "getDefaultCPUGenerator"]),
    ),
    ("ATen/record_function.h", frozenset(["RECORD_FUNCTION", "RecordFunction"])),
    ("c10/util/FunctionRef.h", frozenset(["function_ref"])),
    ("ATen/ScalarOps.h", frozenset(["scalar_to_tensor", "wrapped_scalar_tensor"])),
    (
        "ATen/ExpandUtils.h",
        frozenset(["infer_size", "infer_size_dimvector", "expand_outplace", "expand_inplace"]),
    ),
    ("ATen/TensorGeometry.h", frozenset(["TensorGeometry"])),
    ("ATen/core/Generator.h", frozenset(["Generator", "check_generator"])),
    ("ATen/core/List.h", frozenset(["List"])),
    ("ATen/core/Dict.h", frozenset(["Dict"])),
    ("ATen/core/ivalue.h", frozenset(["IValue"])),
    ("ATen/core/IListRef.h", frozenset(["ITensorListRef", "IListRef", "IOptTensorListRef"])),
    ("ATen/AccumulateType.h", frozenset(["acc_type", "acc_type_device"])),
    ("ATen/OpMathType.h", frozenset(["opmath_type", "OpMathType"])),
    (
        "c10/util/Logging.h",
        frozenset(
            [
                *(
                    f"{check}_{which}"
                    for check in ("CHECK", "CAFFE_ENFORCE", "TORCH_CHECK", "TORCH_DCHECK")
                    for which in (*_COMPARISONS, "NOTNULL", "THAT", "OP")
                ),
                "C10_LOG_API_USAGE_ONCE",
                "C10_LOG_EVERY_N",
                "C10_LOG_FIRST_N",
                "CAFFE_ENFORCE",
                "CAFFE_THROW",
                "CHECK",
                "DCHECK",
                "DLOG",
                "LOG",
                "LOG_IF",
                "VLOG",
                "VLOG_IF",
            ]
        ),
    ),
    ("c10/util/StringUtil.h", frozenset(["str", "Join"])),
    (
        "torch/cuda.h",
        frozenset(["synchronize", "device_count", "is_available", "manual_seed_all"]),
    ),
    ("c10/core/StreamGuard.h", frozenset(["StreamGuard", "OptionalStreamGuard"])),
    ("c10/util/complex.h", frozenset(["complex"])),
    ("c10/util/BFloat16.h", frozenset(["BFloat16", "kBFloat16"])),
    ("c10/util/Half.h", frozenset(["Half", "kHalf"])),
)
# Standard headers that torch's umbrella includes and the common part does not, by identifier.
STANDARD_HEADERS: dict[str, str] = {
    "FLT_MAX": "cfloat",
    "FLT_MIN": "cfloat",
    "FLT_EPSILON": "cfloat",
    "DBL_MAX": "cfloat",
    "DBL_EPSILON": "cfloat",
    "INT_MAX": "climits",
    "INT_MIN": "climits",
    "UINT_MAX": "climits",
    "LLONG_MAX": "climits",
    "any": "any",
    "any_cast": "any",
    "assert": "cassert",
    "async": "future",
    "atomic": "atomic",
    "bitset": "bitset",
    "bit_cast": "bit",
    "chrono": "chrono",
    "complex": "complex",
    "condition_variable": "condition_variable",
    "deque": "deque",
    "exit": "cstdlib",
    "filesystem": "filesystem",
    "forward_list": "forward_list",
    "fprintf": "cstdio",
    "free": "cstdlib",
    "future": "future",
    "getenv": "cstdlib",
    "hash": "functional",
    "ifstream": "fstream",
    "list": "list",
    "locale": "locale",
    "malloc": "cstdlib",
    "memory_resource": "memory_resource",
    "mt19937": "random",
    "mt19937_64": "random",
    "multiset": "set",
    "normal_distribution": "random",
    "ofstream": "fstream",
    "printf": "cstdio",
    "priority_queue": "queue",
    "promise": "future",
    "queue": "queue",
    "random_device": "random",
    "ratio": "ratio",
    "regex": "regex",
    "set": "set",
    "setprecision": "iomanip",
    "setw": "iomanip",
    "setfill": "iomanip",
    "shared_mutex": "shared_mutex",
    "shared_lock": "shared_mutex",
    "signal": "csignal",
    "snprintf": "cstdio",
    "span": "span",
    "stack": "stack",
    "string_view": "string_view",
    "thread": "thread",
    "time": "ctime",
    "typeindex": "typeindex",
    "type_index": "typeindex",
    "uniform_int_distribution": "random",
    "uniform_real_distribution": "random",
    "unordered_set": "unordered_set",
    "valarray": "valarray",
    "variant": "variant",
    "visit": "variant",
}
THREAD_NAMES = frozenset(
    [
        "get_num_threads",
        "set_num_threads",
        "init_num_threads",
        "get_num_interop_threads",
        "set_num_interop_threads",
    ]
)


def candidate_header(
    source: CandidateSource,
    index: OperatorIndex,
    added: tuple[str, ...] = (),
    defines: str = "",
) -> str:
    """Return the text of stark/candidate.h for `source`, with `added` headers and `defines`."""
    named = source.identifiers.union(*(index.named_by_added.get(header, ()) for header in added))
    methods = sorted((named & index.methods.keys()) - set(index.always_methods))
    bodies = [body for name in methods for body in index.methods[name]]
    factories = [
        body
        for name in sorted((named & index.factories.keys()) - set(index.always_functions))
        for body in index.factories[name]
    ]
    functions = sorted((named & index.function_names) - set(index.always_functions))
    headers = [
        *(sorted({f"ATen/ops/{index.operators[name]}" for name in operators_in(bodies)})),
        *extra_includes("".join(bodies)),
        *extra_includes("".join(factories)),
        *(name for name, identifiers in TORCH_HEADERS if named & identifiers),
        *sorted({STANDARD_HEADERS[name] for name in named & STANDARD_HEADERS.keys()}),
    ]
    lines = [f"#pragma once\n{defines}#include <stark/common.h>\n"]
    lines += [f"#include <{name}>\n" for name in dict.fromkeys((*added, *headers))]
    lines += ["namespace at {\n", *bodies, "} // namespace at\n"]
    lines += [f"#include <ATen/ops/{name}.h>\n" for name in functions]
    lines += ["namespace torch {\n", *factories, *_at_names(named), "} // namespace torch\n"]
    return "".join(lines)


def _at_names(named: frozenset[str]) -> list[str]:
    """Return the using-declarations by which torch/utils.h puts names of at:: into torch::."""
    declarations = [f"using at::{name};\n" for name in sorted(named & THREAD_NAMES)]
    if "manual_seed" in named:
        declarations.append("using at::manual_seed;\n")
    return declarations
