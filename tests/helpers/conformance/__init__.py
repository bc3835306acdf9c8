"""Every primitive in every type, native loops against eager JAX, one by one."""
