"""`load` with two files of its own."""

import tempfile
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

folder = Path(tempfile.mkdtemp())
(folder / "kernel.cpp").write_text(
    "#include <vector>\n#include <torch/extension.h>\n"
    "torch::Tensor cubed(torch::Tensor x) { return x * x * x; }\n"
)
(folder / "bind.cpp").write_text(
    "#include <torch/extension.h>\n"
    "torch::Tensor cubed(torch::Tensor x);\n"
    'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("cubed", &cubed, "x^3"); }\n'
)
module = load(name="cpu_load_files", sources=[str(folder / "kernel.cpp"), str(folder / "bind.cpp")])


def results():
    torch.manual_seed(0)
    return [module.cubed(torch.randn(17, 33))]
