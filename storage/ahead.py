"""Work that is done ahead by threads, while its results are used one after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def ahead(work: Callable[[A], B], items: Iterable[A], workers: int = 1) -> Iterator[B]:
    """`work` of each item, in order; that of the next `workers` items goes on while the caller uses one."""
    waiting: deque[Future[B]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
