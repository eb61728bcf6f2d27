// Functions of a candidate as operators of the stable ABI, with schemas from their C++ types.
#pragma once
#include "light_torch.h"

namespace stark {

template <class T>
using plain_t = std::remove_cv_t<std::remove_reference_t<T>>;

// The type in the stable ABI, the name in a schema, and the conversions.
template <class T, class = void>
struct Value;
template <>
struct Value<torch::Tensor> {
  using type = torch::stable::Tensor;
  static std::string name() { return "Tensor"; }
  static torch::Tensor in(type value) { return torch::Tensor(std::move(value)); }
  static type out(const torch::Tensor& value) { return value.held(); }
};
template <>
struct Value<void> {
  using type = void;
  static std::string name() { return "()"; }
};
template <>
struct Value<bool> {
  using type = bool;
  static std::string name() { return "bool"; }
  static bool in(bool value) { return value; }
  static bool out(bool value) { return value; }
};
template <class T>
struct Value<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  using type = int64_t;
  static std::string name() { return "int"; }
  static T in(int64_t value) { return static_cast<T>(value); }
  static int64_t out(T value) { return value; }
};
template <class T>
struct Value<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  using type = double;
  static std::string name() { return "float"; }
  static T in(double value) { return static_cast<T>(value); }
  static double out(T value) { return value; }
};
template <>
struct Value<std::vector<torch::Tensor>> {
  using type = std::vector<torch::stable::Tensor>;
  static std::string name() { return "Tensor[]"; }
  static std::vector<torch::Tensor> in(const type& values) {
    return std::vector<torch::Tensor>(values.begin(), values.end());
  }
  static type out(const std::vector<torch::Tensor>& values) {
    type made;
    for (const auto& value : values) made.push_back(value.held());
    return made;
  }
};
template <class... Items>
struct Value<std::tuple<Items...>> {
  using type = std::tuple<typename Value<plain_t<Items>>::type...>;
  static std::string name() {
    std::string text;
    ((text += (text.empty() ? "(" : ", ") + Value<plain_t<Items>>::name()), ...);
    return text + ")";
  }
  static type out(const std::tuple<Items...>& values) {
    return std::apply(
        [](const auto&... items) { return type(Value<plain_t<decltype(items)>>::out(items)...); },
        values);
  }
};

template <class... Arguments>
std::string schema(const char* name, const std::string& result) {
  std::string text = std::string(name) + "(";
  int number = 0;
  ((text += (number ? ", " : "") + Value<plain_t<Arguments>>::name() + " a" +
       std::to_string(number),
    ++number),
   ...);
  return text + ") -> " + result;
}

template <auto function>
struct Operator;

template <class Result, class... Arguments, Result (*function)(Arguments...)>
struct Operator<function> {
  static typename Value<plain_t<Result>>::type call(
      typename Value<plain_t<Arguments>>::type... arguments) {
    if constexpr (std::is_void_v<Result>) {
      called(Value<plain_t<Arguments>>::in(arguments)...);
    } else {
      return Value<plain_t<Result>>::out(called(Value<plain_t<Arguments>>::in(arguments)...));
    }
  }
  static std::string schema(const char* name) {
    return stark::schema<Arguments...>(name, Value<plain_t<Result>>::name());
  }

 private:
  static Result called(plain_t<Arguments>... arguments) {
    return function(static_cast<Arguments>(arguments)...);
  }
};

}  // namespace stark
