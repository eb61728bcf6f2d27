"""`load` with a header of its own, beside the sources and in an include folder."""

import tempfile
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

folder = Path(tempfile.mkdtemp())
(folder / "include").mkdir()
(folder / "kernel.h").write_text(
    "#pragma once\n#include <torch/extension.h>\n#include <scale.h>\n"
    "torch::Tensor cubed(torch::Tensor x);\n"
)
(folder / "include/scale.h").write_text("#pragma once\n#define SCALE 2\n")
(folder / "kernel.cpp").write_text(
    '#include "kernel.h"\ntorch::Tensor cubed(torch::Tensor x) { return x * x * x * SCALE; }\n'
)
(folder / "bind.cpp").write_text(
    '#include "kernel.h"\n'
    'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("cubed", &cubed, "2 * x^3"); }\n'
)
module = load(
    name="cpu_load_header",
    sources=[str(folder / "kernel.cpp"), str(folder / "bind.cpp")],
    extra_include_paths=[str(folder / "include")],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    made = [module.cubed(x)]
    torch.testing.assert_close(made, [x * x * x * 2])
    return made
