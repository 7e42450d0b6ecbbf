"""Compiling the kernels ahead of the first command, and again where they changed."""
