"""Reinforcement learning: advantages of a batch of episodes, and a rollout."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from case import Case, normal, uniform

LENGTH = 4096
STEPS = 128


GAMMA, DECAY = 0.99, 0.95


def advantages(scan, unroll, rewards, values, last, dones):
    """Generalised advantage estimation, from the last step to the first."""

    def step(carry, x):
        advantage, next_value = carry
        reward, value, done = x
        alive = 1.0 - done
        error = reward + GAMMA * next_value * alive - value
        advantage = error + GAMMA * DECAY * alive * advantage
        return (advantage, value), advantage

    start = jnp.zeros_like(last), last
    xs = rewards, values, dones
    _, stacked = scan(step, start, xs, reverse=True, unroll=unroll)
    return stacked


def advantages_shifted(scan, unroll, rewards, values, last, dones):
    """The same with the next values as a shifted copy, which JAX makes first."""

    def step(advantage, x):
        reward, value, next_value, done = x
        alive = 1.0 - done
        error = reward + GAMMA * next_value * alive - value
        advantage = error + GAMMA * DECAY * alive * advantage
        return advantage, advantage

    following = jnp.concatenate([values[1:], last[None]])
    xs = rewards, values, following, dones
    _, stacked = scan(step, jnp.zeros_like(last), xs, reverse=True, unroll=unroll)
    return stacked


def advantages_case(
    n: int, fn=advantages, variant: str = "", length: int = LENGTH
) -> Case:
    def build():
        rewards, values = normal(0, length, n), normal(1, length, n)
        dones = jnp.asarray(uniform(2, length, n) < 0.02, jnp.float32)
        return fn, (rewards, values, normal(3, n), dones)

    return Case(
        name=f"gae/{n}{variant}",
        steps=length,
        build=build,
        ops=8 * n,
        bytes=16 * n,
        kernel="gae",
        sizes=(length, n),
    )


def cartpole_step(state, action):
    """One Euler step of the cart-pole; whether the episode is over."""
    x, v, angle, spin = state
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * spin**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    pull = push - 0.05 * turn * cos / 1.1
    state = x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn
    done = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 0.2095)
    return jnp.stack(state), done


def rollout(scan, unroll, params, key, states):
    """Environments driven by a sampled 4-64-64-2 policy, restarted when over."""

    def policy(states):
        for w, b in params[:-1]:
            states = jnp.tanh(states @ w + b)
        w, b = params[-1]
        return states @ w + b

    def step(carry, _):
        key, states = carry
        key, choice, fresh = jax.random.split(key, 3)
        actions = jax.random.categorical(choice, policy(states))
        new, done = jax.vmap(cartpole_step)(states, actions)
        start = jax.random.uniform(fresh, new.shape, minval=-0.05, maxval=0.05)
        new = jnp.where(done[:, None], start, new)
        return (key, new), (states, actions, done)

    _, path = scan(step, (key, states), None, length=STEPS, unroll=unroll)
    return path


def rollout_case(n: int) -> Case:
    def build():
        sizes = [(4, 64), (64, 64), (64, 2)]
        params = [
            (normal(i, a, b, scale=a**-0.5), jnp.zeros(b, jnp.float32))
            for i, (a, b) in enumerate(sizes)
        ]
        return rollout, (params, jax.random.key(0), normal(3, n, 4, scale=0.02))

    products = 4 * 64 + 64 * 64 + 64 * 2
    return Case(
        name=f"cartpole/{n}",
        steps=STEPS,
        build=build,
        ops=n * (2 * products + 128 * 20 + 6 * 80 + 60),  # tanh 20, a random word 80
        bytes=n * 21,
        agree=0.99,  # a rounding may flip a sampled action, and with it a trajectory
    )


CASES = [
    *(advantages_case(n) for n in (1, 16, 64, 1024)),
    advantages_case(64, advantages_shifted, "/shifted"),
    *(rollout_case(n) for n in (16, 1024)),
]
