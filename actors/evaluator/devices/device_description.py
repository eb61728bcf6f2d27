"""Describes the device of a measurement: times of different fingerprints are never compared.

`cpu_device` needs no torch and may be called anywhere.  `cuda_device` initialises CUDA, so it is
called in a child only.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from actors.cuda_devices import named_devices
from actors.evaluator.devices import roofline
from protocol.values import TRITON_FACT, Device, DeviceKind

# The vector width in bits that a processor's flag means, the widest first.
VECTOR_WIDTHS = (("avx512f", 512), ("avx2", 256), ("avx", 256), ("asimd", 128), ("sse2", 128))
VECTOR_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "asimd", "sve")
UNKNOWN = "unknown"
DRIVER_VERSION = Path("/proc/driver/nvidia/version")
MIG_NAME = " MIG "  # in the name of a part of a card: "NVIDIA H200 MIG 1g.18gb"
GPU_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")


def default_kind() -> DeviceKind:
    """Return "cuda" where this machine has a card that is not hidden, else "cpu"."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not named_devices(visible):
        return "cpu"
    return "cuda" if any(Path(node).exists() for node in GPU_NODES) else "cpu"


def cpu_device() -> Device:
    """Return this machine's processor as a device."""
    fields = _cpuinfo()
    model = fields.get("model name") or fields.get("CPU part") or platform.machine()
    cores = len(os.sched_getaffinity(0))
    name = f"{model}, {cores} cores{_fewer_threads(cores)}"
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    facts = {
        "processor": model,
        "cores": str(cores),
        "vector": _vector(flags),
        "caches": _caches(),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "torch": _torch_version(),
    }
    return Device(
        kind="cpu", name=name, fingerprint=f"{name}; torch {_torch_version()}", facts=facts
    )


def _fewer_threads(cores: int) -> str:
    """Return ", 1 thread" where the environment gives a call fewer threads than there are cores."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(text) if text.isdecimal() and len(text) < 5 else cores
    return "" if not 0 < threads < cores else f", {threads} thread{'s' if threads > 1 else ''}"


def _vector(flags: set[str]) -> str:
    """Return the width of vectors and the extensions that a kernel may use."""
    named = " ".join(flag for flag in VECTOR_FLAGS if flag in flags)
    width = next((f"{bits} bits" for flag, bits in VECTOR_WIDTHS if flag in flags), "")
    return ", ".join(filter(None, (width, named))) or "unknown"


def cuda_device() -> Device:
    """Return the current CUDA card as a device; initialises CUDA."""
    import torch

    card = torch.cuda.get_device_properties(0)
    capability = f"{card.major}.{card.minor}"
    facts = {
        "card": card.name,
        "compute capability": capability,
        "multiprocessors": str(card.multi_processor_count),
        "memory": f"{card.total_memory / 2**30:.0f} GiB",
        **_memory(card),
        **_peak(card),
        "L2 cache": f"{getattr(card, 'L2_cache_size', 0) / 2**20:.0f} MiB",
        **_multiprocessor(card),
        "torch": _torch_version(),
        "CUDA": str(torch.version.cuda),
        **({} if (triton := _version("triton")) == UNKNOWN else {TRITON_FACT: triton}),
        "driver": _driver(),
    }
    fingerprint = f"{card.name}; driver {_driver()}; torch {_torch_version()}"
    return Device(
        kind="cuda",
        name=card.name,
        fingerprint=f"{fingerprint}; CUDA {torch.version.cuda}",
        facts=facts,
    )


def _memory(card: object) -> dict[str, str]:
    """Return the driver's figures of the memory's speed; an older torch does not read them."""
    clock_khz = getattr(card, "memory_clock_rate", 0)
    bus_bits = getattr(card, "memory_bus_width", 0)
    if not (clock_khz and bus_bits):
        return {}
    return {"memory clock": f"{clock_khz / 1000:.0f} MHz", "memory bus": f"{bus_bits} bits"}


def _peak(card: object) -> dict[str, str]:
    """Return the maker's peak of the memory and of the units, from the driver or the table.

    Those of a whole card say nothing about a part of it.  What the device really does is measured
    (`DeviceRates`).
    """
    if MIG_NAME in str(getattr(card, "name", "")):
        return {}
    peak = roofline.gpu_peak(
        str(getattr(card, "name", "")),
        clock_khz=getattr(card, "memory_clock_rate", 0),
        bus_bits=getattr(card, "memory_bus_width", 0),
    )
    figures = {
        "memory bandwidth": (peak.gb_s, "GB/s"),
        "float32": (peak.tflops, "TFLOP/s"),
        "tensor cores, half precision": (peak.tensor_tflops, "TFLOP/s"),
    }
    return {
        f"{name}, by its maker": f"{most:.4g} {unit}"
        for name, (most, unit) in figures.items()
        if most
    }


def _multiprocessor(card: object) -> dict[str, str]:
    """Return the resources that blocks on one multiprocessor share; an older torch reads fewer."""
    fields = {
        "shared memory a block": ("shared_memory_per_block_optin", 1024, " KiB"),
        "shared memory a block without opting in": ("shared_memory_per_block", 1024, " KiB"),
        "shared memory a multiprocessor": ("shared_memory_per_multiprocessor", 1024, " KiB"),
        "registers a multiprocessor": ("regs_per_multiprocessor", 1, ""),
        "threads a multiprocessor": ("max_threads_per_multi_processor", 1, ""),
        "threads a warp": ("warp_size", 1, ""),
        "clock": ("clock_rate", 1000, " MHz"),
    }
    return {
        name: f"{getattr(card, field) // unit}{suffix}"
        for name, (field, unit, suffix) in fields.items()
        if getattr(card, field, 0)
    }


def uuid_of_cuda() -> str:
    """Return the UUID of the current card; "" where torch does not have it."""
    import torch

    return str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))


def arch_list(device: Device) -> str:
    """Return TORCH_CUDA_ARCH_LIST for `device`: its own architecture, with its own features."""
    capability = device.facts.get("compute capability", "")
    # From Hopper on, "a" permits instructions of this architecture only (wgmma, TMA variants).
    return f"{capability}a" if capability and float(capability) >= 9.0 else capability


def _cpuinfo() -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        key, separator, value = line.partition(":")
        if separator:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _caches() -> str:
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, size = (
                (index / name).read_text().strip() for name in ("type", "level", "size")
            )
        except OSError:
            continue
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found) or "unknown"


def last_cache_bytes(kind: DeviceKind) -> int:
    """Return the size of the last cache of this process's device; 0 where it is not known."""
    if kind == "cuda":
        import torch

        return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0))
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError):
            text = file.read_text(encoding="ascii").strip()
            unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
            sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes, default=0)


def _driver() -> str:
    try:
        first = DRIVER_VERSION.read_text().splitlines()[0]
    except (OSError, IndexError):
        return _driver_by_nvml()
    return next((word for word in first.split() if word.count(".") >= 1 and word[0].isdigit()), "?")


def _driver_by_nvml() -> str:
    """Return the driver's version where the kernel has no file of it, as under WSL2."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return UNKNOWN


def _torch_version() -> str:
    return _version("torch")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return UNKNOWN
