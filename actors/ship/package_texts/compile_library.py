"""Compiles one library in this folder, by setuptools and torch; spec.json says what."""

# mypy: ignore-errors
import json
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

spec = json.loads(Path("spec.json").read_text())
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
