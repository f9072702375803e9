"""Train several sensors at once on one GPU, where one alone would use a small part of it.

Sensors with equal channels and minibatches go through `paano.network.fused.fit_many` in groups; a group that
does not fit the memory of the GPU is halved until it does. On a CPU, one model uses a whole worker and each
is trained by itself, so that its bits do not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from paano import PaAno, PaAnoConfig
from paano.errors import PaanoError

GROUP = 16  # models at once: more gain little, and each takes its share of the memory

Item = TypeVar("Item")
Value = TypeVar("Value")
Job = tuple[PaAnoConfig, np.ndarray]  # settings of a model, and the series [N, C] to train it on


def fit_together(jobs: Sequence[Job], device: str, fused: bool | None = None) -> list[PaAno | PaanoError]:
    """A fitted model for each job, in order, or what was wrong with it. Jobs differ in seed and series only.

    A series that cannot be trained on does not stop its group. `fused` is by default true on a GPU.
    """
    fused = device.startswith("cuda") if fused is None else fused
    fitted: list[PaAno | PaanoError] = [PaanoError("not trained")] * len(jobs)
    groups: dict[Any, list[int]] = {}
    for number, (config, values) in enumerate(jobs):
        alike = (config.replace(seed=0).digest, values.shape[1:]) if fused else number
        groups.setdefault(alike, []).append(number)
    for members in groups.values():
        for first in range(0, len(members), GROUP):
            numbers = members[first : first + GROUP]
            found = in_halves(lambda some: _fit([jobs[n] for n in some], device, fused), numbers)
            for number, model in zip(numbers, found, strict=True):
                fitted[number] = model
    return fitted


def _fit(jobs: list[Job], device: str, fused: bool) -> list[PaAno | PaanoError]:
    """One group; if it cannot be trained together, each by itself, so that one fault fails one model."""
    from paano.network.fused import fit_many

    try:
        return list(fit_many([config for config, _ in jobs], [values for _, values in jobs], device, fused))
    except PaanoError as error:
        if len(jobs) == 1:
            return [error]
    return [model for job in jobs for model in _fit([job], device, fused)]


def in_halves(work: Callable[[Sequence[Item]], list[Value]], items: Sequence[Item]) -> list[Value]:
    """Do `work` on all items at once, or on halves and quarters of them where the GPU's memory is too small.

    One item alone that does not fit raises, so that its sensor is reported.
    """
    import torch

    try:
        return work(items)
    except torch.OutOfMemoryError:
        if len(items) < 2:
            raise
    # Outside the handler: the exception held the frames, and with them the memory, of the failed attempt.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    middle = len(items) // 2
    return in_halves(work, items[:middle]) + in_halves(work, items[middle:])
