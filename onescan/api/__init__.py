"""What users call: the arguments of a loop, checked, on their way into JAX."""
