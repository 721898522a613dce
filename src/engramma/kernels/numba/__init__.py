"""Compiled by numba, for the CPU."""
