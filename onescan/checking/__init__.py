"""Both engines on every call of a loop, compared."""
