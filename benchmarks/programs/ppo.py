"""PPO as nested scans, in the form of PureJaxRL: updates of rollouts and epochs.

Cart-pole, a policy and a value network of 4-64-64, generalized advantages, minibatches
of a permutation, Adam with clipped gradients.  The whole training is one function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from programs import adam
from programs.program import Program

GAMMA, LAMBDA, CLIP, ENTROPY, VALUE = 0.99, 0.95, 0.2, 0.01, 0.5
EPOCHS, MINIBATCHES, RATE = 4, 4, 2.5e-4


class Transition(NamedTuple):
    done: jax.Array
    action: jax.Array
    value: jax.Array
    reward: jax.Array
    log_prob: jax.Array
    obs: jax.Array


def reset(key: Any) -> tuple[jax.Array, jax.Array]:
    return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05), jnp.int32(0)


def env_step(key: Any, env: Any, action: jax.Array):
    """One step of a cart-pole, begun anew where it ends."""
    (x, v, angle, speed), time = env[0], env[1]
    force = jnp.where(action == 1, 10.0, -10.0)
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    push = (force + 0.05 * speed**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    acceleration = push - 0.05 * turn * cos / 1.1
    obs = jnp.array(
        [x + 0.02 * v, v + 0.02 * acceleration, angle + 0.02 * speed, speed]
    )
    obs = obs.at[3].add(0.02 * turn)
    time = time + 1
    done = (jnp.abs(obs[0]) > 2.4) | (jnp.abs(obs[2]) > 0.2095) | (time >= 500)
    fresh = reset(key)
    env = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, (obs, time))
    return env, jnp.float32(1.0), done


def train(key: Any, envs: int, steps: int, updates: int):
    """The last parameters, the mean reward and the losses of every update."""
    k1, k2, k3, key = jax.random.split(key, 4)
    params = adam.dense(k1, 4, 64, 64, 2), adam.dense(k2, 4, 64, 64, 1)
    env = jax.vmap(reset)(jax.random.split(k3, envs))
    total = updates * EPOCHS * MINIBATCHES

    def policy_and_value(params: Any, obs: jax.Array):
        policy, value = params
        log_probs = jax.nn.log_softmax(adam.network(policy, obs))
        return log_probs, adam.network(value, obs)[..., 0]

    def rollout_step(state: Any, _: None):
        params, env, key = state
        key, choose, reset_key = jax.random.split(key, 3)
        obs = env[0]
        log_probs, value = policy_and_value(params, obs)
        action = jax.random.categorical(choose, log_probs)
        log_prob = jnp.take_along_axis(log_probs, action[:, None], -1)[:, 0]
        keys = jax.random.split(reset_key, envs)
        env, reward, done = jax.vmap(env_step)(keys, env, action)
        step = Transition(done, action, value, reward, log_prob, obs)
        return (params, env, key), step

    def advantages(steps: Transition, last: jax.Array):
        def back(state: Any, step: Transition):
            advantage, following = state
            alive = 1.0 - step.done
            delta = step.reward + GAMMA * following * alive - step.value
            advantage = delta + GAMMA * LAMBDA * alive * advantage
            return (advantage, step.value), advantage

        start = jnp.zeros_like(last), last
        _, found = lax.scan(back, start, steps, reverse=True, unroll=16)
        return found, found + steps.value

    def loss(params: Any, batch: Any):
        step, advantage, target = batch
        log_probs, value = policy_and_value(params, step.obs)
        log_prob = jnp.take_along_axis(log_probs, step.action[:, None], -1)[:, 0]
        near = step.value + jnp.clip(value - step.value, -CLIP, CLIP)
        errors = jnp.maximum((value - target) ** 2, (near - target) ** 2)
        ratio = jnp.exp(log_prob - step.log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
        gain = jnp.minimum(ratio * advantage, clipped * advantage).mean()
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
        return VALUE * 0.5 * errors.mean() - gain - ENTROPY * entropy

    def minibatch(state: Any, batch: Any):
        params, optimizer = state
        value, grads = jax.value_and_grad(loss)(params, batch)
        rate = RATE * (1 - optimizer[2] / total)
        return adam.update(grads, optimizer, params, rate, most=0.5), value

    def epoch(state: Any, _: None):
        params, optimizer, batch, key = state
        key, shuffle = jax.random.split(key)
        order = jax.random.permutation(shuffle, envs * steps)

        def parts(x: jax.Array) -> jax.Array:
            x = x.reshape(envs * steps, *x.shape[2:])[order]
            return x.reshape(MINIBATCHES, -1, *x.shape[1:])

        batches = jax.tree.map(parts, batch)
        (params, optimizer), losses = lax.scan(minibatch, (params, optimizer), batches)
        return (params, optimizer, batch, key), losses

    def update(state: Any, _: None):
        params, optimizer, env, key = state
        first = params, env, key
        (params, env, key), taken = lax.scan(rollout_step, first, None, steps)
        _, last = policy_and_value(params, env[0])
        batch = (taken, *advantages(taken, last))
        first = params, optimizer, batch, key
        (params, optimizer, _, key), losses = lax.scan(epoch, first, None, EPOCHS)
        return (params, optimizer, env, key), (taken.done.mean(), losses)

    start = params, adam.init(params), env, key
    (params, *_), (ended, losses) = lax.scan(update, start, None, updates)
    return {"params": params, "ended": ended, "losses": losses}


def _program(envs: int, steps: int, updates: int) -> Program:
    def build():
        def ppo(key: Any):
            return train(key, envs, steps, updates)

        return ppo, (jax.random.key(0),)

    # later updates depend on actions that a rounding may turn
    def first_losses(result: Any) -> Any:
        return result["losses"][0, 0]

    return Program(f"ppo/{envs}", build, checked=first_losses, tolerance=1e-2)


PROGRAMS = [
    _program(16, steps=128, updates=8),
    _program(64, steps=128, updates=4),
    _program(512, steps=64, updates=2),
    _program(2048, steps=32, updates=2),
]
