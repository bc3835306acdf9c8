"""Chunks made one ahead, on a thread, while the device computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
WAKE_S = 0.1  # how often a waiting thread looks whether it should stop


class Prefetched(Iterator[T]):
    """The elements of an iterator, the next one already made.

    An exception of the iterator is raised where its element would have come. While
    it waits, it stops when `stop()` says so.

    >>> with Prefetched(iter([1, 2, 3])) as ahead:
    ...     print(list(ahead))
    [1, 2, 3]
    """

    def __init__(
        self, elements: Iterator[T], stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._elements = elements
        self._stop = stop
        self._made: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Prefetched[T]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join(timeout=1.0)  # one that hangs in the user's code stays behind

    def __next__(self) -> T:
        while not self._stop():
            try:
                kind, value = self._made.get(timeout=WAKE_S)
            except queue.Empty:
                continue
            if kind == "element":
                return value
            self._closed.set()
            if kind == "error":
                raise value
            break
        raise StopIteration

    def _work(self) -> None:
        try:
            for element in self._elements:
                if not self._put(("element", element)):
                    return
            self._put(("end", None))
        except BaseException as error:  # the user's, raised again in the main thread
            self._put(("error", error))

    def _put(self, made: tuple[str, Any]) -> bool:
        while not self._closed.is_set():
            try:
                self._made.put(made, timeout=WAKE_S)
            except queue.Full:
                continue
            return True
        return False
