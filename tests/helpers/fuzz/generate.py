"""From a seed to a random loop."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from fuzz import arrays, numbers, operations
from fuzz.operations import Operation, Pool, Proposal
from fuzz.program import NAMESPACE, Program, Step, Value

#: how often each kind of operation is tried
OPERATIONS: dict[Operation, int] = {
    operations.smooth: 4,
    operations.binary: 5,
    operations.keeps_exact: 2,
    operations.jumps: 1,
    operations.comparison: 2,
    operations.integer: 4,
    operations.boolean: 1,
    operations.conversion: 2,
    operations.where: 2,
    arrays.moving: 5,
    arrays.joining: 1,
    arrays.counting: 1,
    arrays.reducing: 3,
    arrays.ordering: 1,
    arrays.product: 3,
    arrays.reading: 3,
    arrays.writing: 3,
    arrays.slicing_in: 1,
    arrays.control: 2,
    arrays.drawing: 1,
    numbers.matrix: 1,
    numbers.complex_number: 1,
    numbers.window: 1,
    numbers.row_order: 1,
    numbers.updating: 1,
}
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
#: how often there are arrays without elements, and complex numbers among the inputs
EMPTY, COMPLEX = 0.03, 0.08
LARGEST_BOUND = 1e3


def generate(seed: tuple[int, ...], mode: str) -> Program:
    """The random loop of a seed; for gradients, in float64 and without while."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice(SIZES, 2)
    if rng.random() < EMPTY:
        sizes[0] = 0
    floats = rng.choice(
        ["float64", "float32", "float16", "bfloat16"], p=[0.7, 0.2, 0.05, 0.05]
    )
    if mode == "grad":
        floats = "float64"
    ints = rng.choice(
        ["int32", "int64", "uint32", "int8", "uint8", "uint64", "int16"],
        p=[0.4, 0.15, 0.15, 0.1, 0.1, 0.05, 0.05],
    )

    pairs = {"float32": "complex64", "float64": "complex128"}.get(str(floats), "bool")
    is_complex = mode != "while" and rng.random() < COMPLEX

    def inputs(letter: str, low: int, high: int, exact: bool) -> tuple[Value, ...]:
        found = []
        for k in range(rng.integers(low, high, endpoint=True)):
            second = pairs if is_complex else str(floats)
            kinds = [str(floats), second, str(ints), "bool"]
            dtype = kinds[rng.choice(4, p=[0.4, 0.25, 0.3, 0.05])]
            rank = int(rng.choice([0, 1, 2, 3], p=[0.25, 0.4, 0.3, 0.05]))
            shape = tuple(int(n) for n in rng.choice(sizes, rank))
            while not arrays.fits(shape) and 0 not in shape:
                shape = shape[1:]
            value = Value(f"{letter}{k}", dtype, shape)
            sure = not value.is_complex and (exact or not value.is_float)
            found.append(replace(value, exact=sure))
        return tuple(found)

    consts, carry, xs = (
        inputs("k", 0, 2, True),
        inputs("c", 1, 3, False),
        inputs("x", 0, 3, True),
    )
    pool = Pool(rng, [*consts, *xs, *carry], mode)
    steps: list[Step] = []
    wanted = int(rng.integers(2, 5 if mode == "grad" else 8))
    kinds = list(OPERATIONS)
    weights = np.array([OPERATIONS[k] for k in kinds], float)
    for _ in range(10 * wanted):
        if len(steps) == wanted:
            break
        propose = kinds[rng.choice(len(kinds), p=weights / weights.sum())]
        try:
            proposal = propose(pool)
        except (ValueError, ZeroDivisionError):  # no place in an array without any
            continue
        if proposal is not None and (step := _step(proposal, len(steps))):
            steps.append(step)
            pool.values.append(step.value)
    after = [_after(pool, value) for value in carry]
    some = [s.value.name for s in steps if rng.random() < 0.5][-4:]
    return Program(
        seed,
        consts,
        carry,
        xs,
        tuple(steps),
        tuple(text for text, _ in after),
        tuple(arg for _, arg in after),
        tuple(some or [pool.values[-1].name]),
    )


def _step(proposal: Proposal, number: int) -> Step | None:
    kinds = tuple((v.dtype, v.shape) for v in proposal.args)
    result = _type_of(proposal.text, kinds)
    if result is None or not arrays.fits(result[1]):
        return None
    text, bound = proposal.text, proposal.bound
    value = Value(f"v{number}", *result, proposal.exact, bound)
    if value.is_complex and bound > LARGEST_BOUND:
        return None
    if value.is_float and bound > LARGEST_BOUND:
        text, value = f"jnp.tanh({text})", Value(value.name, *result, False, 1.0)
    if not value.is_float and not value.is_complex:
        value = Value(value.name, *result, True)
    return Step(value, text, tuple(v.name for v in proposal.args))


@cache
def _type_of(text: str, kinds: tuple) -> tuple[str, tuple[int, ...]] | None:
    """The type a text has for arguments of these types; None if it has none."""
    names = [f"a{k}" for k in range(len(kinds))]
    scope = dict(NAMESPACE)
    exec(f"def f({', '.join(names)}): return {text.format(*names)}", scope)
    structs = [jax.ShapeDtypeStruct(s, jnp.dtype(d)) for d, s in kinds]
    try:
        out = jax.eval_shape(scope["f"], *structs)
    except (TypeError, ValueError, IndexError, ArithmeticError):
        return None
    return jnp.dtype(out.dtype).name, out.shape


def _after(pool: Pool, carry: Value) -> tuple[str, str]:
    """The next value of a carry, as a text and what it is of."""
    same = lambda v: (v.dtype, v.shape) == (carry.dtype, carry.shape)
    fresh = pool.pick(lambda v: same(v) and v.name.startswith("v"))
    value = fresh or pool.pick(same) or carry
    if pool.chance(0.15):
        value = pool.pick(same) or carry
    if carry.is_complex and value.bound > carry.bound:
        return f"{{0}} * {carry.bound / value.bound:g}", value.name
    fits = not carry.is_float or value.bound <= carry.bound
    return ("{0}" if fits else "jnp.tanh({0})"), value.name
