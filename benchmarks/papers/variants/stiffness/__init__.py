"""[Roget]'s ways to apply the stiffness: the classical sum, and six small matrix products."""
