// Functions of a candidate as operators: C++ numbers become those of schemas.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <torch/library.h>

namespace stark {

template <class T>
using plain_t = std::remove_cv_t<std::remove_reference_t<T>>;

template <class T>
using schema_t = std::conditional_t<
    std::is_same_v<plain_t<T>, bool>,
    bool,
    std::conditional_t<
        std::is_integral_v<plain_t<T>>,
        int64_t,
        std::conditional_t<std::is_floating_point_v<plain_t<T>>, double, plain_t<T>>>>;

template <auto function>
struct Operator;

template <class Result, class... Arguments, Result (*function)(Arguments...)>
struct Operator<function> {
  static schema_t<Result> call(schema_t<Arguments>... arguments) {
    return static_cast<schema_t<Result>>(function(static_cast<Arguments>(arguments)...));
  }
};

}  // namespace stark
