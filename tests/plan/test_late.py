"""Choices that the next step waits for, and that are known late."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree
from gpu_lowering import as_if_on, lowered
from jax import lax
from kernels import kernel_of, loop_in, plan_of

import onescan
from onescan.plan.late import MOST, late_choices
from onescan.targets.cpu import emitter
from onescan.targets.cpu.kernel import assembly

C = jnp.linspace(-1.0, 1.0, 6)
XS = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
#: the carry of a step that has one number
ONE = jnp.float32(0.1)


def halved(c: Any, x: Any) -> Any:
    return jnp.where(c.mean() > 0, c * 0.5, c + 0.1) + x


def metropolis(c: Any, x: Any) -> Any:
    new = c + x
    return jnp.where(x @ x < c @ c - new @ new, new, c)


def counted(step: Any, c: Any = C, xs: Any = XS, **options: Any) -> int:
    """How many are guessed; both engines agree on the results."""
    program = lambda c, xs: lax.scan(step, c, xs, **options)
    assert_engines_agree(program, c, xs, ulps=64)
    loop = loop_in(program, c, xs)
    guessed = str(kernel_of(plan_of(loop)).module).count("!prof")
    late = len(late_choices(loop))
    assert bool(guessed) == bool(late)
    return late


LATE = {
    "mean": halved,
    "metropolis": metropolis,
    "a number": lambda c, x: c.at[0].set(jnp.where(jnp.tanh(c[0]) < x[0], c[1], 0.5)),
    "two": lambda c, x: jnp.where(jnp.max(c) > 1, -c, metropolis(c, x)),
    "whole numbers": lambda c, x: (
        jnp.where(c.sum() > 1, (c * 8).astype(int), (x * 8).astype(int)) / 8.0
    ),
}


@pytest.mark.parametrize("name", LATE)
def test_they_are_guessed(name: str) -> None:
    many = 2 if name == "two" else 1
    assert counted(lambda c, x: (LATE[name](c, x), c.sum())) == many


def test_llvm_makes_branches_of_them() -> None:
    program = lambda c, xs: lax.scan(lambda c, x: (halved(c, x), None), c, xs)[0]
    plan = plan_of(loop_in(program, C, XS))
    branch = re.compile(r"^\t(j(?!mp)[a-z]+|b\.[a-z]+|[ct]bn?z)\t", re.MULTILINE)
    branches = lambda: len(branch.findall(assembly(kernel_of(plan))))
    guessed = branches()
    with mock.patch.object(emitter, "late_choices", return_value=frozenset()):
        assert branches() < guessed


def test_in_loops_inside() -> None:
    inner = lambda c, x: lax.fori_loop(0, 3, lambda i, c: halved(c, x), c)
    assert counted(lambda c, x: (inner(c, x), None)) == 1


def test_in_while_loops() -> None:
    def rounds(c: Any, x: Any) -> Any:
        again = lambda state: state[0] < x[0] * 9
        round_ = lambda state: (state[0] + 1, halved(state[1], x))
        return lax.while_loop(again, round_, (0, c))[1]

    assert counted(lambda c, x: (rounds(c, x), None)) == 1


EARLY = {
    "by xs": lambda c, x: (jnp.where(x.mean() > 0, c, x), None),
    "by one number": lambda c, x: (jnp.where(c[0] > 0, c * 0.5, c + x), None),
    "number by number": lambda c, x: (jnp.where(c > c.mean(), c * 0.5, c + x), None),
    "only ys": lambda c, x: (c + x, jnp.where(c.sum() > 0, c, x)),
    "known anyway": lambda c, x: (lax.select(True, c, x) + c, None),
    "late anyway": lambda c, x: (
        jnp.where(c.sum() > 0, jnp.tanh(jnp.exp(-c)), jnp.exp(jnp.tanh(c))),
        None,
    ),
}


@pytest.mark.parametrize("name", EARLY)
def test_others_are_not(name: str) -> None:
    assert counted(EARLY[name]) == 0


def test_single_numbers_that_are_known_soon() -> None:
    def step(c: Any, x: Any) -> Any:
        new = c + x[0]
        return jnp.where(x[1] < 0.5 * (c * c - new * new), new, c), c

    assert counted(step, ONE) == 0


def test_large_arrays_are_selected() -> None:
    n = MOST + 2
    xs = np.resize(XS, (3, n))
    assert counted(lambda c, x: (halved(c, x), None), jnp.zeros(n), xs) == 0


def test_gpus_select() -> None:
    program = lambda c, xs: onescan.scan(lambda c, x: (halved(c, x), None), c, xs)[0]
    with as_if_on() as launches, onescan.engine("native"):
        lowered(program, C, XS)
    assert "!prof" not in launches[0].code
