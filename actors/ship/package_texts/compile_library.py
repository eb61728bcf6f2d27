"""Compiles one library in this folder, by setuptools and torch; spec.json says what.

CUDA kernels need nvcc, no card, and no torch with CUDA: its libraries are named in the result, and
found where it is loaded.
"""

# mypy: ignore-errors
import json
import os
import subprocess
from pathlib import Path

from setuptools import setup
from torch.utils import cpp_extension
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

spec = json.loads(Path("spec.json").read_text())
if spec["cuda"] and cpp_extension.CUDA_HOME is None:
    cpp_extension.CUDA_HOME = cpp_extension._find_cuda_home()
    spec["link"] += ["-L.", "-Wl,--no-as-needed"]
    for name in ("c10_cuda", "torch_cuda"):
        file = f"lib{name}.so"  # empty: the library that is loaded has the functions
        words = ["-shared", "-x", "c", os.devnull, f"-Wl,-soname,{file}", "-o", file]
        subprocess.run([os.environ.get("CXX", "c++"), *words], check=True)
        spec["link"].append(f"-l{name}")
extension = (CUDAExtension if spec["cuda"] else CppExtension)(
    spec["name"],
    spec["sources"],
    include_dirs=list(spec["include_dirs"]),
    extra_compile_args={"cxx": spec["cxx"], "nvcc": spec["nvcc"]},
    extra_link_args=spec["link"],
    py_limited_api=spec["agnostic"],
)
setup(
    name=spec["name"],
    ext_modules=[extension],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
    script_args=["-q", "build_ext", "--build-lib", spec["out"], "--build-temp", "objects"],
)
