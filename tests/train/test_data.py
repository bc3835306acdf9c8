"""The order of examples, and batches made ahead on a thread."""

from __future__ import annotations

import threading
import time

import jax
import numpy as np
import pytest

from onescan.train.prefetch import Prefetched
from onescan.train.shuffle import shuffled


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 1000])
def test_shuffling_is_one_to_one_and_the_same_in_numpy_and_jax(size):
    positions = np.tile(np.arange(size), (3, 1))
    epochs = np.arange(3)[:, None]
    by_numpy = shuffled(positions, epochs, size, seed=5)
    by_jax = jax.jit(lambda p, e: shuffled(p, e, size, seed=5))(positions, epochs)
    np.testing.assert_array_equal(by_numpy, by_jax)
    for order in by_numpy:
        assert sorted(order.tolist()) == list(range(size))


@pytest.mark.parametrize("size", [5, 8, 100])
def test_every_example_comes_everywhere_equally_often(size):
    """Counts of examples at positions, and of pairs that follow each other, are as
    those of coin throws: chi squared is near its mean."""
    epochs = 4000
    positions = np.tile(np.arange(size), (epochs, 1))
    orders = shuffled(positions, np.arange(epochs)[:, None], size, seed=0)
    places = np.zeros((size, size))
    np.add.at(places, (positions, orders), 1)
    pairs = np.zeros((size, size))
    np.add.at(pairs, (orders[:, :-1], orders[:, 1:]), 1)
    off = ~np.eye(size, dtype=bool)
    for counts, expected, freedom in (
        (places.ravel(), epochs / size, (size - 1) ** 2),
        (pairs[off], epochs / size, size * (size - 2)),
    ):
        chi_squared = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi_squared - freedom) < 6 * np.sqrt(2 * freedom)


def test_seeds_and_epochs_differ():
    def order(epoch, seed):
        return tuple(shuffled(np.arange(50), np.full(50, epoch), 50, seed).tolist())

    seeds = (0, 1, 2**32, 2**40 + 1)
    assert len({order(e, s) for e in range(5) for s in seeds}) == 20


def test_an_example_is_made_one_ahead():
    made, wanted = [], threading.Event()

    def elements():
        for number in range(5):
            made.append(number)
            if number == 2:
                wanted.set()
            yield number

    with Prefetched(elements()) as ahead:
        assert next(ahead) == 0
        assert wanted.wait(10)  # one waits, one is in the making
        time.sleep(0.05)
        assert made == [0, 1, 2]
        assert list(ahead) == [1, 2, 3, 4]


def test_errors_come_in_their_place():
    def elements():
        yield 1
        raise ValueError("bad batch")

    with Prefetched(elements()) as ahead:
        assert next(ahead) == 1
        with pytest.raises(ValueError, match="bad batch"):
            next(ahead)


def test_stops_while_it_waits():
    never = threading.Event()

    def elements():
        never.wait(30)
        yield 1

    asked = time.monotonic()
    stop = lambda: time.monotonic() - asked > 0.2
    with Prefetched(elements(), stop) as ahead:
        assert list(ahead) == []
        never.set()


def test_the_thread_ends_with_its_reader():
    with Prefetched(iter(range(1000))) as ahead:
        next(ahead)
    assert not ahead._thread.is_alive()
