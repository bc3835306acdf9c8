"""Rigid bodies: steps of MuJoCo's MJX and of Brax's environments, as one scan."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from programs.program import Build, Program

KEY = jax.random.key(0)
STEPS, WORLDS = 20, 64

PENDULUM = """
<mujoco>
  <worldbody>
    <body>
      <joint type="hinge" axis="0 1 0"/>
      <geom type="capsule" size=".05" fromto="0 0 0 .5 0 -.5"/>
      <body pos=".5 0 -.5">
        <joint type="hinge" axis="0 1 0"/>
        <geom type="capsule" size=".05" fromto="0 0 0 .5 0 0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
CART_POLE = """
<mujoco>
  <worldbody>
    <body>
      <joint name="slide" type="slide" axis="1 0 0" limited="true" range="-.1 .1"/>
      <geom type="box" size=".1 .1 .05"/>
      <body>
        <joint type="hinge" axis="0 1 0" damping=".01"/>
        <geom type="capsule" size=".02" fromto="0 0 0 .1 0 .6"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slide" gear="10"/></actuator>
</mujoco>
"""
#: two legs of two links at a trunk that stands on the floor
WALKER = """
<mujoco>
  <option timestep=".005" iterations="8" ls_iterations="8"/>
  <default><geom contype="1" conaffinity="0"/></default>
  <worldbody>
    <geom type="plane" size="5 5 1" contype="0" conaffinity="1"/>
    <body pos="0 0 .59">
      <freejoint/>
      <geom type="sphere" size=".1"/>
      LEGS
    </body>
  </worldbody>
</mujoco>
""".replace(
    "LEGS",
    "".join(
        f"""
      <body pos="0 {side} 0">
        <joint type="hinge" axis="0 1 0" range="-40 40" limited="true" damping=".1"/>
        <geom type="capsule" size=".04" fromto="0 0 0 0 0 -.3"/>
        <body pos="0 0 -.3">
          <joint type="hinge" axis="0 1 0" range="-60 0" limited="true" damping=".1"/>
          <geom type="capsule" size=".04" fromto="0 0 0 0 0 -.25"/>
        </body>
      </body>"""
        for side in (-0.1, 0.1)
    ),
)


def _mjx(model: str, batch: int = 0, gradient: bool = False, **options: Any) -> Build:
    """Positions of a model over some steps, of one world or a batch of them."""

    def build() -> Any:
        import mujoco
        from mujoco import mjx

        described = mujoco.MjModel.from_xml_string(model)
        for name, value in options.items():
            setattr(described.opt, name, value)
        system = mjx.put_model(described)
        start = mjx.make_data(system)

        def run(speed: Any) -> Any:
            def step(data: Any, _: None) -> Any:
                data = mjx.step(system, data)
                return data, data.qpos

            first = start.replace(qvel=start.qvel + speed)
            return jax.lax.scan(step, first, None, length=STEPS)[1]

        f = jax.grad(lambda speed: jnp.sum(run(speed) ** 2)) if gradient else run
        if batch:
            return jax.vmap(f), (jnp.linspace(-1.0, 1.0, batch),)
        return f, (jnp.float32(0.5),)

    return build


def first_steps(result: Any) -> Any:
    """Before rounding has grown: legs that meet the floor make it a few times larger
    in each step, as does another first position."""
    return jax.tree.map(lambda x: x[:3], result)


def _brax(environment: str, backend: str) -> Build:
    """Rewards and observations of a batch of environments under random actions."""

    def build() -> Any:
        from brax import envs

        env = envs.get_environment(environment, backend=backend)
        start = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, WORLDS))
        shape = (STEPS, WORLDS, env.action_size)
        actions = jax.random.uniform(KEY, shape, minval=-1.0)

        def run(state: Any, actions: Any) -> Any:
            def step(state: Any, action: Any) -> Any:
                state = jax.vmap(env.step)(state, action)
                return state, (state.obs, state.reward)

            return jax.lax.scan(step, state, actions)[1]

        return run, (start, actions)

    return build


MJX, BRAX = ("mujoco.mjx",), ("brax",)
RK4 = 1  # mujoco.mjtIntegrator.mjINT_RK4

PROGRAMS = [
    Program("mjx/pendulum", _mjx(PENDULUM), MJX),
    Program("mjx/pendulum batch", _mjx(PENDULUM, WORLDS), MJX),
    Program("mjx/pendulum gradient", _mjx(PENDULUM, WORLDS, gradient=True), MJX),
    Program("mjx/pendulum RK4", _mjx(PENDULUM, WORLDS, integrator=RK4), MJX),
    Program("mjx/cart-pole", _mjx(CART_POLE), MJX),
    Program("mjx/cart-pole batch", _mjx(CART_POLE, WORLDS), MJX),
    Program("mjx/walker", _mjx(WALKER), MJX),
    Program("mjx/walker batch", _mjx(WALKER, WORLDS), MJX),
    *(
        Program(
            f"brax/{environment} {backend}",
            _brax(environment, backend),
            BRAX,
            checked=first_steps,
            agree=0.95,
        )
        for environment in ("inverted_pendulum", "ant")
        for backend in ("generalized", "spring", "positional")
    ),
]
