"""Operations on complex numbers, on small matrices and along windows; sorts of rows."""

from __future__ import annotations

from fuzz.operations import Pool, Proposal
from fuzz.program import Value

ROWS = 9  # of a matrix, at most
DEFINITE = (
    "(jnp.tanh({0})[..., :, None] * jnp.tanh({0})[..., None, :] / {n}"
    " + jnp.eye({n}, dtype={0}.dtype))"
)
#: with a solution, and pivots that differ by more than rounding
DOMINANT = (
    "(jnp.tanh({0}[..., :, None] - 0.5 * {0}[..., None, :]) / {n}"
    " + 2 * jnp.eye({n}, dtype={0}.dtype))"
)
SOLVE = "lax.linalg.triangular_solve({a}, {0}[..., None], left_side=True, {options})"

#: functions of matrices, whatever the signs of their vectors
TANH_OF_MATRIX = (
    "(lambda w, v: (v * jnp.tanh(w)[..., None, :]) @ jnp.swapaxes(v, -1, -2))"
    "(*jnp.linalg.eigh({a} + {d}))"
)
ROOT_OF_MATRIX = (
    "(lambda u, s, v: (u * jnp.sqrt(s)[..., None, :]) @ v)(*jnp.linalg.svd({a}))"
)


def is_precise(v: Value) -> bool:
    return v.dtype in ("float32", "float64")


def matrix(pool: Pool) -> Proposal | None:
    """Factors of a matrix made of rows, and solutions with it."""
    x = pool.pick(
        lambda v: is_precise(v) and 0 < len(v.shape) < 3 and v.shape[-1] <= ROWS
    )
    if x is None:
        return None
    lower, swap, unit = (pool.chance(0.5) for _ in range(3))
    options = f"lower={lower}, transpose_a={swap}, unit_diagonal={unit}"
    n = x.shape[-1]
    forms = [
        "jnp.linalg.cholesky({d})",
        "jax.scipy.linalg.cho_solve((jnp.linalg.cholesky({d}), True), {0}[..., None])",
        SOLVE,
        "lax.linalg.lu({a})[0]",
        "jnp.linalg.solve({a}, {0}[..., None])",
        "jnp.linalg.qr({a})[0]",
        "jnp.linalg.qr({a})[1]",
        "jnp.linalg.inv({a})",
        "jnp.linalg.slogdet({a})[1]",
        "jnp.linalg.eigvalsh({a} + {d})",
        "jnp.linalg.svd({a}, compute_uv=False)",
        "jnp.linalg.norm({a}, ord=2, axis=(-2, -1))",
    ]
    if n:  # of nothing JAX itself has no gradient
        forms.append("jnp.linalg.det({a})")
    if pool.mode != "grad":  # of vectors of values that may be near to each other
        forms += [TANH_OF_MATRIX, ROOT_OF_MATRIX]
    text = pool.choice(forms)
    for key, value in (("{d}", DEFINITE), ("{a}", DOMINANT), ("{options}", options)):
        text = text.replace(key, value)
    bound = x.bound * n + 2.0**n if "det" in text else (x.bound + 1) * 2 * n
    return Proposal(text.replace("{n}", str(n)), (x,), False, bound)


def joined(pool: Pool) -> Proposal | None:
    """A complex number of two real ones."""
    x = pool.pick(is_precise)
    y = x and pool.pick(lambda v: (v.dtype, v.shape) == (x.dtype, x.shape))
    return y and Proposal("lax.complex({0}, {1})", (x, y), False, x.bound + y.bound)


def complex_number(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: v.is_complex)
    y = x and pool.pick(lambda v: (v.dtype, v.shape) == (x.dtype, x.shape))
    if x is None or y is None:
        return joined(pool)
    b = x.bound
    forms: list[tuple[str, float]] = [
        ("{0} + {1}", b + y.bound),
        ("{0} - {1}", b + y.bound),
        ("{0} * {1}", b * y.bound),
        ("{0} / ({1} * jnp.conj({1}) + 1)", b),
        ("{0} * (0.5 - 0.25j)", b),
        ("-{0}", b),
        ("jnp.conj({0})", b),
        ("jnp.exp({0} * %g)" % (1 / max(b, 1)), 3),
        ("jnp.sin({0} * %g)" % (1 / max(b, 1)), 3),
        ("jnp.tanh({0} * %g)" % (1 / max(b, 1)), 3),
        ("jnp.sqrt({0} * {0} + %g)" % (b * b + 1), 2 * b + 1),
        ("lax.integer_pow({0}, 2)", b * b),
        ("jnp.real({0})", b),
        ("jnp.imag({0})", b),
        ("jnp.abs({0} + %g)" % (2 * b + 1), 4 * b + 1),
        ("jnp.where(jnp.real({0}) != jnp.real({0}), {0}, {1})", max(b, y.bound)),
    ]
    if x.shape and x.shape[-1] & (x.shape[-1] - 1) == 0:
        n = x.shape[-1]
        forms += [
            ("jnp.fft.fft({0})", b * n),
            ("jnp.fft.ifft({0})", b),
            (f"jnp.fft.irfft({{0}}, {n})", 2 * b),
        ]
        if n:  # of nothing JAX itself cannot lower it
            forms += [("jnp.fft.rfft(jnp.real({0}))", b * n)]
    if x.shape:
        forms += [("{0}.sum(0)", b * x.shape[0]), ("{0} @ {0}.T", b * b * max(x.shape))]
    text, bound = pool.choice(forms)
    return Proposal(text, (x, y) if "{1}" in text else (x,), False, bound)


def window(pool: Pool) -> Proposal | None:
    """Convolutions and pools with small windows."""
    x = pool.pick(lambda v: is_precise(v) and 0 < len(v.shape) < 3)
    if x is None or pool.mode == "while":  # where kernels have none
        return None
    rank, places, stride = len(x.shape), pool.number(1, 3), pool.number(1, 2)
    padding = pool.choice(("SAME", "VALID"))
    size = f"{(1,) * (rank - 1) + (places,)}, {(1,) * (rank - 1) + (stride,)}"
    pool_of = lambda start, f: (
        f"lax.reduce_window({{0}}, {start}, {f}, {size}, '{padding}')"
    )
    forms = [(pool_of("0.0", "lax.add"), False, places)]
    if pool.mode != "grad":  # the gradient of an extreme has no native rule
        forms.append((pool_of("-jnp.inf", "lax.max"), True, 1))
        forms.append((pool_of("jnp.inf", "lax.min"), True, 1))
    if rank == 1:
        taps = f"jnp.array({[0.5, -1.0, 0.25][:places]}, {{0}}.dtype)"
        row, rest = "{0}[None, None]", f"({stride},), [({places - 1}, 0)]"
        causal = f"lax.conv_general_dilated({row}, {taps}[None, None], {rest})[0, 0]"
        same = f"jnp.convolve({{0}}, {taps}, mode='same')"
        forms += [(causal, False, 2), (same, False, 2)]
    text, exact, times = pool.choice(forms)
    return Proposal(text, (x,), exact and x.exact, x.bound * times)


def row_order(pool: Pool) -> Proposal | None:
    """The largest of a row, and one row sorted by another."""
    x = pool.pick(lambda v: len(v.shape) > 0 and v.exact and v.is_real)
    y = x and pool.pick(lambda v: v.shape == x.shape and v.exact)
    if x is None or y is None:
        return None
    k, which = pool.number(1, x.shape[-1]), pool.number(0, 1)
    forms = [
        f"lax.top_k({{0}}, {k})[{which}]",
        f"lax.sort(({{0}}, {{1}}), num_keys=1)[{which}]",
        f"lax.sort(({{0}}, {{1}}), dimension=0, num_keys=2)[{which}]",
    ]
    text = pool.choice(forms)
    args = (x, y) if "{1}" in text else (x,)
    return Proposal(text, args, True, max(v.bound for v in args))


def updating(pool: Pool) -> Proposal | None:
    """A row of a carry, written in place."""
    x = pool.pick(lambda v: v.name[0] == "c" and len(v.shape) > 0)
    i = pool.index()
    u = x and pool.pick(lambda v: v.dtype == x.dtype and v.shape == x.shape[1:])
    if x is None or i is None or u is None:
        return None
    forms = [
        "{0}.at[{1}].set({2})",
        "{0}.at[{1}].set({2}, mode='clip')",
        "lax.dynamic_update_index_in_dim({0}, {2}, {1}, 0)",
        "{0}.at[{1}].set({0}[{1}] * 0 + {2})",
        f"{{0}}.at[{{1}} % {x.shape[0]}].set({{2}}, mode='promise_in_bounds')",
    ]
    exact = x.exact and u.exact
    return Proposal(pool.choice(forms), (x, i, u), exact, max(x.bound, u.bound))
