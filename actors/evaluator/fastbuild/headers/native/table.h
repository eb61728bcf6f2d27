// The replacement of PYBIND11_MODULE for modules that only list functions: a table of records for
// the prebuilt binding.  With a type that has no kind the compilation fails and names
// `stark::KindOf`.
#pragma once
#include <Python.h>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace stark {
using OptionalTensors = std::optional<std::vector<at::Tensor>>;
using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Tensors4 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Tensors5 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
} // namespace stark

#include <stark/record.h>

namespace stark {

template <class T>
struct KindOf;
template <>
struct KindOf<void> {
  static constexpr Kind kind = Kind::nothing;
};
#define STARK_KIND(name, ...)               \
  template <>                               \
  struct KindOf<__VA_ARGS__> {              \
    static constexpr Kind kind = Kind::name; \
  };
STARK_KINDS(STARK_KIND)
#undef STARK_KIND

template <class T>
using Bare = std::remove_cv_t<std::remove_reference_t<T>>;

template <class Result, class... Arguments>
struct Caller {
  static_assert(!std::is_pointer_v<Result>, "stark::KindOf has no pointers");
  static_assert(
      !(std::is_reference_v<Result> && !std::is_same_v<Bare<Result>, at::Tensor>),
      "stark::KindOf has no references to other values");
  static_assert(sizeof(std::conditional_t<std::is_void_v<Result>, int, Bare<Result>>) <= max_result_bytes);
  static constexpr Kind kinds[sizeof...(Arguments) + 1] = {KindOf<Bare<Arguments>>::kind..., {}};

  template <size_t... I>
  static void expand(void* function, void* const* from, void* to, std::index_sequence<I...>) {
    auto target = reinterpret_cast<Result (*)(Arguments...)>(function);
    if constexpr (std::is_void_v<Result>) {
      target(static_cast<Arguments&&>(*static_cast<Bare<Arguments>*>(from[I]))...);
    } else {
      new (to) Bare<Result>(
          target(static_cast<Arguments&&>(*static_cast<Bare<Arguments>*>(from[I]))...));
    }
  }

  static void call(void* function, void* const* from, void* to) {
    expand(function, from, to, std::index_sequence_for<Arguments...>{});
  }
};

template <class Function>
struct Guarded {
  Function* function;
};

struct Table {
  Record records[max_records];
  int count = 0;

  template <class Result, class... Arguments>
  void add(const char* name, Result (*function)(Arguments...), const char* doc, bool guarded) {
    using Way = Caller<Result, Arguments...>;
    records[count++] = Record{
        name,
        doc,
        reinterpret_cast<void*>(function),
        &Way::call,
        Way::kinds,
        static_cast<int>(sizeof...(Arguments)),
        KindOf<Bare<Result>>::kind,
        guarded};
  }

  template <class Result, class... Arguments>
  Table& def(const char* name, Guarded<Result(Arguments...)> guarded, const char* doc = nullptr) {
    add(name, guarded.function, doc, true);
    return *this;
  }

  template <class Result, class... Arguments>
  Table& def(const char* name, Result (*function)(Arguments...), const char* doc = nullptr) {
    add(name, function, doc, false);
    return *this;
  }
};

} // namespace stark

namespace torch {
template <class Result, class... Arguments>
stark::Guarded<Result(Arguments...)> wrap_pybind_function(Result (*function)(Arguments...)) {
  return {function};
}
} // namespace torch

#define STARK_TEXT_OF(name) #name
#define STARK_TEXT(name) STARK_TEXT_OF(name)
#define STARK_JOINED(left, right) left##right
#define STARK_JOIN(left, right) STARK_JOINED(left, right)
#define PYBIND11_MODULE(name, variable)                                                        \
  static void STARK_JOIN(stark_fill_, name)(stark::Table&);                                    \
  extern "C" __attribute__((visibility("default"))) PyObject* STARK_JOIN(PyInit_, name)() {    \
    static stark::Table table;                                                                 \
    static PyModuleDef definition;                                                             \
    table.count = 0;                                                                           \
    STARK_JOIN(stark_fill_, name)(table);                                                      \
    return stark_make_module(STARK_TEXT(name), &definition, table.records, table.count);       \
  }                                                                                            \
  static void STARK_JOIN(stark_fill_, name)(stark::Table & variable)
