"""Random loops drawn from the whole rule table, run under every engine."""
