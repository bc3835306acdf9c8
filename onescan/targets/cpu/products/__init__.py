"""Matrix products on a CPU: beside a loop, over all its steps, and inside a step.

Beside a loop, a product is a kernel of its own (`lower_product`): by vectors (`plan`,
`gemm`) or by x86's matrix unit (`amx_plan`, `amx_gemm`, with `amx` and `amx_tiles`),
whichever suits its size.  Inside a step, products are emitted by `onescan/emit/dot.py`,
those with weights from `panels`, but for those that `steps` gives to the matrix unit
(`amx_steps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from jax import lax
from jax.interpreters import mlir

from onescan.loop import nbytes
from onescan.passes.products import by_xla, product_p
from onescan.plan.patience import rounds_between
from onescan.targets.cpu import machine
from onescan.targets.cpu.kernel import Kernel, code, lowering
from onescan.targets.cpu.products import amx_gemm, gemm
from onescan.targets.cpu.products.amx_plan import stripes_of, suits
from onescan.targets.cpu.products.plan import Matrices, blocks_of, is_worth_it


def lower_product(
    ctx: Any, x: Any, y: Any, *, transposed: bool, precision: Any
) -> Sequence[Any]:
    """A product of two matrices over all steps, on a CPU."""
    (left, right), (result,) = ctx.avals_in, ctx.avals_out
    rows, columns = result.shape
    matrices = Matrices(rows, columns, right.shape[0], left.dtype, transposed)
    if not is_worth_it(matrices) or not _is_plain(precision):
        return by_xla(ctx, x, y, transposed=transposed, precision=precision)
    host = machine.host()
    if suits(matrices, host):
        plan = stripes_of(matrices, host)
        module = amx_gemm.build(plan)
    else:
        plan = blocks_of(matrices, host)
        module = gemm.build(plan)
    count = prod(plan.tiles)
    kernel = Kernel(
        module,
        num_operands=2,
        num_results=1,
        tiles=count,
        threads=plan.threads,
        result_bytes=(nbytes([result]),),
        finished=True,
        look=rounds_between(count, rows * columns * right.shape[0] / count),
    )
    return lowering(code(kernel))(ctx, x, y)


def _is_plain(precision: Any) -> bool:
    """Whether a product asks for no other algorithm than that of its type."""
    both = precision if isinstance(precision, tuple) else (precision,)
    return all(p is None or isinstance(p, lax.Precision) for p in both)


mlir.register_lowering(product_p, lower_product, platform="cpu")
