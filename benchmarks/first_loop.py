"""What only the first loop of a process pays for, which is nobody's time of a loop."""

from __future__ import annotations

import jax

import onescan


def warm_up() -> None:
    """Compile and run a small loop by both engines."""
    onescan.install()
    xs = jax.numpy.ones((8, 16))
    for engine in ("xla", "auto"):
        with onescan.engine(engine):
            jax.block_until_ready(
                jax.jit(lambda xs: jax.lax.scan(lambda c, x: (c * x, c), xs[0], xs))(xs)
            )
