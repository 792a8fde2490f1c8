"""Dense reference matrices through cuBLAS."""
