"""Check mode: run both engines on every call of a loop, and compare.

Two right programs round differently, and a loop amplifies that: a chaotic map
that differs in the last bit soon differs in every bit.  No fixed tolerance will do,
so `rounding` measures what rounding does to this loop on these inputs, and
`SLACK` times that is what the native engine is allowed.  For ys it is the most that
was seen up to each step, in the order the loop runs, so that the first steps are
held tightly however wild the end is.

Values that are not floats are treated alike: where rounding cannot reach them, the
allowance is zero and they must be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir

from onescan import compat, switches
from onescan.checking.rounding import perturbed_runs
from onescan.errors import CheckError
from onescan.loop import Loop
from onescan.lowering.outcome import Native
from onescan.passes.surround import Lower

SLACK = 64  # times what rounding was seen to do; and as many units in the last place


def lower_both(
    ctx: Any, loop: Loop, native: Native, args: Sequence[Any], by_jax: Lower
) -> Sequence[Any]:
    """Lower both engines, and a comparison that raises `CheckError` when it runs."""
    ours = native.lower(ctx.replace(), *args)
    with switches.using(engine="xla"):
        ctx = compat.with_fresh_caches(ctx)
        stock = by_jax(ctx.replace(), *args)

        def compared(*values: Any) -> list[Any]:
            inputs, results = values[: len(args)], values[len(args) :]
            return _compared(loop, inputs, results[: len(ours)], results[len(ours) :])

        avals = (*ctx.avals_in, *ctx.avals_out, *ctx.avals_out)
        lower = mlir.lower_fun(compared, multiple_results=True)
        with jax.enable_x64(True):  # a program may hold both kinds of loops
            return lower(ctx.replace(avals_in=avals), *args, *ours, *stock)


def _compared(
    loop: Loop, inputs: Sequence[Any], ours: Sequence[Any], stock: Sequence[Any]
) -> list[Any]:
    """`ours`, made to depend on the comparison so that it is not optimised away."""
    runs = perturbed_runs(loop, inputs)
    found = [
        _compare(loop, i, _plain(a), _plain(b), [_plain(run[i]) for run in runs])
        for i, (a, b) in enumerate(zip(ours, stock, strict=True))
        if np.size(a)
    ]
    if not found:
        return list(ours)
    names = [_leaf_name(loop, i) for i, a in enumerate(ours) if np.size(a)]
    shapes = [np.shape(_plain(a)) for a in ours if np.size(a)]

    def complain(found: Any) -> NoReturn:
        raise CheckError(_message(loop, names, shapes, found))

    agreed = lax.cond(
        jnp.any(jnp.stack([bad for bad, *_ in found])),
        lambda: jax.pure_callback(complain, jax.ShapeDtypeStruct((), bool), found),
        lambda: jnp.array(True),
    )
    return [jnp.where(agreed, a, b) for a, b in zip(ours, stock, strict=True)]


def _compare(
    loop: Loop, i: int, ours: Any, stock: Any, runs: Sequence[Any]
) -> tuple[Any, ...]:
    """(is any element bad, the worst one, our value there, XLA's, the allowance)."""
    spread = jnp.stack([_distance(run, stock) for run in runs]).max(axis=0)
    if i < loop.num_carry:
        spread = jnp.broadcast_to(spread.max(), ours.shape)
    else:
        spread = _most_so_far(spread, loop.reverse)
    allowed = SLACK * spread
    if jnp.issubdtype(ours.dtype, jnp.inexact):
        info = jnp.finfo(ours.dtype)
        size = jnp.where(jnp.isfinite(stock), jnp.abs(_wide(stock)), 0)
        allowed += SLACK * (float(info.eps) * size + float(info.smallest_normal))
    distance = _distance(ours, stock)
    bad = distance > allowed
    severity = jnp.where(bad, distance / jnp.maximum(allowed, 1e-30), -1)
    worst = jnp.argmax(severity)
    return (bad.any(), worst, *(v.ravel()[worst] for v in (ours, stock, allowed)))


def _most_so_far(spread: Any, reverse: bool) -> Any:
    """The largest spread of any element, up to each step."""
    by_step = spread.reshape(spread.shape[0], -1).max(axis=1)
    most = lax.cummax(by_step, reverse=reverse)
    return jnp.broadcast_to(jnp.expand_dims(most, range(1, spread.ndim)), spread.shape)


def _distance(a: Any, b: Any) -> Any:
    """|a - b| as a float: zero only where equal, infinite where one is not a number."""
    distance = jnp.abs(_wide(a) - _wide(b))
    distance = jnp.where(jnp.isnan(distance), jnp.inf, distance)
    if not jnp.issubdtype(a.dtype, jnp.inexact):
        distance = jnp.maximum(distance, 1)  # large integers are equal as floats
    return jnp.where((a == b) | ((a != a) & (b != b)), 0, distance)


def _wide(x: Any) -> Any:
    """In the widest float there is, so that differences do not overflow."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return x
    return x.astype(jnp.result_type(float))


def _plain(x: Any) -> Any:
    """Keys as the numbers they consist of."""
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(x) if is_key else x


def _leaf_name(loop: Loop, i: int) -> str:
    return f"carry {i}" if i < loop.num_carry else f"ys {i - loop.num_carry}"


def _message(loop: Loop, names: list[str], shapes: list[Any], found: Any) -> str:
    bad = [leaf for leaf in zip(names, shapes, found, strict=True) if leaf[2][0]]
    (name, shape, (_, worst, ours, stock, allowed)), *others = bad
    index = ", ".join(str(int(i)) for i in np.unravel_index(int(worst), shape))
    also = f" So do {', '.join(name for name, *_ in others)}." if others else ""
    return (
        f"{loop}: the native engine and XLA disagree beyond rounding in {name} at "
        f"[{index}]: {np.asarray(ours)} against XLA's {np.asarray(stock)}, where "
        f"rounding explains a difference of {float(allowed):.3g}.{also} This is a "
        f'fault of onescan: please report it, and use onescan.engine("xla") until '
        f"it is mended."
    )
