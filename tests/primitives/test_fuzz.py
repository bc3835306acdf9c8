"""64 random loops (1,600 by `make test-all`), from the whole rule table.

Two oracles look at each.  A failure names the seed and prints the smallest loop that
still fails, as a program to run.  `make fuzz` goes on from there.
"""

from __future__ import annotations

from collections import Counter

import jax
import pytest
from fuzz.check import Batch, random_batch
from fuzz.shrink import as_python, failing, fails, shrunk
from sampling import WHOLE

GROUPS = 50 if WHOLE else 2  # tests
BATCHES, LOOPS = 3, 8  # compilations in a test, loops in each


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def story(batches: list[Batch]) -> str:
    """Failures, each as the smallest program that shows it."""
    small = [shrunk(batch) for batch in batches if len(batch.programs) == 1]
    return "\n\n".join(as_python(batch, fails(batch) or "") for batch in small)


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_loops(group: int) -> None:
    for seed in range(group * BATCHES, (group + 1) * BATCHES):
        batch = random_batch(seed, LOOPS)
        # the plain loop is asked about every eighth batch, lax.scan about all
        bad = failing(batch, Counter(), plainly=seed % 8 == 0)
        assert not bad, f"seed {seed}\n{story(bad)}"


def test_a_wrong_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail, and shrinking keeps what makes it fail."""
    from onescan.emit import elementwise

    def wrong(b, eqn, xs):
        return b.fadd(xs[0], xs[0])

    monkeypatch.setitem(elementwise.OPS, "sin", wrong)
    batch = next(
        b
        for b in (random_batch(seed, 1) for seed in range(100))
        if "jnp.sin" in b.programs[0].source() and b.mode == "plain" and fails(b)
    )
    small = shrunk(batch)
    assert "not as lax.scan" in (fails(small) or "")
    assert "jnp.sin" in small.programs[0].source()
    assert len(small.programs[0].steps) <= len(batch.programs[0].steps)
    compile(as_python(small, "sin is wrong"), "report", "exec")
