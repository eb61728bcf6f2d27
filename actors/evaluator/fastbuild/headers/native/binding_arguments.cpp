// The prebuilt binding's casts of arguments, and their text in signatures.
#include "binding.h"

namespace stark {
namespace {

template <class T>
struct ArgumentOf : Argument {
  py::detail::make_caster<T> caster;
  std::optional<T> converted;
  void* value() override {
    return &*converted;
  }
};

template <class T>
std::unique_ptr<Argument> load_as(py::handle source, bool convert) {
  auto argument = std::make_unique<ArgumentOf<T>>();
  if (!argument->caster.load(source, convert)) {
    return nullptr;
  }
  argument->converted.emplace(py::detail::cast_op<T>(std::move(argument->caster)));
  return argument;
}

template <class T>
std::string argument_text_of() {
  const py::cpp_function function([](T) {}, py::name("f"));
  return "{" + docstring_part(function, "arg0: ", ") -> ") + "}";
}

} // namespace

std::unique_ptr<Argument> load(Kind kind, py::handle source, bool convert) {
  switch (kind) {
    case Kind::nothing:
      return nullptr;
#define STARK_LOAD(name, ...) \
  case Kind::name:            \
    return load_as<__VA_ARGS__>(source, convert);
      STARK_KINDS(STARK_LOAD)
#undef STARK_LOAD
  }
  return nullptr;
}

std::string argument_text(Kind kind) {
  switch (kind) {
    case Kind::nothing:
      return "";
#define STARK_TEXT_IN(name, ...) \
  case Kind::name:               \
    return argument_text_of<__VA_ARGS__>();
      STARK_KINDS(STARK_TEXT_IN)
#undef STARK_TEXT_IN
  }
  return "";
}

} // namespace stark
