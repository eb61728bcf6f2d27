// What the two files of the prebuilt binding share.
#pragma once
#include <torch/extension.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace stark {
using OptionalTensors = std::optional<std::vector<at::Tensor>>;
using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Tensors4 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Tensors5 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
} // namespace stark

#include <stark/record.h>

namespace py = pybind11;

namespace stark {

// One argument of one call.  It keeps the caster, since the value of `sizes` points into it.
struct Argument {
  virtual ~Argument() = default;
  virtual void* value() = 0;
};

// The argument `source` as a value of `kind`; nothing if it is none.
std::unique_ptr<Argument> load(Kind kind, py::handle source, bool convert);
// The text of `kind` in a signature.
std::string argument_text(Kind kind);

// The part between `from` and `to` of the docstring that pybind11 makes for `function`.
inline std::string docstring_part(
    const py::cpp_function& function, const std::string& from, const char* to) {
  const auto text = py::str(function.attr("__doc__")).cast<std::string>();
  const auto start = text.find(from) + from.size();
  return text.substr(start, text.rfind(to) - start);
}

} // namespace stark
