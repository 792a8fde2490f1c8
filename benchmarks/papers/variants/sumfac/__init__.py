"""[Xing]'s sum factorisation in the paper's own form: an element to a thread, and an output point to a thread."""
