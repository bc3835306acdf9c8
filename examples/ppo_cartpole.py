"""Reinforcement learning in one compiled loop: PPO balances a pole on a cart.

Nothing leaves the device: the world, the policy that acts in it, the advantages, the
shuffled minibatches and the optimiser are one step, and the steps are one loop. `fit`
is given no data, because the world makes it, and `until` ends the run when the policy
is good enough.

Add `--quick` for a short run. The learning curves are saved as `ppo_cartpole.png`.

Run it with `python examples/ppo_cartpole.py`.
"""

import sys

import jax
import jax.numpy as jnp
import optax

import onescan
from onescan import train

WORLDS, HORIZON = 32, 128  # acted in at once, for that many moments a step
PASSES, PARTS = 4, 4  # over what was seen, in that many minibatches
GAMMA, DECAY, CLIP = 0.99, 0.95, 0.2
LIMIT = 500  # moments of an episode, each worth a reward of one
GOOD = 450.0
ADAM = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))


def push(world, action):
    """One moment of physics: position, speed, angle and its speed."""
    x, v, angle, turn = world
    force = jnp.where(action == 1, 10.0, -10.0)
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    pushed = (force + 0.05 * turn**2 * sin) / 1.1
    bent = (9.8 * sin - cos * pushed) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    moved = pushed - 0.05 * bent * cos / 1.1
    return jnp.stack(
        [x + 0.02 * v, v + 0.02 * moved, angle + 0.02 * turn, turn + 0.02 * bent]
    )


def fresh(key):
    return jax.random.uniform(key, (4, WORLDS), minval=-0.05, maxval=0.05)


def init(key):
    keys = jax.random.split(key, 4)

    def layer(key, rows, columns, scale):
        weights = jax.random.orthogonal(key, max(rows, columns))[:rows, :columns]
        return {"w": scale * weights, "b": jnp.zeros(columns)}

    params = {
        "first": layer(keys[0], 4, 64, 1.4),
        "policy": layer(keys[1], 64, 2, 0.1),
        "value": layer(keys[2], 64, 1, 1.0),
    }
    return {
        "params": params,
        "optimiser": ADAM.init(params),
        "world": fresh(keys[3]),
        "age": jnp.zeros(WORLDS),
        "score": jnp.zeros(()),  # a running mean of the length of episodes
        "key": key,
    }


def judge(params, seen):
    """What to do and how good it looks: logits of actions, values."""
    hidden = jnp.tanh(seen @ params["first"]["w"] + params["first"]["b"])
    policy = hidden @ params["policy"]["w"] + params["policy"]["b"]
    return policy, (hidden @ params["value"]["w"] + params["value"]["b"])[..., 0]


def act(params, carry, key):
    """One moment in all worlds."""
    world, age, score = carry
    policy, value = judge(params, world.T)
    draw, again = jax.random.split(key)
    action = jax.random.categorical(draw, policy)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(policy), action[:, None], 1)[:, 0]
    after, age = push(world, action), age + 1
    over = (jnp.abs(after[0]) > 2.4) | (jnp.abs(after[2]) > 0.2095) | (age >= LIMIT)
    weight = 0.3 * over.mean()
    score = (1 - weight) * score + weight * (age * over).sum() / jnp.maximum(
        over.sum(), 1
    )
    seen = {"seen": world.T, "action": action, "log": chosen, "value": value}
    after = jnp.where(over, fresh(again), after)
    return (after, jnp.where(over, 0.0, age), score), seen | {"over": over}


def advantages(seen, last):
    def back(carry, x):
        advantage, following = carry
        alive = 1.0 - x["over"]
        error = 1.0 + GAMMA * following * alive - x["value"]
        advantage = error + GAMMA * DECAY * alive * advantage
        return (advantage, x["value"]), advantage

    start = jnp.zeros_like(last), last
    return onescan.scan(back, start, seen, reverse=True)[1]


def loss(params, part):
    policy, value = judge(params, part["seen"])
    logs = jax.nn.log_softmax(policy)
    chosen = jnp.take_along_axis(logs, part["action"][:, None], 1)[:, 0]
    ratio = jnp.exp(chosen - part["log"])
    gain = part["advantage"]
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    limited = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
    actor = -jnp.minimum(ratio * gain, limited * gain).mean()
    critic = jnp.mean((value - part["target"]) ** 2)
    return actor + 0.5 * critic - 0.01 * entropy


def step(state, _):
    """Act for a while, then learn from it."""
    key, *keys = jax.random.split(state["key"], 3)
    params = state["params"]
    carry = state["world"], state["age"], state["score"]
    moments = jax.random.split(keys[0], HORIZON)
    carry, seen = onescan.scan(lambda c, k: act(params, c, k), carry, moments)
    seen["advantage"] = advantages(seen, judge(params, carry[0].T)[1])
    seen["target"] = seen["advantage"] + seen["value"]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), seen)

    def learn(carry, part):
        params, optimiser = carry
        value, grads = jax.value_and_grad(loss)(
            params, jax.tree.map(lambda leaf: leaf[part], flat)
        )
        updates, optimiser = ADAM.update(grads, optimiser)
        return (optax.apply_updates(params, updates), optimiser), value

    orders = jax.vmap(lambda k: jax.random.permutation(k, WORLDS * HORIZON))(
        jax.random.split(keys[1], PASSES)
    )
    parts = orders.reshape(PASSES * PARTS, -1)
    learned, losses = onescan.scan(learn, (params, state["optimiser"]), parts)
    params, optimiser = learned
    world, age, score = carry
    new = {"params": params, "optimiser": optimiser, "key": key}
    new |= {"world": world, "age": age, "score": score}
    return new, {"length of episodes": score, "loss": losses.mean()}


def main(steps=300):
    good = lambda state, metrics: metrics["length of episodes"] > GOOD
    run = train.fit(step, init(jax.random.key(0)), steps=steps, until=good)
    lengths = run.metrics["length of episodes"]
    moments = run.steps * WORLDS * HORIZON
    print(f"{run.steps} steps of PPO, {moments} moments in {WORLDS} worlds")
    print(f"episodes last {lengths[-1]:.0f} moments of at most {LIMIT}")
    run.plot("ppo_cartpole.png", title="PPO on cart-pole", smooth=1)
    print("learning curves: ppo_cartpole.png")
    return run


if __name__ == "__main__":
    main(steps=3 if "--quick" in sys.argv else 300)
