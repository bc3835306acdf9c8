"""Every primitive of the rule table in a loop, under both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import old_xla
import pytest
from compare import assert_same
from engine_elementwise import OPS
from engine_variants import CASES, variants
from engines import kernels_alone, run
from sampling import WHOLE

from onescan.emit.rules import RULES
from onescan.passes.inline import flatten
from onescan.plan.work import equations


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


@pytest.mark.parametrize("name", CASES)
def test_primitive(name: str) -> None:
    case = CASES[name]
    todo = variants(case)
    if not WHOLE:  # one of them, in turns
        names = [n for n in todo if old_xla.NEWEST or n in ("vmap", "state")]
        kept = names[list(CASES).index(name) // 2 % len(names)]
        todo = {kept: todo[kept]}
    everything = lambda args: {n: f(*args[n]) for n, (f, _) in todo.items()}
    inputs = {n: args for n, (_, args) in todo.items()}
    native, xla = (run(engine, everything, inputs) for engine in ("native", "xla"))
    assert_same(native, xla, rounding=case.rounds)


def primitives_of(f: Callable[..., Any], args: list[Any]) -> set[str]:
    jaxpr = flatten(jax.make_jaxpr(f)(*args)).jaxpr
    return {eqn.primitive.name for eqn in equations(jaxpr)}


#: primitives that only other JAX versions, programs on several devices, Equinox or
#: passes of ours have
ELSEWHERE = set(
    "copy copy_p reshard pvary sharding_constraint expand_dims log2 "
    "unvmap_all unvmap_any onescan_eigh onescan_fft onescan_geqrf "
    "onescan_ormqr onescan_qr onescan_quotient onescan_svd".split()
)


@pytest.mark.skipif(not old_xla.NEWEST, reason="older JAX lacks some primitives")
def test_every_rule_has_a_case() -> None:
    seen: set[str] = set()
    for op in OPS.values():
        seen |= primitives_of(op.f, [np.ones(3, jnp.dtype(op.dtypes[0]))] * op.arity)
    for case in CASES.values():
        seen |= primitives_of(*variants(case)["xs"])
    assert set(RULES) - seen - ELSEWHERE == set()
