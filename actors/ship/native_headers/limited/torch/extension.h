// torch/extension.h without Python: a library that is compiled with it serves any Python.
#pragma once
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>
