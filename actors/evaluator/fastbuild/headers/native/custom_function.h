// torch::autograd::Function: what depends on the function of a candidate, and declarations of the
// rest, which graphs.cpp defines.  The generator fills in the marked lines with torch's own text.
#pragma once
//@ includes: those of torch's header, without the one for torch.compile
#include <typeinfo>

namespace torch::autograd {

struct GraphNode;

//@ declarations: Function and AutogradContext

// The part of CppNode<T> that does not depend on T.
struct GraphNode : public Node {
  using Backward = variable_list (*)(AutogradContext*, variable_list&);
  using BackwardOfValues =
      variable_list (*)(const variable_list&, const std::vector<c10::IValue>&);
  //@ pointer: using Pointer = a pointer to a GraphNode
  //@ members: those of CppNode<T>
  GraphNode();
  ~GraphNode() override;
  //@ methods: those of CppNode<T> with bodies elsewhere
  void compiled_args(CompiledNodeArgs& args) const override;
  variable_list apply_with_saved(const variable_list& inputs, SwapSavedVariables& saved) override;

  virtual const std::type_info& function_type() const = 0;
  virtual BackwardOfValues backward_of_values() const = 0;
  virtual bool is_function_traceable() const = 0;

  static variable_list apply_backward(
      variable_list&& inputs,
      AutogradContext& ctx_,
      const std::vector<bool>& is_variable_input_,
      const std::vector<VariableInfo>& output_info_,
      const std::string& name,
      Backward backward);
  static variable_list apply_backward_of_values(
      const variable_list& inputs, const std::vector<c10::IValue>& args, Backward backward);
  static void check_transforms();
  static bool begin(const Pointer& node, variable_list& input_vars);
  static std::vector<std::optional<Variable>> finish(
      const Pointer& node,
      const variable_list& input_vars,
      const std::vector<std::optional<Variable>>& outputs,
      bool is_executable);
};

template <class T>
variable_list backward_of(AutogradContext* ctx, variable_list& grads) {
  static_assert(std::is_same_v<decltype(T::backward(ctx, grads)), variable_list>);
  return T::backward(ctx, grads);
}

template <class T>
variable_list backward_of_values(
    const variable_list& inputs, const std::vector<c10::IValue>& args) {
  return GraphNode::apply_backward_of_values(inputs, args, &backward_of<T>);
}

template <class T>
struct CppNode : public GraphNode {
  variable_list apply(variable_list&& inputs) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return apply_backward(
        std::move(inputs), ctx_, is_variable_input_, output_info_, name(), &backward_of<T>);
  }
  const std::type_info& function_type() const override {
    return typeid(T);
  }
  BackwardOfValues backward_of_values() const override {
    return &torch::autograd::backward_of_values<T>;
  }
  bool is_function_traceable() const override {
    static_assert(std::is_same_v<std::remove_cv_t<decltype(T::is_traceable)>, bool>);
    return T::is_traceable;
  }
};

//@ conversions: from arguments and to results

//@ apply: Function<T>::apply

} // namespace torch::autograd

extern template class ska::flat_hash_map<std::string, at::IValue>;
