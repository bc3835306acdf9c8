"""What the instructions of this processor, and a step of XLA's loops, cost.

``python benchmarks/costs.py`` (or ``make tune``) measures every number of the record
that predictions use (`onescan/tune/costs.py`) on this machine, and prints it beside the
one that is kept there, with its unit and the command that measures it alone.
``--write`` puts the numbers into the record of this kind of processor.

Instructions are timed in loops of LLVM's code, so many of them that the loop itself
does not count; those of XLA's loops as slopes between two lengths or two sizes.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr
from rich.console import Console
from rich.table import Table

import onescan
from onescan import compat
from onescan.loop import Loop
from onescan.passes.inline import inline
from onescan.runtime import compiler
from onescan.targets.cpu import current
from onescan.targets.cpu.machine import host
from onescan.tune import costs as records
from onescan.tune.costs import Costs
from onescan.tune.predict import predicted

ROUNDS = 20_000  # of a loop of instructions
CHAINS = 8  # that do not wait for each other
REPEATS = 7  # the fastest counts
UNITS = {"waiting": "times", "streamed_byte": "ns/byte"}
#: facts, and what other commands measure (`benchmarks/products.py`, `linalg.py`,
#: `programs.py --only split`)
KEPT = (
    "name",
    "vector_bits",
    "xla_small",
    "xla_library",
    "xla_product",
    "xla_product_operation",
    "xla_matrix",
    "xla_matrix_operation",
    "xla_transform",
    "xla_transform_operation",
    "xla_bytes_operation",
    "xla_byte",
)

LOOP = """
target triple = "{triple}"
target datalayout = "{layout}"
define void @f(ptr %p, i64 %n) {{
entry:
  %loaded = load volatile i32, ptr %p
  %seven = or i32 %loaded, 7
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  {body}
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %loop, label %done
done:
  {end}
  ret void
}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=MEASURED, metavar="NAME")
    parser.add_argument("--write", action="store_true", help="change the record")
    options = parser.parse_args()
    kept = costs_here()
    onescan.install()
    found = {name: MEASURED[name]() for name in options.only or MEASURED}
    console = Console()
    console.print(_table(kept, found))
    if options.write:
        _write(kept, found)
        console.print(f"wrote {len(found)} numbers of {kept.name}")


def costs_here() -> Costs:
    bits = host().vector_bytes * 8
    return records.costs_of(bits, compiler.triple())


def _table(kept: Costs, found: dict[str, float]) -> Table:
    table = Table(title=f"costs of {kept.name}, one core")
    for column in ("cost", "in the record", "here", "unit"):
        table.add_column(column, justify="left" if column[0] in "cu" else "right")
    for name, value in found.items():
        numbers = f"{getattr(kept, name):.3g}", f"{value:.3g}"
        table.add_row(name, *numbers, UNITS.get(name, "ns"))
    table.caption = "one alone: python benchmarks/costs.py --only NAME"
    return table


def _write(kept: Costs, found: dict[str, float]) -> None:
    """Put numbers into the record of a processor, in its own file."""
    file = Path(records.__file__)
    new = replace(kept, **{name: float(f"{x:.2g}") for name, x in found.items()})
    text = ",\n    ".join(
        f"{f.name}={getattr(new, f.name)!r}"
        for f in fields(Costs)
        if f.name in ("name", "vector_bits") or getattr(new, f.name) != f.default
    )
    (variable,) = (k for k, v in vars(records).items() if v is kept)
    pattern = rf"^{variable} = Costs\(.*?\)$"
    source = re.sub(
        pattern,
        f"{variable} = Costs(\n    {text},\n)",
        file.read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )
    file.write_text(source)


def fastest(run: Callable[[], Any]) -> float:
    """Seconds of a call."""
    run()
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


# instructions


def nanoseconds(body: list[str], end: list[str] | None = None) -> float:
    """Of one round of a loop of these instructions."""
    text = LOOP.format(
        triple=compiler.triple(),
        layout=compiler.data_layout(),
        body="\n  ".join(body),
        end="\n  ".join(end or []),
    )
    address = compiler.link(text, ["f"], level=0).kept()["f"]
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)
    memory = ctypes.create_string_buffer(8192)
    start = (ctypes.addressof(memory) + 63) // 64 * 64
    return 1e9 * fastest(lambda: call(start, ROUNDS)) / ROUNDS


def of_chains(kind: str, first: str, *lines: str) -> float:
    """Of one such line, which makes {y} of {x}; chains of them run side by side."""
    phis, body, end = [], [], []
    for c in range(CHAINS):
        for k, line in enumerate(lines):
            body.append(line.format(x=f"%c{c}.{k}", y=f"%c{c}.{k + 1}", t=f"%t{c}.{k}"))
        last = f"%c{c}.{len(lines)}"
        phis.append(f"%c{c}.0 = phi {kind} [ {first}, %entry ], [ {last}, %loop ]")
        end.append(f"store volatile {kind} {last}, ptr %p")
    return nanoseconds(phis + body, end) / (CHAINS * len(lines))


def vector() -> str:
    return f"<{host().vector_bytes // 4} x float>"


def of_places(line: str) -> float:
    """Of one such line, for each of 16 places {p} of the L1 cache."""
    body = []
    for k in range(16):
        body.append(f"%p{k} = getelementptr i8, ptr %p, i64 {64 * k}")
        body.append(line.format(p=f"%p{k}", y=f"%y{k}"))
    return nanoseconds(body) / 16


def operation() -> float:
    line = f"{{y}} = fadd {vector()} {{x}}, splat (float 1.0)"
    return of_chains(vector(), "zeroinitializer", line, line)


def division() -> float:
    slightly = "0x3FF0000020000000"  # more than 1: never subnormal, and no identity
    line = f"{{y}} = fdiv {vector()} {{x}}, splat (float {slightly})"
    return of_chains(vector(), "splat (float 1.0)", line)


def element() -> float:
    """Half of moving one out and one in."""
    out = f"{{t}} = extractelement {vector()} {{x}}, i32 3"
    into = f"{{y}} = insertelement {vector()} {{x}}, float {{t}}, i32 1"
    return of_chains(vector(), "zeroinitializer", f"{out}\n  {into}") / 2


def load() -> float:
    return of_places(f"{{y}} = load volatile {vector()}, ptr {{p}}")


def store() -> float:
    return of_places(f"store volatile {vector()} zeroinitializer, ptr {{p}}")


def address() -> float:
    return of_chains("i64", "1", "{y} = add i64 {x}, %i", "{y} = xor i64 {x}, %i")


def integer_division() -> float:
    divide, go_on = "{t} = udiv i32 {x}, %seven", "{y} = sub i32 {x}, {t}"
    return of_chains("i32", "-1", f"{divide}\n  {go_on}")


# loops

Body = Callable[[Any, Any], Any]


def seconds(engine: Any, body: Body, n: int, xs: Any, length: int = 300) -> float:
    """Of one step of a loop over `n` numbers."""
    init = jnp.full((n,), 0.5) if n else jnp.float32(0.5)
    f = lambda c, xs: lax.scan(body, c, xs, length)
    with onescan.engine(engine):
        call = jax.jit(f).lower(init, xs).compile()
    return fastest(lambda: jax.block_until_ready(call(init, xs))) / length


def chain(operations: int) -> Body:
    """Elementwise operations, one after the other."""

    def body(c: Any, x: Any) -> Any:
        for _ in range(operations // 2):
            c = c * 0.9 + 0.1
        return c, None

    return body


def sums(count: int) -> Body:
    """Pairs of a sum and an operation that cannot be one."""

    def body(c: Any, x: Any) -> Any:
        for _ in range(count):
            c = c * 0.9 + jnp.sum(c) * 1e-3
        return c, None

    return body


def streamed_byte() -> float:
    """A row of xs read and one of ys written, without what computing takes."""
    n, length = 1 << 14, 300
    xs = jnp.ones((length, n))
    streams = seconds("native", lambda c, x: (c + x, c * x), n, xs, length)
    alone = seconds("native", lambda c, x: (c + 0.1, None), n, None, length)
    return 1e9 * (streams - alone) / (8 * n)


def xla_turned() -> float:
    """A step's numbers of xs that lie 100 apart, without what steps take otherwise."""
    n, length = 10_000, 100

    def run(turned: bool) -> float:
        xs = jnp.ones((n, length) if turned else (length, n))
        turn = (lambda xs: xs.T) if turned else (lambda xs: xs)
        step = lambda c, x: (c + x, None)
        f = lambda c, xs: lax.scan(step, c, turn(xs))
        with onescan.engine("xla"):
            call = jax.jit(f).lower(jnp.zeros(n), xs).compile()
        return fastest(lambda: jax.block_until_ready(call(jnp.zeros(n), xs)))

    return 1e9 * (run(turned=True) - run(turned=False)) / (n * length)


def xla_operation() -> float:
    """Between 4 and 24 operations on 4096 numbers."""
    few, many = (seconds("xla", chain(k), 4096, None) for k in (4, 24))
    return 1e9 * (many - few) / (20 * 4096)


def xla_equation() -> float:
    """Between 4 and 24 sums of few numbers, four equations each."""
    few, many = (seconds("xla", sums(k), 512, None) for k in (4, 24))
    operations = 20 * 4 * 512 * xla_operation()
    return max(1.0, (1e9 * (many - few) - operations) / (20 * 4))


def xla_step() -> float:
    """A step that computes next to nothing, in memory."""
    return 1e9 * seconds("xla", chain(2), 512, None, 3000)


def xla_small_step() -> float:
    return 1e9 * seconds("xla", chain(2), 0, None, 30_000)


def xla_small_equation() -> float:
    """Between chains of 8 and of 40 operations on one number."""
    few, many = (seconds("xla", chain(k), 0, None, 30_000) for k in (8, 40))
    return 1e9 * (many - few) / 32


WAITING: dict[str, tuple[Body, int]] = {
    "one chain": (chain(8), 16),
    "many chains": (chain(8), 4096),
    "tanh": (lambda c, x: (jnp.tanh(c) * 0.9, None), 512),
    "sums": (sums(3), 512),
    "product": (lambda c, x: (jnp.tanh(c.reshape(8, 64) @ W).ravel(), None), 512),
    "moved": (lambda c, x: (jnp.roll(c, 1) * 0.9 + c[::-1] * 0.1, None), 512),
    "scalar": (lambda c, x: (jnp.sin(c) * 0.9 + 0.1, None), 0),
}
W = 0.1 * jax.numpy.eye(64)


def waiting() -> float:
    """How much longer loops take than their instructions: the median of some."""
    plain = replace(costs_here(), waiting=1.0)
    ratios = []
    for body, n in WAITING.values():
        loop = _loop(body, n)
        plan = current().plan(loop)
        _, kernel = current().verified(plan, current().build(plan))
        assert kernel.profile is not None
        cores = host().cores
        thought = predicted(loop, kernel.profile, cores, plain).native
        assert thought is not None
        ratios.append(seconds("native", body, n, None) / thought)
    return median(ratios)


def _loop(body: Body, n: int, length: int = 300) -> Loop:
    init = jnp.full((n,), 0.5) if n else jnp.float32(0.5)
    traced: ClosedJaxpr = jax.make_jaxpr(lambda c: lax.scan(body, c, None, length))(
        init
    )
    eqn = next(eqn for eqn in traced.jaxpr.eqns if eqn.primitive.name == "scan")
    return inline(compat.loop_of(eqn.params), "cpu")


MEASURED: dict[str, Callable[[], float]] = {
    f.__name__: f
    for f in (
        operation,
        division,
        element,
        load,
        store,
        address,
        integer_division,
        waiting,
        streamed_byte,
        xla_turned,
        xla_operation,
        xla_equation,
        xla_step,
        xla_small_step,
        xla_small_equation,
    )
}
assert {*MEASURED, *KEPT} == {f.name for f in fields(Costs)}


if __name__ == "__main__":
    main()
