"""Hidden Markov models and linear Gaussian ones, with dynamax and without."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from programs.program import Program

TIME, STATES = 2000, 5


def likelihoods() -> jax.Array:
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(0, 1, (TIME, STATES)), "float32")


def transitions() -> jax.Array:
    matrix = np.full((STATES, STATES), 0.05) + 0.75 * np.eye(STATES)
    return jnp.asarray(matrix / matrix.sum(1, keepdims=True), "float32")


def indexed_filter(transition: jax.Array, ll: jax.Array) -> jax.Array:
    """The marginal log likelihood; a step reads its row of a closed-over array."""

    def step(state, t):
        total, predicted = state
        shift = ll[t].max()
        joint = predicted * jnp.exp(ll[t] - shift)
        norm = joint.sum()
        return (total + jnp.log(norm) + shift, (joint / norm) @ transition), None

    start = jnp.float32(0), jnp.full(STATES, 1 / STATES)
    return lax.scan(step, start, jnp.arange(len(ll)))[0][0]


def viterbi(transition: jax.Array, ll: jax.Array) -> jax.Array:
    """The most likely states: one loop forward, one back through what it chose."""
    log_transition = jnp.log(transition)

    def step(scores, ll):
        ways = scores[:, None] + log_transition
        return ways.max(0) + ll, ways.argmax(0)

    def back(state, best):
        return best[state], state

    last, chosen = lax.scan(step, jnp.zeros(STATES), ll)
    return lax.scan(back, last.argmax(), chosen, reverse=True)[1]


def hmm(name: str):
    from dynamax.hidden_markov_model import GaussianHMM

    model = GaussianHMM(STATES, 2)
    params, props = model.initialize(jax.random.key(0))
    _, emissions = model.sample(params, jax.random.key(1), TIME)

    def likelihood(params, emissions):
        return model.marginal_log_prob(params, emissions)

    def filtered(params, emissions):
        return model.filter(params, emissions).filtered_probs

    def em(params, emissions):
        state = model.initialize_m_step_state(params, props)

        def step(state, _):
            params, m_state = state
            statistics, likelihood = model.e_step(params, emissions)
            batch = jax.tree.map(lambda x: x[None], statistics)
            return model.m_step(params, props, batch, m_state), likelihood

        return lax.scan(step, (params, state), None, length=5)[1]

    chosen = {"filter": filtered, "grad": jax.grad(likelihood), "em": em}
    return chosen[name], (params, emissions)


def lgssm(what: str, count: int = 1):
    """Means of one sequence of 500 steps, or of many of 100: `filter` or `smoother`."""
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    model = LinearGaussianSSM(4, 2)
    params, _ = model.initialize(jax.random.key(0))
    steps = 500 if count == 1 else 100
    sample = lambda key: model.sample(params, key, steps)[1]

    def means(emissions):
        found = getattr(model, what)(params, emissions)
        return found.filtered_means if what == "filter" else found.smoothed_means

    if count == 1:
        return means, (sample(jax.random.key(1)),)
    keys = jax.random.split(jax.random.key(1), count)
    return jax.vmap(means), (jax.vmap(sample)(keys),)


def lgssm_grad():
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    model = LinearGaussianSSM(4, 2)
    params, _ = model.initialize(jax.random.key(0))
    _, emissions = model.sample(params, jax.random.key(1), 500)
    return jax.grad(model.marginal_log_prob), (params, emissions)


def _plain(fn):
    return lambda: (fn, (transitions(), likelihoods()))


PROGRAMS = [
    Program("hmm/indexed", _plain(indexed_filter)),
    Program("hmm/indexed grad", _plain(jax.grad(indexed_filter, argnums=(0, 1)))),
    Program("hmm/viterbi", _plain(viterbi)),
    Program("dynamax/hmm filter", lambda: hmm("filter"), needs=("dynamax",)),
    Program("dynamax/hmm grad", lambda: hmm("grad"), needs=("dynamax",)),
    Program("dynamax/hmm em", lambda: hmm("em"), needs=("dynamax",)),
    *(
        Program(
            f"dynamax/lgssm {what}{name}",
            partial(lgssm, what, count),
            needs=("dynamax",),
            tolerance=1e-2,
        )
        for what in ("filter", "smoother")
        for name, count in {"": 1, "/1000": 1000}.items()
    ),
    Program("dynamax/lgssm grad", lgssm_grad, needs=("dynamax",), tolerance=1e-2),
]
