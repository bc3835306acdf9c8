"""Which engine runs a loop: predicted from counts, measured where that is not sure.

`costs` is what a machine's instructions cost, `predict` the time of a step by each
engine, `measure` both engines on the user's machine, `store` what was measured before,
and `choose` the decision.
"""
