"""The parameters of a swing, from noisy measurements of it: a Kalman filter, fitted.

A Kalman filter tells how likely a series of measurements is, given the parameters of
the system behind it. It is a loop over time, and JAX differentiates it; `fit` climbs
the likelihood with that gradient. Frequency, damping and both kinds of noise come out
near the values that the measurements were made with.

Add `--quick` for a short run. The parameters along the way are saved as
`fit_kalman.png`.

Run it with `python examples/fit_kalman.py`.
"""

import sys

import jax
import jax.numpy as jnp
import optax

import onescan
from onescan import train

TRUE = {"frequency": 0.3, "damping": 0.02, "pushes": 0.1, "errors": 0.5}
GUESS = {"frequency": 0.5, "damping": 0.1, "pushes": 0.5, "errors": 1.0}
COUNT = 4000
ADAM = optax.adam(0.02)


def motion(p):
    """A turn by the frequency, and a loss by the damping, in one moment."""
    cos, sin = jnp.cos(p["frequency"]), jnp.sin(p["frequency"])
    return jnp.exp(-p["damping"]) * jnp.array([[cos, -sin], [sin, cos]])


def measurements(key):
    def swing(state, key):
        pushed, missed = jax.random.split(key)
        state = motion(TRUE) @ state + TRUE["pushes"] * jax.random.normal(pushed, (2,))
        return state, state[0] + TRUE["errors"] * jax.random.normal(missed)

    return onescan.scan(swing, jnp.zeros(2), jax.random.split(key, COUNT))[1]


def unlikelihood(p, ys):
    """Minus the logarithm of the likelihood, for each measurement."""
    turn, pushes = motion(p), p["pushes"] ** 2 * jnp.eye(2)

    def correct(carry, y):
        mean, cov = carry
        mean, cov = turn @ mean, turn @ cov @ turn.T + pushes
        spread = cov[0, 0] + p["errors"] ** 2
        error = y - mean[0]
        gain = cov[:, 0] / spread
        mean, cov = mean + gain * error, cov - jnp.outer(gain, cov[0])
        return (mean, cov), 0.5 * (error**2 / spread + jnp.log(2 * jnp.pi * spread))

    return onescan.scan(correct, (jnp.zeros(2), jnp.eye(2)), ys)[1].mean()


def step(state, ys):
    """Parameters stay positive by their logarithms."""

    def loss(logs):
        return unlikelihood(jax.tree.map(jnp.exp, logs), ys)

    value, grads = jax.value_and_grad(loss)(state["logs"])
    updates, optimiser = ADAM.update(grads, state["optimiser"])
    logs = optax.apply_updates(state["logs"], updates)
    return {"logs": logs, "optimiser": optimiser}, {
        "unlikelihood": value,
        **jax.tree.map(jnp.exp, logs),
    }


def main(steps=500):
    ys = measurements(jax.random.key(0))
    logs = jax.tree.map(jnp.log, GUESS)
    state = {"logs": logs, "optimiser": ADAM.init(logs)}
    run = train.fit(step, state, ys[None], epochs=steps)
    print(f"{COUNT} measurements, {run.steps} steps")
    for name, true in TRUE.items():
        found = run.metrics[name][-1]
        print(f"  {name:9s}  guessed {GUESS[name]:.2f}  found {found:.3f}  true {true}")
    figure = run.plot("fit_kalman.png", title="A swing, found from noisy measurements")
    for axis in figure.axes:
        if axis.get_title() in TRUE:
            axis.axhline(TRUE[axis.get_title()], color="black", ls="--", lw=1)
    figure.savefig("fit_kalman.png", dpi=150)
    print("the parameters along the way: fit_kalman.png")
    return run


if __name__ == "__main__":
    main(steps=20 if "--quick" in sys.argv else 500)
