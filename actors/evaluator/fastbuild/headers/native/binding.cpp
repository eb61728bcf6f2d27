// The prebuilt binding: pybind11's own casts, signatures and errors for functions given as records.
// It is compiled once for each torch and linked into each candidate's library.
// Arguments are cast in a file of their own: two compilers are done sooner than one.
#include "binding.h"

namespace stark {
namespace {

template <class T>
py::handle cast_as(void* result, py::return_value_policy policy, py::handle parent) {
  struct Destroyed {
    T* value;
    ~Destroyed() {
      value->~T();
    }
  } destroyed{static_cast<T*>(result)};
  return py::detail::make_caster<T>::cast(
      std::move(*destroyed.value), py::detail::return_value_policy_override<T>::policy(policy), parent);
}

py::handle cast(Kind kind, void* result, py::return_value_policy policy, py::handle parent) {
  switch (kind) {
    case Kind::nothing:
      return py::none().release();
#define STARK_CAST(name, ...) \
  case Kind::name:            \
    return cast_as<__VA_ARGS__>(result, policy, parent);
      STARK_KINDS(STARK_CAST)
#undef STARK_CAST
  }
  return py::none().release();
}

template <class T>
T never() {
  throw std::logic_error("this function is only described");
}

template <class T>
std::string result_text_of() {
  return docstring_part(py::cpp_function(&never<T>, py::name("f")), ") -> ", "\n");
}

std::string result_text(Kind kind) {
  switch (kind) {
    case Kind::nothing:
      return result_text_of<void>();
#define STARK_TEXT_OUT(name, ...) \
  case Kind::name:                \
    return result_text_of<__VA_ARGS__>();
      STARK_KINDS(STARK_TEXT_OUT)
#undef STARK_TEXT_OUT
  }
  return "";
}

void invoke(const Record& record, void* const* arguments, void* result) {
  if (!record.guarded) {
    record.call(record.function, arguments, result);
    return;
  }
  HANDLE_TH_ERRORS
  record.call(record.function, arguments, result);
  END_HANDLE_TH_ERRORS_PYBIND
}

py::handle dispatch(py::detail::function_call& call) {
  const auto& record = *static_cast<const Record*>(call.func.data[0]);
  std::vector<std::unique_ptr<Argument>> arguments(record.arguments);
  std::vector<void*> values(record.arguments + 1);
  for (int i = 0; i < record.arguments; ++i) {
    arguments[i] = load(record.kinds[i], call.args[i], call.args_convert[i]);
    if (!arguments[i]) {
      return PYBIND11_TRY_NEXT_OVERLOAD;
    }
    values[i] = arguments[i]->value();
  }
  alignas(std::max_align_t) unsigned char result[max_result_bytes];
  invoke(record, values.data(), result);
  return cast(record.result, result, call.func.policy, call.parent);
}

struct Function : py::cpp_function {
  Function(const Record& from, const py::module_& scope) {
    auto owned = make_function_record();
    auto* record = owned.get();
    record->name = const_cast<char*>(from.name);
    record->doc = const_cast<char*>(from.doc);
    record->data[0] = const_cast<Record*>(&from);
    record->impl = &dispatch;
    record->nargs = static_cast<std::uint16_t>(from.arguments);
    record->nargs_pos = record->nargs;
    record->scope = scope;
    py::object sibling = py::getattr(scope, from.name, py::none());
    record->sibling = sibling;
    std::string text = "(";
    for (int i = 0; i < from.arguments; ++i) {
      text += (i ? ", " : "") + argument_text(from.kinds[i]);
    }
    text += ") -> " + result_text(from.result);
    static const std::type_info* const no_types[1] = {nullptr};
    initialize_generic(std::move(owned), text.c_str(), no_types, from.arguments);
  }
};

} // namespace
} // namespace stark

extern "C" __attribute__((visibility("hidden"))) PyObject* stark_make_module(
    const char* name,
    PyModuleDef* definition,
    const stark::Record* records,
    int count) {
  try {
    py::detail::get_internals();
    auto module = py::module_::create_extension_module(
        name, nullptr, reinterpret_cast<py::module_::module_def*>(definition));
    for (int i = 0; i < count; ++i) {
      module.add_object(records[i].name, stark::Function(records[i], module), true);
    }
    return module.release().ptr();
  } catch (py::error_already_set& error) {
    py::raise_from(error, PyExc_ImportError, "initialization failed");
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  }
  return nullptr;
}
