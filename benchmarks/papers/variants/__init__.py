"""Kernels made for experiments alone, with the experiments that need them; nothing outside imports this folder."""
