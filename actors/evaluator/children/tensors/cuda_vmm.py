"""Device memory that two processes share: allocated in one, mapped in the other.

CUDA's virtual memory management exports an allocation as a file descriptor, which can cross between
processes of different namespaces (cudaIpc handles can't).  So inputs and outputs of hundreds of
megabytes stay on the card.  Called in children only, after torch has made the context current.  See
"Virtual Memory Management" in the CUDA driver API.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from functools import cache

import torch

PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class SharedDeviceMemoryError(RuntimeError):
    """The driver can't share device memory on this machine."""


class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class AllocationFlags(ctypes.Structure):
    _fields_ = (
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", AllocationFlags),
    )


class AccessDescriptor(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: object) -> None:
    number = getattr(_driver(), name)(*arguments)
    if number:
        raise SharedDeviceMemoryError(f"{name} failed with CUDA error {number}")


def _location() -> Location:
    return Location(DEVICE, torch.cuda.current_device())


def _properties() -> AllocationProperties:
    return AllocationProperties(type=PINNED, handles=DESCRIPTOR, location=_location())


@cache
def _granularity() -> int:
    size = ctypes.c_size_t()
    _call("cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(_properties()), 0)
    return size.value


def _rounded(size: int) -> int:
    step = _granularity()
    return max(1, -(-size // step)) * step


def allocate(size: int) -> int:
    """Return the descriptor of `size` fresh bytes (at least) of device memory."""
    torch.cuda.current_stream()  # makes the context current
    descriptor = ctypes.c_int()
    try:
        handle = _created(size)
    except SharedDeviceMemoryError:
        torch.cuda.empty_cache()  # torch frees what it keeps for its own allocations only
        handle = _created(size)
    try:
        _call(
            "cuMemExportToShareableHandle",
            ctypes.byref(descriptor),
            handle,
            DESCRIPTOR,
            ctypes.c_ulonglong(0),
        )
    finally:
        # The descriptor keeps the memory alive, and each mapping does.
        _call("cuMemRelease", handle)
    os.set_inheritable(descriptor.value, False)
    return descriptor.value


def _created(size: int) -> ctypes.c_ulonglong:
    """Return the handle of fresh memory."""
    handle = ctypes.c_ulonglong()
    _call(
        "cuMemCreate",
        ctypes.byref(handle),
        ctypes.c_size_t(_rounded(size)),
        ctypes.byref(_properties()),
        ctypes.c_ulonglong(0),
    )
    return handle


def allocate_private(size: int) -> int | None:
    """Return the address of `size` bytes that only this process can use; None: there are none."""
    address = ctypes.c_ulonglong()
    if _driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)):
        return None
    return address.value


def free_private(address: int) -> None:
    """Free what `allocate_private` returned."""
    _driver().cuMemFree_v2(ctypes.c_ulonglong(address))


def private_functions() -> tuple[int | None, int | None]:
    """Return the addresses of the driver's functions that allocate and free such memory."""
    found = (_driver().cuMemAlloc_v2, _driver().cuMemFree_v2)
    allocate, free = (ctypes.cast(each, ctypes.c_void_p).value for each in found)
    return allocate, free


def synchronize() -> None:
    """Wait for all work of this process; unlike torch's function, a candidate can't replace it."""
    torch.cuda.current_stream()
    _call("cuCtxSynchronize")


def reset_persisting_l2() -> None:
    """Reset the lines of the L2 cache that were made persistent."""
    # An error only means that the card has no persisting cache.
    getattr(_driver(), "cuCtxResetPersistingL2Cache", int)()


def is_device_memory(descriptor: int) -> bool:
    """Whether a descriptor is device memory; descriptors of host memory are sealable files."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        return True
    return False


class Mapping:
    """The bytes of shared device memory as a tensor, until `close`."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._size = ctypes.c_size_t(_rounded(size))
        self._address = ctypes.c_ulonglong()
        handle = ctypes.c_ulonglong()
        _call(
            "cuMemImportFromShareableHandle",
            ctypes.byref(handle),
            ctypes.c_void_p(descriptor),
            DESCRIPTOR,
        )
        try:
            _call(
                "cuMemAddressReserve",
                ctypes.byref(self._address),
                self._size,
                ctypes.c_size_t(0),
                ctypes.c_ulonglong(0),
                ctypes.c_ulonglong(0),
            )
            nothing = ctypes.c_size_t(0)
            _call("cuMemMap", self._address, self._size, nothing, handle, ctypes.c_ulonglong(0))
        finally:
            _call("cuMemRelease", handle)
        access = AccessDescriptor(_location(), READ_WRITE)
        _call("cuMemSetAccess", self._address, self._size, ctypes.byref(access), ctypes.c_size_t(1))
        self.bytes = self.bytes_at(0, size)

    def bytes_at(self, begin: int, size: int) -> torch.Tensor:
        """Return some of the bytes as a tensor with a storage of its own."""
        return torch.as_tensor(_Pointer(self._address.value + begin, size), device="cuda")

    def close(self) -> None:
        """Unmap the memory after all pending reads and writes."""
        synchronize()
        del self.bytes
        _call("cuMemUnmap", self._address, self._size)
        _call("cuMemAddressFree", self._address, self._size)


class _Pointer:
    """An address in the form in which torch accepts an array on the card."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
