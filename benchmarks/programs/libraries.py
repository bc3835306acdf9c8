"""Loops inside libraries: Equinox, Flax NNX, NumPyro, dynamax and diffrax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from programs.program import Program


def sequences(count: int, time: int, width: int) -> tuple[jax.Array, jax.Array]:
    """Sequences, and whether each ends above where it began."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, time, width)).cumsum(1).astype("float32") * 0.1
    return jnp.asarray(x), jnp.asarray(x[:, -1, 0] > x[:, 0, 0], jnp.float32)


def equinox_gru():
    """A GRU that learns to classify, by optax's Adam, 20 steps as one scan."""
    import equinox as eqx
    import optax

    class Classifier(eqx.Module):
        cell: eqx.nn.GRUCell
        head: eqx.nn.Linear

        def __call__(self, xs: jax.Array) -> jax.Array:
            step = lambda h, x: (self.cell(x, h), None)
            h, _ = lax.scan(step, jnp.zeros(self.cell.hidden_size), xs)
            return self.head(h)[0]

    k1, k2 = jax.random.split(jax.random.key(0))
    model = Classifier(eqx.nn.GRUCell(4, 32, key=k1), eqx.nn.Linear(32, 1, key=k2))
    arrays, static = eqx.partition(model, eqx.is_array)
    optimizer = optax.adam(3e-3)

    def loss(arrays: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        logits = jax.vmap(eqx.combine(arrays, static))(x)
        return optax.sigmoid_binary_cross_entropy(logits, y).mean()

    def train(arrays: Any, x: jax.Array, y: jax.Array):
        def step(state: Any, _: None):
            arrays, opt = state
            value, grads = jax.value_and_grad(loss)(arrays, x, y)
            updates, opt = optimizer.update(grads, opt)
            return (optax.apply_updates(arrays, updates), opt), value

        return lax.scan(step, (arrays, optimizer.init(arrays)), None, length=20)[1]

    return train, (arrays, *sequences(32, 50, 4))


def nnx_lstm():
    """The loss and gradient of an LSTM of Flax NNX, over a batch."""
    from flax import nnx

    model = nnx.RNN(nnx.LSTMCell(8, 64, rngs=nnx.Rngs(0)))
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params: Any, rest: Any, x: jax.Array) -> jax.Array:
        start = jnp.zeros((len(x), 64)), jnp.zeros((len(x), 64))
        return jnp.mean(nnx.merge(graph, params, rest)(x, initial_carry=start) ** 2)

    x, _ = sequences(16, 100, 8)
    return jax.value_and_grad(loss), (params, rest, x)


def nuts(model: Any, *data: Any):
    """Warm-up and samples of the No-U-Turn sampler, as one program."""
    from numpyro.infer import MCMC, NUTS

    def run(key: Any, *data: Any):
        mcmc = MCMC(NUTS(model), num_warmup=100, num_samples=100, progress_bar=False)
        mcmc.run(key, *data)
        return mcmc.get_samples()

    return run, (jax.random.key(0), *data)


def eight_schools():
    import numpyro
    import numpyro.distributions as dist

    def model(sigma: jax.Array, y: jax.Array) -> None:
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("schools", 8):
            raw = numpyro.sample("raw", dist.Normal(0, 1))
            numpyro.sample("obs", dist.Normal(mu + tau * raw, sigma), obs=y)

    y = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    return nuts(model, jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18]), y)


def state_space():
    """An autoregressive state that is observed with noise, 50 steps."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    def model(y: jax.Array) -> None:
        rho = numpyro.sample("rho", dist.Uniform(-1, 1))
        scale = numpyro.sample("scale", dist.HalfNormal(1))

        def step(x: jax.Array, y: jax.Array):
            x = numpyro.sample("x", dist.Normal(rho * x, scale))
            numpyro.sample("y", dist.Normal(x, 0.5), obs=y)
            return x, x

        scan(step, jnp.float32(0), y)

    rng = np.random.default_rng(0)
    return nuts(model, jnp.asarray(rng.normal(size=50).cumsum() * 0.3, "float32"))


def field(t: Any, y: jax.Array, args: Any) -> jax.Array:
    """Lotka and Volterra's animals."""
    a, b, c, d = args
    prey, hunters = y
    return jnp.stack([a * prey - b * prey * hunters, c * prey * hunters - d * hunters])


def diffrax(adaptive: bool, gradient: bool):
    import diffrax as dfx

    term, solver = dfx.ODETerm(field), dfx.Tsit5()
    steps = dfx.PIDController(1e-5, 1e-5) if adaptive else dfx.ConstantStepSize()
    times = dfx.SaveAt(ts=jnp.linspace(0, 10, 50))

    def solve(rates: jax.Array, y0: jax.Array):
        found = dfx.diffeqsolve(
            term,
            solver,
            0.0,
            10.0,
            0.02,
            y0,
            args=rates,
            saveat=times,
            stepsize_controller=steps,
            max_steps=1024,
        )
        return found.ys

    def loss(rates: jax.Array, y0: jax.Array):
        return jnp.mean(jax.vmap(solve, (None, 0))(rates, y0) ** 2)

    rates = jnp.array([1.1, 0.4, 0.1, 0.4])
    starts = 5 + 5 * jax.random.uniform(jax.random.key(0), (16, 2))
    forward = lambda rates, y0: jax.vmap(solve, (None, 0))(rates, y0)
    return (jax.grad(loss) if gradient else forward), (rates, starts)


def _diffrax(adaptive: bool, gradient: bool) -> Program:
    kind = ("adaptive" if adaptive else "fixed") + (" grad" if gradient else "")
    build = lambda: diffrax(adaptive, gradient)
    return Program(f"diffrax/{kind}", build, needs=("diffrax",), tolerance=1e-2)


# samples of a chain are those of another one after a rounding has turned a choice
def nothing(result: Any) -> Any:
    return [jnp.isfinite(x).all() for x in jax.tree.leaves(result)]


PROGRAMS = [
    Program("equinox/gru", equinox_gru, needs=("equinox", "optax"), tolerance=1e-2),
    Program("nnx/lstm", nnx_lstm, needs=("flax",), tolerance=1e-2),
    Program("numpyro/eight schools", eight_schools, ("numpyro",), checked=nothing),
    Program("numpyro/state space", state_space, ("numpyro",), checked=nothing),
    *(_diffrax(adaptive, grad) for adaptive in (False, True) for grad in (False, True)),
]
