// The part of torch::autograd::Function that is the same for all candidates.  The generator fills
// in the marked lines with torch's own text.
#include <torch/extension.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

namespace torch::autograd {

GraphNode::GraphNode() = default;
GraphNode::~GraphNode() = default;

//@ bodies: the methods of CppNode<T>

void GraphNode::compiled_args(CompiledNodeArgs& args) const {
//@ compiled arguments
}

variable_list GraphNode::apply_with_saved(
    const variable_list& inputs, SwapSavedVariables& saved) {
//@ apply with saved variables
}

variable_list GraphNode::apply_backward(
    variable_list&& inputs,
    AutogradContext& ctx_,
    const std::vector<bool>& is_variable_input_,
    const std::vector<VariableInfo>& output_info_,
    const std::string& name,
    Backward backward) {
//@ backward
}

variable_list GraphNode::apply_backward_of_values(
    const variable_list& inputs, const std::vector<c10::IValue>& args, Backward backward) {
//@ backward of values
}

void GraphNode::check_transforms() {
//@ transforms
}

bool GraphNode::begin(const Pointer& node, variable_list& input_vars) {
//@ begin
  return is_executable;
}

std::vector<std::optional<Variable>> GraphNode::finish(
    const Pointer& node,
    const variable_list& input_vars,
    const std::vector<std::optional<Variable>>& outputs,
    bool is_executable) {
//@ finish
  return wrapped_outputs;
}

} // namespace torch::autograd

template class ska::flat_hash_map<std::string, at::IValue>;
