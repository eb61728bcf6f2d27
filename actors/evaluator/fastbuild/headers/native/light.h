// The part of torch that every candidate gets.  The generator fills in the marked lines.
#pragma once
#define AT_PER_OPERATOR_HEADERS
#include <ATen/core/Tensor.h>
#include <ATen/Device.h>
#include <ATen/DeviceGuard.h>
#include <ATen/DimVector.h>
#include <ATen/TracerMode.h>
#include <ATen/core/ATenGeneral.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Scalar.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#include <c10/util/irange.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
//@ types: the namespace part of torch/types.h

namespace stark {
// torch::autograd::make_variable, which factories call, without the graph's types.
inline at::Tensor make_variable(
    at::Tensor data,
    bool requires_grad = false,
    bool allow_tensor_metadata_change = true) {
  if (!data.defined()) {
    return at::Tensor();
  }
  c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> body = data.getIntrusivePtr();
  const bool is_sole_owner = data.use_count() == 2 && body->unique_version();
  if (!is_sole_owner) {
    body = body->shallow_copy_and_detach(c10::VariableVersion(0), allow_tensor_metadata_change);
  }
  body->set_allow_tensor_metadata_change(allow_tensor_metadata_change);
  body->set_autograd_meta(nullptr);
  if (requires_grad) {
    body->set_requires_grad(true);
  }
  return at::Tensor(std::move(body));
}
} // namespace stark

namespace torch {
namespace autograd {
using Variable = at::Tensor;
} // namespace autograd

using AutoGradMode = at::AutoGradMode;
using InferenceMode = c10::InferenceMode;
using NoGradGuard = at::NoGradGuard;
using Deleter = std::function<void(void*)>;
using at::MemoryFormat;
} // namespace torch

//@ operators: declarations and definitions that operators on tensors need
