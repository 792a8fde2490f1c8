"""Dense matrices of affine elements, on tensor cores."""
