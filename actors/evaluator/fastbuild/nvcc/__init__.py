"""CUDA sources: nvcc's steps, run side by side, with smaller texts for its front ends."""
