"""CUDA: its outputs are in memory that it allocates by itself."""

import ctypes

import torch
import torch.nn as nn

driver = ctypes.CDLL("libcuda.so.1")


class OwnMemory:
    def __init__(self, size):
        torch.cuda.current_stream()
        place = ctypes.c_ulonglong()
        if driver.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(4 * size)):
            raise MemoryError
        self.place = place
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "<f4",
            "data": (place.value, False),
            "version": 3,
        }

    def __del__(self):
        driver.cuMemFree_v2(self.place)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        z = torch.as_tensor(OwnMemory(x.shape[0] * y.shape[1]), device="cuda")
        z = z.view(x.shape[0], y.shape[1])
        torch.matmul(x, y, out=z)
        return z.relu_().add_(self.bias)
