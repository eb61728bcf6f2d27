"""Compiles one library in this folder, by setuptools and torch; spec.json says what.

CUDA kernels need nvcc, no card, and no torch with CUDA: its libraries are named in the result, and
found where it is loaded.
"""

# mypy: ignore-errors
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from torch.utils import cpp_extension
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension


def toolkit():
    """Return the folder of the CUDA toolkit, as nvcc names it: what is on PATH may be a script."""
    try:
        done = subprocess.run(
            ["nvcc", "--dryrun", "-c", "x.cu"], capture_output=True, text=True, check=False
        )
    except OSError:
        sys.exit("error: nvcc is not on PATH, and CUDA_HOME is not set")
    found = re.search(r"TOP=(\S+)", done.stdout + done.stderr)
    return os.path.realpath(found[1]) if found else cpp_extension._find_cuda_home()


spec = json.loads(Path("spec.json").read_text())
if spec["cuda"] and cpp_extension.CUDA_HOME is None:
    cpp_extension.CUDA_HOME = os.environ.get("CUDA_HOME") or toolkit()
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
