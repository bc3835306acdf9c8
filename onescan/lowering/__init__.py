"""From the loop that JAX lowers to what becomes of it: the hook and the pipeline."""
