"""[Cao]'s kernels of axhelm: sources of geometric factors and ways of contraction, as one kernel with switches."""
