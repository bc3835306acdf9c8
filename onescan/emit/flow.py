"""Loops and conditions around code that a builder writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from onescan.emit import types as ty


@contextmanager
def loop(
    b: ty.Builder, start: ty.Value, stop: ty.Value, step: int = 1
) -> Iterator[ty.Value]:
    """Code for each i64 from `start`, which may be the end already, up to `stop`."""
    with fold(b, start, stop, step) as (index, _):
        yield index


@contextmanager
def fold(
    b: ty.Builder, start: ty.Value, stop: ty.Value, step: int = 1, *first: ty.Value
) -> Iterator[tuple[ty.Value, list[ty.Value]]]:
    """A loop with values that go from one turn to the next.

    The body finds them in a list, and puts there what they become; behind the loop,
    the list has what they have become.
    """
    before, new = b.block, b.function.append_basic_block
    head, body, done = new("head"), new("body"), new("done")
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(ty.I64)
    index.add_incoming(start, before)
    carried = [b.phi(value.type) for value in first]
    for phi, value in zip(carried, first, strict=True):
        phi.add_incoming(value, before)
    values = list(carried)
    b.cbranch(b.icmp_signed("<", index, stop), body, done)
    b.position_at_end(body)
    yield index, values
    index.add_incoming(b.add(index, ir.Constant(ty.I64, step)), b.block)
    for phi, value in zip(carried, values, strict=True):
        phi.add_incoming(value, b.block)
    values[:] = carried
    b.branch(head)
    b.position_at_end(done)


@contextmanager
def only(b: ty.Builder, condition: ty.Value) -> Iterator[None]:
    """Code that runs where a condition holds."""
    body = b.function.append_basic_block("body")
    done = b.function.append_basic_block("done")
    b.cbranch(condition, body, done)
    b.position_at_end(body)
    yield
    b.branch(done)
    b.position_at_end(done)
