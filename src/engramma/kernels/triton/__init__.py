"""Compiled by Triton, for CUDA."""
