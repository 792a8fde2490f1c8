"""Dense products and what happens at the points in one kernel, on tensor cores: for rules without directions."""
