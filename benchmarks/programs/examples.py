"""Examples of libraries, as their documentation has them: for the census of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from programs.program import Build, Program

KEY = jax.random.key(0)
ROWS = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")


def _van_der_pol(t: Any, y: Any, args: Any) -> Any:
    x, v = y
    return jnp.stack([v, args * (1 - x**2) * v - x])


def _solved(batch: int = 0, gradient: bool = False, **options: Any) -> Build:
    """A solution by Diffrax, of one problem or a batch of them."""

    def build() -> Any:
        import diffrax as dfx

        solver = getattr(dfx, options.get("solver", "Tsit5"))()
        steps = dfx.PIDController(rtol=1e-4, atol=1e-6)
        save = {
            "end": lambda: dfx.SaveAt(t1=True),
            "times": lambda: dfx.SaveAt(ts=jnp.linspace(0, 1, 11)),
            "steps": lambda: dfx.SaveAt(steps=True),
            "dense": lambda: dfx.SaveAt(dense=True),
        }[options.get("save", "end")]()
        event = None
        if options.get("event"):
            event = dfx.Event(lambda t, y, args, **kwargs: y[0] < 0)
        more = {}
        if adjoint := options.get("adjoint"):
            more["adjoint"] = getattr(dfx, adjoint)()

        def solve(mu: Any) -> Any:
            found = dfx.diffeqsolve(
                dfx.ODETerm(_van_der_pol),
                solver,
                0.0,
                1.0,
                0.01,
                jnp.array([1.0, 0.0]),
                args=mu,
                saveat=save,
                stepsize_controller=steps,
                event=event,
                max_steps=256,
                throw=False,
                **more,
            )
            if options.get("save") == "dense":
                return found.evaluate(0.5)
            return found.ys

        f = jax.vmap(solve) if batch else solve
        g = lambda mu: jnp.sum(f(mu) ** 2)
        mu = jnp.linspace(0.5, 2.0, batch) if batch else jnp.float32(1)
        return (jax.grad(g) if gradient else f), (mu,)

    return build


def _sde() -> Any:
    import diffrax as dfx

    def solve(key: Any) -> Any:
        path = dfx.VirtualBrownianTree(0, 1, tol=1e-3, shape=(), key=key)
        terms = dfx.MultiTerm(
            dfx.ODETerm(lambda t, y, args: -y),
            dfx.ControlTerm(lambda t, y, args: 0.1, path),
        )
        found = dfx.diffeqsolve(terms, dfx.Heun(), 0, 1, 0.05, 1.0, throw=False)
        return found.ys

    return jax.vmap(solve), (jax.random.split(KEY, 16),)


def _neural_ode() -> Any:
    import diffrax as dfx
    import equinox as eqx

    net = eqx.nn.MLP(2, 2, 32, 2, key=KEY)
    params, static = eqx.partition(net, eqx.is_array)

    def loss(params: Any, y0: Any) -> Any:
        field = lambda t, y, args: eqx.combine(params, static)(y)
        solve = lambda y0: (
            dfx.diffeqsolve(
                dfx.ODETerm(field),
                dfx.Tsit5(),
                0,
                1,
                0.1,
                y0,
                throw=False,
                max_steps=64,
            ).ys
        )
        return jnp.mean(jax.vmap(solve)(y0) ** 2)

    return jax.grad(loss), (params, jnp.ones((32, 2)))


def _sampled(kernel: str, chains: int = 0) -> Build:
    def build() -> Any:
        import numpyro
        import numpyro.distributions as dist
        from numpyro import infer

        y = (ROWS @ np.array([1.0, -2.0, 0.5, 0.0]) > 0).astype(int)

        def model(x: Any, y: Any) -> None:
            weights = numpyro.sample("w", dist.Normal(0, 1).expand([4]))
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

        def run(key: Any) -> Any:
            method = getattr(infer, kernel)(model)
            mcmc = infer.MCMC(method, num_warmup=20, num_samples=20, progress_bar=False)
            mcmc.run(key, jnp.asarray(ROWS), jnp.asarray(y))
            return mcmc.get_samples()

        return (
            (jax.vmap(run), (jax.random.split(KEY, chains),))
            if chains
            else (run, (KEY,))
        )

    return build


def _svi() -> Any:
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    def model(x: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 1).expand([4]))
        numpyro.sample("x", dist.Normal(mean, 1), obs=x)

    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-2), Trace_ELBO())
    run = lambda key: svi.run(key, 50, jnp.asarray(ROWS), progress_bar=False).losses
    return run, (KEY,)


def _kalman(what: str, batch: int = 0) -> Build:
    def build() -> Any:
        from dynamax.linear_gaussian_ssm import LinearGaussianSSM

        model = LinearGaussianSSM(3, 2)
        params, _ = model.initialize(KEY)
        f = lambda y: getattr(model, what)(params, y).filtered_means
        y = jax.random.normal(KEY, (50, 2))
        if batch:
            return jax.vmap(f), (jnp.stack([y] * batch),)
        return f, (y,)

    return build


def _hmm(what: str) -> Build:
    def build() -> Any:
        from dynamax.hidden_markov_model import GaussianHMM

        model = GaussianHMM(4, 2)
        params, _ = model.initialize(KEY)
        return lambda y: getattr(model, what)(params, y), (
            jax.random.normal(KEY, (50, 2)),
        )

    return build


def _rosenbrock(x: Any) -> Any:
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def _bfgs() -> Any:
    from jax.scipy.optimize import minimize

    run = lambda x: minimize(_rosenbrock, x, method="BFGS").x
    return jax.vmap(run), (jnp.ones((8, 4)) * 0.5,)


def _optimistix(what: str) -> Build:
    def build() -> Any:
        import optimistix as optx

        if what == "minimise":
            solver = optx.BFGS(rtol=1e-4, atol=1e-4)
            f = lambda x: (
                optx.minimise(lambda y, _: _rosenbrock(y), solver, x, throw=False).value
            )
        else:
            solver = optx.Newton(rtol=1e-4, atol=1e-4)
            f = lambda x: (
                optx.root_find(
                    lambda y, _: jnp.cos(y) - y, solver, x, throw=False
                ).value
            )
        return jax.vmap(f), (jnp.ones((8, 4)) * 0.5,)

    return build


def _lineax() -> Any:
    import lineax as lx

    matrix = jnp.asarray(ROWS.T @ ROWS) + jnp.eye(4)

    def solve(b: Any) -> Any:
        operator = lx.MatrixLinearOperator(matrix, lx.positive_semidefinite_tag)
        solver = lx.CG(rtol=1e-4, atol=1e-4)
        return lx.linear_solve(operator, b, solver, throw=False).value

    return jax.vmap(solve), (jnp.asarray(ROWS),)


def _optax(how: str) -> Build:
    def build() -> Any:
        import optax

        method = getattr(optax, how)(1e-2) if how != "lbfgs" else optax.lbfgs()
        value_and_grad = jax.value_and_grad(_rosenbrock)

        def run(x: Any) -> Any:
            def step(state: Any, _: Any) -> Any:
                x, inner = state
                value, grad = value_and_grad(x)
                more = (
                    {"value": value, "grad": grad, "value_fn": _rosenbrock}
                    if how == "lbfgs"
                    else {}
                )
                updates, inner = method.update(grad, inner, x, **more)
                return (optax.apply_updates(x, updates), inner), value

            return jax.lax.scan(step, (x, method.init(x)), None, length=50)[1]

        return run, (jnp.ones(4) * 0.5,)

    return build


def _drawn(name: str, *args: Any) -> Program:
    draw: Callable[..., Any] = getattr(jax.random, name)
    return Program(f"random/{name}", lambda: (lambda key: draw(key, *args), (KEY,)))


def _special(name: str, *args: Any) -> Program:
    function: Callable[..., Any] = getattr(jax.scipy.special, name)
    return Program(f"special/{name}", lambda: (function, args))


POINTS = jnp.linspace(0.1, 0.9, 64)
DIFFRAX = ("diffrax",)

PROGRAMS = [
    Program("diffrax/one", _solved(), DIFFRAX),
    Program("diffrax/batch", _solved(64), DIFFRAX),
    Program("diffrax/times", _solved(64, save="times"), DIFFRAX),
    Program("diffrax/steps", _solved(64, save="steps"), DIFFRAX),
    Program("diffrax/dense", _solved(save="dense"), DIFFRAX),
    Program("diffrax/event", _solved(64, event=True), DIFFRAX),
    Program("diffrax/Dopri8", _solved(64, solver="Dopri8"), DIFFRAX),
    Program("diffrax/Kvaerno5", _solved(solver="Kvaerno5"), DIFFRAX),
    Program("diffrax/gradient", _solved(64, gradient=True), DIFFRAX),
    Program("diffrax/direct", _solved(64, True, adjoint="DirectAdjoint"), DIFFRAX),
    Program("diffrax/SDE", _sde, DIFFRAX),
    Program("diffrax/neural ODE", _neural_ode, DIFFRAX),
    Program("numpyro/NUTS", _sampled("NUTS"), ("numpyro",)),
    Program("numpyro/NUTS chains", _sampled("NUTS", 16), ("numpyro",)),
    Program("numpyro/HMC", _sampled("HMC"), ("numpyro",)),
    Program("numpyro/SVI", _svi, ("numpyro",)),
    Program("dynamax/filter", _kalman("filter"), ("dynamax",)),
    Program("dynamax/smoother", _kalman("smoother", 8), ("dynamax",)),
    *(
        Program(f"dynamax/HMM {what}", _hmm(what), ("dynamax",))
        for what in ("filter", "smoother", "most_likely_states")
    ),
    Program("jax/BFGS", _bfgs),
    Program("optimistix/BFGS", _optimistix("minimise"), ("optimistix",)),
    Program("optimistix/Newton", _optimistix("root"), ("optimistix",)),
    Program("lineax/CG", _lineax, ("lineax",)),
    *(Program(f"optax/{how}", _optax(how), ("optax",)) for how in ("adam", "lbfgs")),
    _drawn("gamma", POINTS),
    _drawn("poisson", 5 * POINTS),
    _drawn("binomial", 9, POINTS),
    _drawn("permutation", 100),
    _drawn("dirichlet", POINTS),
    _special("gammainc", 2.0, POINTS),
    _special("betainc", 2.0, 3.0, POINTS),
    _special("i0e", POINTS),
]
