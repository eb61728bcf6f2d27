"""How many clusters of blocks run at once on a card: its driver knows where they fit.  Trusted.

A cluster's blocks run on the multiprocessors of one processing cluster of the card, of which some
have fewer than others.  So clusters of many blocks leave multiprocessors without a block.
"""

from __future__ import annotations

import ctypes
from typing import cast

import torch

SIZES = (2, 4, 8, 16)  # blocks; the last one is not portable
THREADS = 128  # of a block
SHARED_BYTES_LEFT = 1 << 10  # of a block's most: a block takes this much more than it asks for
# Numbers of the driver's interface.
MAX_DYNAMIC_SHARED, NON_PORTABLE_SIZE, CLUSTER_DIMENSION = 8, 14, 4
PTX = """
.version 7.8
.target sm_90
.address_size 64
.visible .entry nothing() { ret; }
"""


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute with the dimensions of a cluster."""

    _fields_ = (
        ("number", ctypes.c_uint),
        ("padding", ctypes.c_char * 4),
        ("blocks", ctypes.c_uint * 3),
        ("rest", ctypes.c_char * 52),
    )


class LaunchConfiguration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", ctypes.c_uint),
    )


def active_clusters() -> dict[int, int]:
    """Return, by the blocks of a cluster, how many run at once with a block a multiprocessor.

    Raises `RuntimeError` where the card, its driver or torch does not tell.
    """
    try:
        from torch.cuda._utils import _cuda_load_module

        loaded = _cuda_load_module(PTX, ["nothing"])
        driver = ctypes.CDLL("libcuda.so.1")
        query = driver.cuOccupancyMaxActiveClusters
    except (ImportError, OSError, AttributeError) as error:
        raise RuntimeError(f"clusters can't be asked for: {error}") from error
    function = cast("dict[str, object]", loaded)["nothing"].func  # type: ignore[attr-defined]
    card = torch.cuda.get_device_properties(0)
    shared_bytes = max(0, getattr(card, "shared_memory_per_block_optin", 0) - SHARED_BYTES_LEFT)
    for number, value in ((MAX_DYNAMIC_SHARED, shared_bytes), (NON_PORTABLE_SIZE, 1)):
        if driver.cuFuncSetAttribute(function, number, value):
            raise RuntimeError("the driver takes no attributes of clusters")
    found = {}
    for size in SIZES:
        count = ctypes.c_int()
        launch = configuration(size, size * card.multi_processor_count, shared_bytes)
        if query(ctypes.byref(count), function, ctypes.byref(launch)) == 0 and count.value > 0:
            found[size] = count.value
    return found


def configuration(size: int, blocks: int, shared_bytes: int) -> LaunchConfiguration:
    """Return a launch of `blocks` blocks in clusters of `size`."""
    attribute = LaunchAttribute(number=CLUSTER_DIMENSION, blocks=(size, 1, 1))
    return LaunchConfiguration(
        grid=(blocks, 1, 1),
        block=(THREADS, 1, 1),
        shared_bytes=shared_bytes,
        attributes=ctypes.pointer(attribute),
        count=1,
    )
