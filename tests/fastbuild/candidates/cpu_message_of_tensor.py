"""A message that holds a whole tensor, and exceptions of several kinds."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor plus(torch::Tensor x) {
  TORCH_CHECK_VALUE(x.dim() == 1, "one dimension is expected, not ", x.sizes(), " of\n", x);
  return x + 1;
}
int known(int key) {
  if (key > 1) throw std::out_of_range("no such key");
  if (key > 0) throw py::key_error("key");
  return key;
}
"""
module = load_inline(name="cpu_message_of_tensor", cpp_sources=SOURCE, functions=["plus", "known"])


def raised(call):
    """Return the kind and the first lines of an error, as a tensor of its letters."""
    try:
        call()
    except (ValueError, RuntimeError, IndexError, KeyError) as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[:3]}"
        return torch.tensor(list(text.encode()))
    return torch.zeros(0)


def results():
    x = torch.arange(4.0)
    torch.testing.assert_close(module.plus(x), x + 1)
    assert module.known(0) == 0
    return [
        module.plus(x),
        raised(lambda: module.plus(x.view(2, 2))),
        raised(lambda: module.known(2)),
        raised(lambda: module.known(1)),
    ]
