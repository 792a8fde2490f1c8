"""[Swirydowicz]'s ladders of kernels for BP3.5, as one kernel with switches."""
