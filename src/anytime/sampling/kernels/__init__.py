"""Triton kernels of the CUDA engine."""
