"""[Swirydowicz]'s ladders of kernels for BP1.0, BP3.5 and BP3.0, as one kernel with switches."""
