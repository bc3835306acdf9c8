"""Operations on whole arrays: moving, reducing, multiplying, indexing, control."""

from __future__ import annotations

from math import prod

from fuzz.operations import LARGEST, Pool, Proposal
from fuzz.program import Value


def moving(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: len(v.shape) > 0)
    if x is None:
        return None
    rank, axis = len(x.shape), pool.number(0, len(x.shape) - 1)
    n = x.shape[axis]
    start = pool.number(0, n - 1)
    order = tuple(int(i) for i in pool.rng.permutation(rank))
    low, high, inner = pool.number(-1, 2), pool.number(-1, 2), pool.number(0, 1)
    config = [(0, 0, 0)] * rank
    config[axis] = (low, high, inner)
    whole = ", ".join([":"] * axis)
    before = f"{whole}, " if whole else ""
    forms = [
        f"jnp.transpose({{0}}, {order})",
        f"jnp.flip({{0}}, {axis})",
        f"jnp.roll({{0}}, {pool.number(-2, 2)}, {axis})",
        f"{{0}}[{before}{start}:]",
        f"{{0}}[{before}::{pool.number(1, 3)}]",
        f"{{0}}[{before}{start}]",
        f"jnp.expand_dims({{0}}, {axis})",
        "jnp.ravel({0})",
        f"jnp.reshape({{0}}, {_reshaped(pool, x)})",
        f"jnp.concatenate([{{0}}, {{0}}], {axis})",
        f"jnp.stack([{{0}}, {{0}}], {axis})",
        f"jnp.split({{0}}, [{start}], {axis})[-1]",
        f"jnp.broadcast_to({{0}}, {(pool.number(1, 3), *x.shape)})",
        f"jnp.tile({{0}}, {pool.number(1, 2)})",
    ]
    if n + low + high + inner * (n - 1) > 0:
        forms.append(f"lax.pad({{0}}, jnp.zeros((), {{0}}.dtype), {config})")
    return Proposal(pool.choice(forms), (x,), x.exact, x.bound)


def _reshaped(pool: Pool, x: Value) -> tuple[int, ...]:
    size, shape = x.size, []
    for divisor in (2, 3, 5, 7):
        if size % divisor == 0 and pool.chance(0.5):
            shape.append(divisor)
            size //= divisor
    return tuple(int(n) for n in pool.rng.permutation([*shape, size]))


def joining(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: len(v.shape) > 0)
    if x is None:
        return None
    axis = pool.number(0, len(x.shape) - 1)
    rest = lambda v: (*v.shape[:axis], *v.shape[axis + 1 :])
    y = pool.pick(
        lambda v: (
            v.dtype == x.dtype and len(v.shape) == len(x.shape) and rest(v) == rest(x)
        )
    )
    exact = bool(y and x.exact and y.exact)
    return y and Proposal(
        f"jnp.concatenate([{{0}}, {{1}}], {axis})", (x, y), exact, max(x.bound, y.bound)
    )


def counting(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: len(v.shape) > 0 and v.is_real)
    if x is None:
        return None
    axis = pool.number(0, len(x.shape) - 1)
    text = f"lax.broadcasted_iota({{0}}.dtype, {{0}}.shape, {axis})"
    return Proposal(text, (x,), True, max(x.shape))


def reducing(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: len(v.shape) > 0 and v.is_real)
    if x is None:
        return None
    axes = tuple(k for k in range(len(x.shape)) if pool.chance(0.6)) or (0,)
    n = prod(x.shape[k] for k in axes)
    reverse = pool.chance(0.5)
    scan = lambda name: f"lax.{name}({{0}}, axis={axes[0]}, reverse={reverse})"
    largest = max(x.bound, 1)
    forms: list[tuple[str, bool, float]] = [
        (f"{{0}}.sum({axes})", False, x.bound * n),
        (f"{{0}}.max({axes})", x.exact, x.bound),
        (f"{{0}}.min({axes})", x.exact, x.bound),
        (scan("cumsum"), False, x.bound * n),
        (scan("cummax"), x.exact, x.bound),
        (scan("cummin"), x.exact, x.bound),
    ]
    if x.is_float:
        forms += [
            (f"{{0}}.mean({axes})", False, x.bound),
            (f"jax.nn.logsumexp({{0}}, {axes})", False, x.bound + n),
            (f"jax.nn.softmax({{0}}, {axes[0]})", False, 1),
            (f"jnp.prod(jnp.sin({{0}}), {axes})", False, 1),
            (f"lax.cumprod(jnp.sin({{0}}), axis={axes[0]})", False, 1),
        ]
    else:
        forms += [(f"{{0}}.prod({axes})", True, largest), (scan("cumprod"), True, 1)]
    text, exact, bound = pool.choice(forms)
    return Proposal(text, (x,), exact or not x.is_float, bound)


def ordering(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: len(v.shape) > 0 and v.exact and v.dtype != "bool")
    if x is None:
        return None
    axis = pool.number(0, len(x.shape) - 1)
    name = pool.choice(("argmax", "argmin", "sort", "argsort"))
    return Proposal(f"jnp.{name}({{0}}, {axis})", (x,), True, x.bound)


def product(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: v.is_float or v.is_int)
    y = x and pool.pick(lambda v: v.dtype == x.dtype)
    if y is None or len(x.shape) + len(y.shape) == 0:
        return None
    letters, sizes, words = iter("abcdefgh"), {}, []
    for v in (x, y):
        word = ""
        for n in v.shape:
            known = [c for c in sizes if sizes[c] == n and c not in word]
            c = pool.choice(known) if known and pool.chance(0.8) else next(letters)
            sizes[c] = n
            word += c
        words.append(word)
    kept = [c for c in sizes if pool.chance(0.5)]
    out = "".join(kept[i] for i in pool.rng.permutation(len(kept)))
    contracted = prod(n for c, n in sizes.items() if c not in kept)
    bound = x.bound * y.bound * contracted
    form = f"'{words[0]},{words[1]}->{out}'"
    return Proposal(f"jnp.einsum({form}, {{0}}, {{1}})", (x, y), x.is_int, bound)


def reading(pool: Pool) -> Proposal | None:
    x, i = pool.pick(lambda v: len(v.shape) > 0), pool.index()
    if x is None or i is None:
        return None
    axis = pool.number(0, len(x.shape) - 1)
    sizes = tuple(pool.number(1, n) for n in x.shape)
    starts = ", ".join(["{1}"] * len(x.shape))
    forms = [
        "{0}[{1}]",
        f"jnp.take({{0}}, {{1}}, axis={axis}, mode='clip')",
        f"lax.dynamic_slice({{0}}, ({starts},), {sizes})",
        f"lax.dynamic_index_in_dim({{0}}, {{1}}, {axis})",
    ]
    if x.is_int:  # a fill value is as large as can be, or NaN
        forms.append(f"jnp.take({{0}}, {{1}}, axis={axis}, mode='fill')")
    rows = pool.pick(lambda v: v.is_index and len(v.shape) == 1)
    if rows is not None and pool.chance(0.5):
        i = rows
        forms = ["{0}[{1}]", f"jnp.take({{0}}, {{1}}, axis={axis}, mode='clip')"]
        forms.append("{0}.at[{1}].get(mode='fill', fill_value=1)")
    return Proposal(pool.choice(forms), (x, i), x.exact, x.bound)


def writing(pool: Pool) -> Proposal | None:
    x, i = pool.pick(lambda v: len(v.shape) > 0 and v.is_real), pool.index()
    if x is None or i is None:
        return None
    rows = pool.pick(lambda v: v.is_index and len(v.shape) == 1)
    if rows is not None and pool.chance(0.4):
        i = rows
    u = pool.pick(lambda v: v.dtype == x.dtype and v.shape == ())
    mode = pool.choice(("'drop'", "'clip'", "None"))
    name = pool.choice(("set", "add", "max", "min", "multiply"))
    place = "{1} % 3" if pool.chance(0.3) else "{1}"
    update = "{2}" if u else "1"
    args = (x, i, u) if u else (x, i)
    if name == "multiply" and pool.mode == "grad" and i.shape:
        name = "add"  # JAX has no gradient for products at places that may repeat
    if name == "set" and len(i.shape) == 1 and mode != "'drop'":
        name = "max"  # which of several writes to one place wins is open
    size = max(x.bound, u.bound if u else 1)
    times = max(1, prod(i.shape))
    bound = {"add": size * (times + 1), "multiply": size ** (times + 1)}.get(name, size)
    if name in ("add", "multiply") or (name == "set" and i.shape):
        exact = not x.is_float
    else:
        exact = x.exact and (u is None or u.exact)
    if name == "set" and len(i.shape) == 1:
        return None
    text = f"{{0}}.at[{place}].{name}({update}, mode={mode})"
    return Proposal(text, args, exact, bound)


def slicing_in(pool: Pool) -> Proposal | None:
    x, i = pool.pick(lambda v: len(v.shape) > 0), pool.index()
    u = x and pool.pick(
        lambda v: (
            v.dtype == x.dtype
            and len(v.shape) == len(x.shape)
            and all(m <= n for m, n in zip(v.shape, x.shape, strict=True))
        )
    )
    if u is None or i is None:
        return None
    starts = ", ".join(["{2}"] * len(x.shape))
    text = f"lax.dynamic_update_slice({{0}}, {{1}}, ({starts},))"
    return Proposal(text, (x, u, i), x.exact and u.exact, max(x.bound, u.bound))


#: loops and branches that change a few elements, and read others
TABLES = (
    "lax.fori_loop(0, 4, lambda i, s: s.at[i].set(jnp.sin(s[::-1][i])), {0})",
    "lax.fori_loop(0, 3, lambda i, s: lax.fori_loop(0, 3, "
    "lambda j, s: s.at[j].set(jnp.cos(s[i] + s[j])), s), {0})",
    "lax.scan(lambda s, i: (s.at[i].add(0.5), jnp.sin(s[0])), {0}, jnp.arange(3))[0]",
)
CHANGED = "lax.cond({1}, lambda s: s.at[0].set(jnp.sin(s[-1])), lambda s: s, {0})"


def control(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: v.is_float)
    if x is None:
        return None
    bound = x.bound + 8
    p = pool.pick(lambda v: v.dtype == "bool" and v.shape == ())
    i = pool.index()
    forms = [
        ("lax.fori_loop(0, 3, lambda i, s: jnp.sin(s) + i, {0})", (x,)),
        ("lax.fori_loop(0, 6, lambda i, s: jnp.cos(s) * 0.5 + {0}, {0})", (x,)),
    ]
    if p:
        forms.append(
            ("lax.cond({1}, lambda a: jnp.sin(a), lambda a: a * 0.5 + 1, {0})", (x, p))
        )
    if i:
        forms.append(
            ("lax.switch({1}, [jnp.sin, jnp.cos, lambda a: a * 0.5], {0})", (x, i))
        )
        if pool.mode != "grad":
            forms.append(
                (
                    "lax.while_loop(lambda s: s[1] < 3, "
                    "lambda s: (jnp.cos(s[0]), s[1] + 1), ({0}, jnp.abs({1} % 4)))[0]",
                    (x, i),
                )
            )
    if x.shape:
        forms += [
            ("lax.scan(lambda c, t: (jnp.sin(c + t), c), {0}[0], {0})[1]", (x,)),
            (
                "lax.scan(lambda c, t: (jnp.sin(c - t), c), {0}[0], {0}, "
                "reverse=True)[0]",
                (x,),
            ),
            ("lax.map(lambda t: jnp.sin(t) * t, {0})", (x,)),
        ]
    if x.shape and x.shape[0]:
        forms += [(table, (x,)) for table in TABLES]
        forms += [(CHANGED, (x, p))] if p else []
    text, args = pool.choice(forms)
    return Proposal(text, args, False, bound)


def drawing(pool: Pool) -> Proposal | None:
    """Random numbers from a key made of an integer."""
    i, x = pool.index(), pool.pick(lambda v: v.is_float and v.size < 40)
    if i is None:
        return None
    key = "random.key({0}.astype('uint32'))"
    forms = [
        (f"random.bits({key}, (3,))", (i,), True),
        (f"random.key_data(random.split({key}))[0]", (i,), True),
        (f"random.randint(random.fold_in({key}, 7), (), -3, 9)", (i,), True),
        (f"random.bernoulli({key}, 0.5, (2,))", (i,), True),
    ]
    if x is not None:
        forms += [
            (f"random.uniform({key}, {{1}}.shape, {{1}}.dtype)", (i, x), False),
            (f"random.normal({key}, {{1}}.shape, {{1}}.dtype)", (i, x), False),
        ]
    text, args, exact = pool.choice(forms)
    return Proposal(text, args, exact, 6.0)


def fits(shape: tuple[int, ...]) -> bool:
    return prod(shape) <= LARGEST and 0 not in shape and len(shape) <= 4
