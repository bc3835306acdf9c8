"""`Axes`: dimensions that walk together, and those whose positions meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend.core import Jaxpr, Var

from onescan.loop import Atom
from onescan.primitives.record import AxesRule

Node = tuple[Any, int]


class Axes:
    """Joined and struck dimensions (a union-find)."""

    def __init__(self, rule_of: Callable[[str], AxesRule]) -> None:
        self.rule_of = rule_of  # of a primitive
        self.parent: dict[Node, Node] = {}
        self.struck: set[Node] = set()
        self.depth = 0  # of the body that is being visited

    def find(self, node: Node) -> Node:
        root = node
        while (up := self.parent.setdefault(root, root)) != root:
            root = up
        while (up := self.parent[node]) != root:
            self.parent[node], node = root, up
        return root

    def join(self, x: Any, i: int, y: Any, j: int) -> None:
        """Dimension i of x and dimension j of y walk together."""
        if isinstance(x, Var) and isinstance(y, Var):
            a, b = self.find((x, i)), self.find((y, j))
            if a != b:
                self.parent[a] = b
                if a in self.struck:
                    self.struck.add(b)
        else:  # a literal has every position at once: nothing to walk with
            for v, d in ((x, i), (y, j)):
                if isinstance(v, Var):
                    self.strike(v, d)

    def strike(self, x: Any, i: int) -> None:
        """Positions along dimension i of x meet."""
        if isinstance(x, Var):
            self.struck.add(self.find((x, i)))

    def combine(self, *dimensions: tuple[Any, int]) -> None:
        """Positions along these are summed up, or the like."""
        for x, i in dimensions:
            self.strike(x, i)

    def visit(self, jaxpr: Jaxpr) -> None:
        """Join and strike what the equations of a body do."""
        self.depth += 1
        for var in jaxpr.invars:
            self.touch(var)
        for eqn in jaxpr.eqns:
            for var in eqn.outvars:
                self.touch(var)
            self.rule_of(eqn.primitive.name)(eqn, self)
        self.depth -= 1

    def touch(self, var: Atom) -> None:
        """Know of the dimensions of a value."""
        for i in range(len(var.aval.shape)):
            self.find((var, i))

    def join_all(self, x: Any, y: Any) -> None:
        for i in range(len(x.aval.shape)):
            self.join(x, i, y, i)


def reshape_groups(
    before: Sequence[int], after: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions with equal products: reshape acts within each run.

    >>> reshape_groups((6, 4), (2, 3, 4))
    [([0], [0, 1]), ([1], [2])]
    >>> reshape_groups((3, 0), (0,))  # an array with no elements is one run
    [([0, 1], [0])]
    >>> reshape_groups((2, 5), (2, 1, 5))  # a dimension of one position is a run
    [([0], [0]), ([], [1]), ([1], [2])]
    """
    before, after = tuple(before), tuple(after)
    if 0 in before or 0 in after:
        return [(list(range(len(before))), list(range(len(after))))]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        left, right = [], []
        p = q = 1
        if after[j : j + 1] == (1,) != before[i : i + 1]:
            groups.append(([], [j]))
            j += 1
            continue
        if i < len(before):
            left, p, i = [i], before[i], i + 1
        if j < len(after) and (p != 1 or not left):
            right, q, j = [j], after[j], j + 1
        while p != q:
            if p < q:
                left, p, i = [*left, i], p * before[i], i + 1
            else:
                right, q, j = [*right, j], q * after[j], j + 1
        groups.append((left, right))
    return groups
