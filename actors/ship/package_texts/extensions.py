"""The libraries of the kernels: prebuilt in this package, from the cache, or compiled now.

`load_inline` stands in for torch's function of this name in the modules `kernels`.  A library is
looked for in the folder `native` of this package, then in the cache, $STARK_KERNEL_CACHE or
~/.cache/stark-kernels/packages.  Else a compiler makes it, for the cache.
"""

# mypy: ignore-errors
from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

import torch

NATIVE = Path(__file__).with_name("native")
INDEX = "index.json"  # digest -> record of a prebuilt library
OPTIONS = {  # of torch's load_inline, with their defaults
    "functions": None,
    "extra_cflags": None,
    "extra_cuda_cflags": None,
    "extra_ldflags": None,
    "extra_include_paths": None,
    "with_cuda": None,
    "is_python_module": True,
    "with_pytorch_error_handling": True,
    "no_implicit_headers": False,
}
IGNORED = ("build_directory", "verbose", "keep_intermediates", "use_pch")
ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"
requests = {}  # digest -> (what was asked for, how it was answered)


def load_inline(name, cpp_sources, cuda_sources=None, **options):
    """Return the library of these sources, as torch's `load_inline` does."""
    asked = {"name": name, "cpp_sources": _texts(cpp_sources), "cuda_sources": _texts(cuda_sources)}
    unknown = set(options) - set(OPTIONS) - set(IGNORED)
    if unknown:
        raise TypeError(f"load_inline() got an unexpected keyword argument {min(unknown)!r}")
    asked.update({key: options.get(key, value) for key, value in OPTIONS.items()})
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[
        :16
    ]
    library, how = _prebuilt(digest)
    requests[digest] = (asked, f"not compiled; {how}")
    if library is None:
        library, how = _made_here(asked, digest, how)
    requests[digest] = (asked, how)
    return library


def __getattr__(name):
    """Everything else of torch.utils.cpp_extension."""
    from torch.utils import cpp_extension

    return getattr(cpp_extension, name)


def _texts(sources):
    return [sources] if isinstance(sources, str) else list(sources or [])


# --- prebuilt ---


def _prebuilt(digest):
    """Return a library of this package, or None and why there is none."""
    try:
        record = json.loads((NATIVE / INDEX).read_text())["libraries"][digest]
    except (OSError, KeyError):
        return None, "this package has no prebuilt library of it"
    if record["kind"] == "hub":
        return _HubFunctions(record["functions"]), "built by kernel-builder"
    reason = unusable(record)
    if reason:
        return None, reason
    try:
        return _loaded(str(NATIVE / record["file"]), record), "prebuilt"
    except (OSError, ImportError) as error:  # such as a CUDA runtime of another release
        return None, f"it can't be loaded: {' '.join(str(error).split())[:200]}"


def _loaded(path, record):
    """Load a prebuilt library; return what Python calls."""
    if record["kind"] == "path":
        torch.ops.load_library(path)
        return path
    return _imported(path) if record["kind"] == "python" else _Functions(path, record)


def unusable(record):
    """Return why a prebuilt library can't run here, or ""."""
    if record["machine"] != platform.machine():
        return f"it was built for {record['machine']}"
    if record["torch"] and record["torch"] != _torch_release():
        return f"it was built for torch {record['torch']}"
    if record["python"] and record["python"] != sys.implementation.cache_tag:
        return f"it was built for {record['python']}"
    missing = [flag for flag in record["cpu"] if flag not in cpu_flags()]
    if missing:
        return f"this processor lacks {missing[0]}"
    if record["capabilities"]:
        held = torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)
        if list(held) not in record["capabilities"]:
            return f"it was not built for compute capability {held[0]}.{held[1]}"
    return ""


def _torch_release():
    return ".".join(torch.__version__.split(".")[:2])


def cpu_flags():
    """Return the names of this processor's features, as Linux spells them."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


class _Functions:
    """The functions of a library that registers them as operators."""

    def __init__(self, path, record):
        space = record["namespace"]
        if not hasattr(getattr(torch.ops, space), record["functions"][0]):
            torch.ops.load_library(path)
        for name in record["functions"]:
            setattr(self, name, getattr(getattr(torch.ops, space), name).default)


class _HubFunctions:
    """The functions of a library that kernel-builder has built into this package."""

    def __init__(self, functions):
        from ._ops import ops

        for name, operator in functions.items():
            setattr(self, name, getattr(ops, operator).default)


def _imported(path):
    """Import an extension module from its file."""
    name = Path(path).name.split(".")[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- compiled here ---


def cache_folder():
    """Return the folder of the libraries that were compiled on this machine."""
    given = os.environ.get("STARK_KERNEL_CACHE")
    if given:
        return Path(given)
    root = os.environ.get("XDG_CACHE_HOME")
    if not root:
        try:
            root = Path.home() / ".cache"
        except RuntimeError as error:  # a container's user may have none
            raise RuntimeError("there is no home folder: set STARK_KERNEL_CACHE") from error
    return Path(root) / "stark-kernels" / "packages"


def _build_folder(root):
    """Return a new folder for a build; raise RuntimeError with what to set where there is none."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Path(tempfile.mkdtemp(prefix=".build-", dir=root))
    except OSError as error:
        raise RuntimeError(
            f"{root} can't be written ({error.strerror}): set STARK_KERNEL_CACHE to a folder"
            " that can be"
        ) from error


def _made_here(asked, digest, reason):
    """Return a library from the cache or the compiler; `reason`: why there is no prebuilt one."""
    try:
        return _from_cache(asked, digest)
    except Exception as error:
        raise RuntimeError(f"{error}; {reason}") from error


def _from_cache(asked, digest):
    """Return a library from the cache; compile it first where it is not there."""
    key = f"{digest}-{_environment_digest(asked)}"
    root = cache_folder()
    kept = root / key
    name = f"{asked['name']}_{digest[:8]}"
    path = kept / f"{name}.so"
    if not path.is_file():
        _require_compilers(asked)
        folder = _build_folder(root)
        try:
            _compile(asked, name, folder)
            (folder / "lock").unlink(missing_ok=True)
            try:
                folder.rename(kept)  # whole or not at all; two builds at once do no harm
            except OSError:
                if not path.is_file():
                    raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        how = "compiled now"
    else:
        how = "from the cache"
    if asked["is_python_module"]:
        return _imported(str(path)), how
    torch.ops.load_library(str(path))
    return str(path), how


def _require_compilers(asked):
    from torch.utils import cpp_extension

    if not shutil.which(os.environ.get("CXX", "c++")) and not shutil.which("g++"):
        raise RuntimeError("no C++ compiler was found")
    if asked["cuda_sources"] and not _has_nvcc(cpp_extension.CUDA_HOME):
        raise RuntimeError("no CUDA compiler (nvcc) was found")


def _compile(asked, name, folder):
    from torch.utils import cpp_extension

    options = {key: asked[key] for key in OPTIONS}
    # torch loads libraries into one scope: two versions have functions of the same names.
    options["extra_ldflags"] = ["-Wl,-Bsymbolic", *(asked["extra_ldflags"] or [])]
    with _own_architecture(asked):
        cpp_extension.load_inline(
            name=name,
            cpp_sources=list(asked["cpp_sources"]),
            cuda_sources=list(asked["cuda_sources"]),
            build_directory=str(folder),
            **options,
        )


@contextlib.contextmanager
def _own_architecture(asked):
    """Have torch compile for this card with its own features, unless the environment says else."""
    if not asked["cuda_sources"] or ARCHITECTURES in os.environ or not torch.cuda.is_available():
        yield
        return
    major, minor = torch.cuda.get_device_capability()
    # From Hopper on, "a" permits instructions of this architecture alone, such as wgmma.
    os.environ[ARCHITECTURES] = f"{major}.{minor}{'a' if major >= 9 else ''}"
    try:
        yield
    finally:
        os.environ.pop(ARCHITECTURES, None)


def _has_nvcc(home):
    return bool(shutil.which("nvcc") or (home and (Path(home) / "bin" / "nvcc").is_file()))


def _environment_digest(asked):
    """Return a digest of what a compiled library depends on, besides its sources."""
    parts = [torch.__version__, sys.implementation.cache_tag, platform.machine()]
    if "-march=native" in (asked["extra_cflags"] or []):
        parts.append(" ".join(sorted(cpu_flags())))
    if asked["cuda_sources"] and torch.cuda.is_available():
        parts.append(str(torch.cuda.get_device_capability()))
    if asked["cuda_sources"] and ARCHITECTURES in os.environ:
        parts.append(os.environ[ARCHITECTURES])
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]
