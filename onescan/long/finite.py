"""`check="finite"`: a loop that ends at the first NaN or infinity, and says whose.

The loop itself only notes the number of the first step whose carry or y is not finite;
what is left of it is skipped.  In that case alone the carry before that step is
computed again, the step is replayed with every value looked at (`blame.py`), and the
program calls Python, which raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.errors import JaxRuntimeError
from jax.extend.core import jaxpr_as_fun

from onescan.api import reference
from onescan.errors import NonFiniteError
from onescan.long.blame import NonFinite, Trail, watch
from onescan.long.calls import call
from onescan.long.step import on_all_lanes
from onescan.naming import function_name, leaf_paths

Values = list[Any]


class Finite:
    """The check of one loop."""

    def __init__(
        self,
        f: Callable[..., Any],
        init: Any,
        xs: Any,
        steps: int,
        reverse: bool,
        where: Any = None,
    ) -> None:
        self.init, self.xs = map(jax.tree.leaves, lax.stop_gradient((init, xs)))
        self.steps, self.reverse, self.where = steps, reverse, where
        self.function = str(function_name(f))
        x_types = jax.tree.map(reference.type_of_entry, xs)
        body, result = jax.make_jaxpr(f, return_shape=True)(init, x_types)
        self.body = body.replace(consts=lax.stop_gradient(body.consts))
        outside = ["a value that the function closes over"] * len(body.consts)
        names = leaf_paths("carry", init), leaf_paths("x", xs)
        self.inputs = [*outside, *names[0], *names[1]]
        self.leaves = [*leaf_paths("carry", result[0]), *leaf_paths("y", result[1])]
        self.trail: Trail | None = None  # known once the replay is traced
        self.error: NonFiniteError | None = None  # the last one raised

    def raise_if(self, bad: Any) -> None:
        """Let the program raise if there was a bad step, or raise at once."""
        nothing = lambda bad: jnp.int32(0)
        try:
            told = lax.cond(on_all_lanes(bad < 0), nothing, self._raising, bad)
            if not isinstance(told, Tracer):
                told.block_until_ready()
        except JaxRuntimeError:
            if self.error is None:
                raise
            raise self.error from None

    def flags_if(self, bad: Any) -> Any:
        """The flags of the replay if there was a bad step, else any."""
        kind = jax.eval_shape(self.replay, bad)
        nothing = lambda bad: jnp.zeros(kind.shape, kind.dtype)
        return lax.cond(bad < 0, nothing, self.replay, bad)

    def _raising(self, bad: Any) -> Any:
        return call(self._raise, bad, self.replay(bad))

    def _raise(self, bad: Any, flags: Any) -> Any:
        record = self.record(bad, flags)
        assert record is not None
        self.error = NonFiniteError(f"onescan.scan: {record}", record)
        raise self.error

    def replay(self, bad: Any) -> Any:
        """A flag for each value of step number `bad`: whether it is not finite."""
        bad = jnp.maximum(bad, 0)  # of a lane where nothing was wrong
        carry = lax.fori_loop(0, bad, self._step, self.init)
        arguments = [*carry, *self._at(bad, self.xs)]
        self.trail, flags = watch(self.body, arguments, self.inputs, self.leaves)
        return flags

    def _step(self, index: Any, carry: Values) -> Values:
        def run() -> Values:
            results = jaxpr_as_fun(self.body)(*carry, *self._at(index, self.xs))
            return list(results)[: len(carry)]

        if self.where is None:
            return run()
        return lax.cond(self._at(index, [self.where])[0], run, lambda: carry)

    def _at(self, index: Any, xs: Values) -> Values:
        place = self.steps - 1 - index if self.reverse else index
        return [x[place] for x in xs]

    def record(self, bad: Any, flags: Any) -> NonFinite | None:
        """What the flags of a replay say; of a batch, about the first bad step."""
        assert self.trail is not None
        bad, flags = np.asarray(bad), np.asarray(flags)
        flags = np.broadcast_to(flags, (*bad.shape, flags.shape[-1]))
        if (bad < 0).all():
            return None
        lane = np.unravel_index(np.where(bad < 0, np.inf, bad).argmin(), bad.shape)
        step = int(bad[lane])
        return self.trail.record(
            flags[lane],
            step=step,
            index=self.steps - 1 - step if self.reverse else step,
            lane=tuple(map(int, lane)),
            function=self.function,
        )
