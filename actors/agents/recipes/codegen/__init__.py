"""From scheduled regions to C++ and CUDA kernels and a whole module."""
