// The common part of torch's C++ API over libtorch's stable ABI.
//
// A source that uses only this part compiles to a library for every torch from 2.10 on.  What is not
// here is a compile error, and the source is then built against the torch that is installed.
#pragma once
#define TORCH_TARGET_VERSION 0x020a000000000000ULL
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>
#ifdef __CUDACC__
#include <cuda_runtime.h>
#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#endif
#endif
#ifndef STABLE_TORCH_ERROR_CODE_CHECK  // torch 2.13 has it
#define STABLE_TORCH_ERROR_CODE_CHECK TORCH_ERROR_CODE_CHECK
#endif

#pragma GCC visibility push(hidden)
namespace torch {

using torch::headeronly::ScalarType;
using IntArrayRef = std::vector<int64_t>;
using DeviceType = torch::headeronly::DeviceType;
constexpr ScalarType kFloat = ScalarType::Float, kFloat32 = ScalarType::Float;
constexpr ScalarType kDouble = ScalarType::Double, kFloat64 = ScalarType::Double;
constexpr ScalarType kHalf = ScalarType::Half, kFloat16 = ScalarType::Half;
constexpr ScalarType kBFloat16 = ScalarType::BFloat16;
constexpr ScalarType kInt = ScalarType::Int, kInt32 = ScalarType::Int;
constexpr ScalarType kLong = ScalarType::Long, kInt64 = ScalarType::Long;
constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = ScalarType::Byte;
constexpr ScalarType kChar = ScalarType::Char, kInt8 = ScalarType::Char;
constexpr ScalarType kShort = ScalarType::Short, kInt16 = ScalarType::Short;
constexpr ScalarType kBool = ScalarType::Bool;
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;

struct Device {
  torch::stable::Device held;
  Device(torch::stable::Device device) : held(device) {}
  Device(DeviceType type, int index = -1) : held(type, index) {}
  bool is_cpu() const { return held.type() == DeviceType::CPU; }
  bool is_cuda() const { return held.type() == DeviceType::CUDA; }
  DeviceType type() const { return held.type(); }
  int index() const { return held.index(); }
  bool operator==(const Device& other) const {
    return type() == other.type() && index() == other.index();
  }
  bool operator!=(const Device& other) const { return !(*this == other); }
};

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType dtype) : dtype_(dtype) {}
  TensorOptions(Device device) : device_(device.held) {}
  TensorOptions dtype(ScalarType dtype) const {
    TensorOptions made = *this;
    made.dtype_ = dtype;
    return made;
  }
  TensorOptions device(Device device) const {
    TensorOptions made = *this;
    made.device_ = device.held;
    return made;
  }
  TensorOptions requires_grad(bool) const { return *this; }
  std::optional<ScalarType> dtype_;
  std::optional<torch::stable::Device> device_;
};
inline TensorOptions dtype(ScalarType value) { return TensorOptions(value); }
inline TensorOptions device(Device value) { return TensorOptions(value); }

class Tensor {
 public:
  Tensor() = default;
  Tensor(torch::stable::Tensor tensor) : held_(std::move(tensor)), defined_(true) {}
  const torch::stable::Tensor& held() const { return held_; }

  bool defined() const { return defined_; }
  int64_t dim() const { return held_.dim(); }
  int64_t ndimension() const { return held_.dim(); }
  int64_t numel() const { return held_.numel(); }
  int64_t size(int64_t d) const { return held_.size(d < 0 ? d + dim() : d); }
  int64_t stride(int64_t d) const { return held_.stride(d < 0 ? d + dim() : d); }
  IntArrayRef sizes() const { return IntArrayRef(held_.sizes().begin(), held_.sizes().end()); }
  IntArrayRef strides() const {
    return IntArrayRef(held_.strides().begin(), held_.strides().end());
  }
  bool is_contiguous() const { return held_.is_contiguous(); }
  bool is_cuda() const { return held_.is_cuda(); }
  bool is_cpu() const { return held_.is_cpu(); }
  int get_device() const { return held_.get_device_index(); }
  Device device() const { return Device(held_.device()); }
  ScalarType scalar_type() const { return held_.scalar_type(); }
  ScalarType dtype() const { return held_.scalar_type(); }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }
  template <class T>
  T* data_ptr() const {
    check<T>();
    return reinterpret_cast<T*>(held_.data_ptr());
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  const T* const_data_ptr() const {
    check<T>();
    return reinterpret_cast<const T*>(held_.data_ptr());
  }
  void* data_ptr() const { return held_.data_ptr(); }
  Tensor contiguous() const { return torch::stable::contiguous(held_); }
  Tensor clone() const { return torch::stable::clone(held_); }
  Tensor view(const IntArrayRef& sizes) const {
    return torch::stable::view(held_, {sizes.data(), sizes.size()});
  }
  Tensor reshape(const IntArrayRef& sizes) const {
    return torch::stable::reshape(held_, {sizes.data(), sizes.size()});
  }
  Tensor transpose(int64_t a, int64_t b) const { return torch::stable::transpose(held_, a, b); }
  Tensor t() const { return transpose(0, 1); }
  Tensor unsqueeze(int64_t d) const { return torch::stable::unsqueeze(held_, d); }
  Tensor squeeze(int64_t d) const { return torch::stable::squeeze(held_, d); }
  Tensor& zero_() {
    torch::stable::zero_(held_);
    return *this;
  }
  Tensor& fill_(double value) {
    torch::stable::fill_(held_, value);
    return *this;
  }

 private:
  template <class T>
  void check() const {
    using Plain = std::remove_cv_t<T>;
    constexpr auto wanted = torch::headeronly::CppTypeToScalarType<Plain>::value;
    STD_TORCH_CHECK(scalar_type() == wanted, "expected another scalar type");
  }
  torch::stable::Tensor held_;
  bool defined_ = false;
};

inline Tensor empty(const IntArrayRef& sizes, const TensorOptions& options = {}) {
  return torch::stable::empty(
      {sizes.data(), sizes.size()}, options.dtype_, std::nullopt, options.device_);
}
inline Tensor zeros(const IntArrayRef& sizes, const TensorOptions& options = {}) {
  Tensor made = empty(sizes, options);
  return made.zero_();
}
inline Tensor full(const IntArrayRef& sizes, double value, const TensorOptions& options = {}) {
  Tensor made = empty(sizes, options);
  return made.fill_(value);
}
inline Tensor ones(const IntArrayRef& sizes, const TensorOptions& options = {}) {
  return full(sizes, 1.0, options);
}
inline Tensor empty_like(const Tensor& like) { return torch::stable::empty_like(like.held()); }
inline Tensor zeros_like(const Tensor& like) {
  Tensor made = empty_like(like);
  return made.zero_();
}

}  // namespace torch

namespace at {
using torch::empty;
using torch::empty_like;
using torch::IntArrayRef;
using torch::ScalarType;
using torch::Tensor;
using torch::TensorOptions;
using torch::zeros;
using torch::kBFloat16;
using torch::kDouble;
using torch::kFloat;
using torch::kHalf;
using torch::kInt;
using torch::kLong;
using Half = torch::headeronly::Half;
using BFloat16 = torch::headeronly::BFloat16;
template <class F>
inline void parallel_for(int64_t begin, int64_t end, int64_t grain, const F& body) {
  torch::stable::parallel_for(begin, end, grain, body);
}
inline int get_num_threads() { return static_cast<int>(torch::stable::get_num_threads()); }
inline int64_t divup(int64_t x, int64_t y) { return (x + y - 1) / y; }

#ifdef __CUDACC__
namespace cuda {
struct CUDAStream {
  cudaStream_t held;
  operator cudaStream_t() const { return held; }
  cudaStream_t stream() const { return held; }
};
inline CUDAStream getCurrentCUDAStream(int index = -1) {
  if (index < 0) STD_CUDA_CHECK(cudaGetDevice(&index));
  void* stream = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(index, &stream));
  return CUDAStream{static_cast<cudaStream_t>(stream)};
}
// Of the current device; asked for once a device.
inline cudaDeviceProp* getCurrentDeviceProperties() {
  thread_local std::map<int, cudaDeviceProp> known;
  int index = 0;
  STD_CUDA_CHECK(cudaGetDevice(&index));
  if (!known.count(index)) STD_CUDA_CHECK(cudaGetDeviceProperties(&known[index], index));
  return &known[index];
}
#ifdef CUBLAS_API_H_
inline cublasHandle_t getCurrentCUDABlasHandle() {
  void* handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(torch_get_current_cuda_blas_handle(&handle));
  return static_cast<cublasHandle_t>(handle);
}
#endif
}  // namespace cuda
#endif
}  // namespace at

#ifdef __CUDACC__
namespace c10 {
namespace cuda {
using at::cuda::getCurrentCUDAStream;
struct CUDAGuard {
  explicit CUDAGuard(int index) : held(index) {}
  explicit CUDAGuard(const torch::Device& device) : held(device.index()) {}
  torch::stable::accelerator::DeviceGuard held;
};
using OptionalCUDAGuard = CUDAGuard;
}  // namespace cuda
}  // namespace c10
namespace at {
namespace cuda {
using c10::cuda::CUDAGuard;
}
inline torch::Device device_of(const torch::Tensor& tensor) { return tensor.device(); }
}  // namespace at
#define C10_CUDA_CHECK STD_CUDA_CHECK
#define AT_CUDA_CHECK STD_CUDA_CHECK
#define C10_CUDA_KERNEL_LAUNCH_CHECK STD_CUDA_KERNEL_LAUNCH_CHECK
#endif

#pragma GCC visibility pop

#undef TORCH_CHECK
#define TORCH_CHECK STD_TORCH_CHECK
