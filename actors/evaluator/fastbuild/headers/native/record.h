// The record by which a candidate's library describes one function to the prebuilt binding.
#pragma once
#include <Python.h>
#include <stark/kinds.h>

// Types that some builds of torch convert with symbols they do not export (see kinds.h).
#ifdef STARK_FEW_KINDS
#define STARK_TORCH_KINDS(KIND)
#else
#define STARK_TORCH_KINDS(KIND)   \
  KIND(dtype, at::ScalarType)     \
  KIND(device, at::Device)        \
  KIND(layout, at::Layout)        \
  KIND(memory_format, at::MemoryFormat)
#endif

// Types that the binding converts, by name.  pybind11 itself binds functions of any other type.
#define STARK_KINDS(KIND)                                 \
  KIND(tensor, at::Tensor)                                \
  KIND(tensor_or_none, std::optional<at::Tensor>)         \
  KIND(tensors, std::vector<at::Tensor>)                  \
  KIND(tensors_or_none, stark::OptionalTensors)           \
  KIND(two_tensors, stark::Tensors2)                      \
  KIND(three_tensors, stark::Tensors3)                    \
  KIND(four_tensors, stark::Tensors4)                     \
  KIND(five_tensors, stark::Tensors5)                     \
  KIND(boolean, bool)                                     \
  KIND(int32, int)                                        \
  KIND(uint32, unsigned int)                              \
  KIND(int64, long)                                       \
  KIND(uint64, unsigned long)                             \
  KIND(longer, long long)                                 \
  KIND(float32, float)                                    \
  KIND(float64, double)                                   \
  KIND(text, std::string)                                 \
  KIND(boolean_or_none, std::optional<bool>)              \
  KIND(int32_or_none, std::optional<int>)                 \
  KIND(int64_or_none, std::optional<long>)                \
  KIND(float32_or_none, std::optional<float>)             \
  KIND(float64_or_none, std::optional<double>)            \
  KIND(text_or_none, std::optional<std::string>)          \
  KIND(int32s, std::vector<int>)                          \
  KIND(int64s, std::vector<long>)                         \
  KIND(float32s, std::vector<float>)                      \
  KIND(float64s, std::vector<double>)                     \
  KIND(sizes, at::IntArrayRef)                            \
  STARK_TORCH_KINDS(KIND)

namespace stark {

enum class Kind : int {
  nothing,
#define STARK_NAME(name, ...) name,
  STARK_KINDS(STARK_NAME)
#undef STARK_NAME
};

struct Record {
  const char* name;
  const char* doc;
  void* function;
  // Calls `function`; `arguments` point to values of the kinds below, `result` to memory for one.
  void (*call)(void* function, void* const* arguments, void* result);
  const Kind* kinds;
  int arguments;
  Kind result;
  bool guarded; // torch's errors and warnings become Python's
};

constexpr int max_records = 64;
constexpr int max_result_bytes = 256;

} // namespace stark

extern "C" PyObject* stark_make_module(
    const char* name,
    PyModuleDef* definition,
    const stark::Record* records,
    int count);
