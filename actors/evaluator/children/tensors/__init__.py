"""Tensors in a child: bytes, copies, addresses, parameters, and the memory around them."""
