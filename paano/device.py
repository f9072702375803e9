"""Where a model runs: the device, torch threads, mixed precision, and going on when memory is short."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from paano.errors import ConfigError

DEVICES = ("auto", "cpu", "cuda", "mps")


def pick_device(name: str | torch.device) -> torch.device:
    """The device called `name`; `auto` is CUDA, then MPS, then the CPU. `cuda:1` is one of several."""
    if isinstance(name, torch.device):
        name = str(name)
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    kind = name.partition(":")[0]
    if kind not in DEVICES:
        raise ConfigError(f"device = {name!r} is not one of {', '.join(DEVICES)}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError('device = "cuda" but torch sees no CUDA device; use "auto" or "cpu"')
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError('device = "mps" but torch sees no Apple GPU; use "auto" or "cpu"')
    return torch.device(name)


_threads_lock = threading.Lock()


@contextmanager
def torch_threads(count: int = 1) -> Iterator[None]:
    """Run the block with `count` torch threads: on a CPU that number decides the last bits of a result.

    The number found at the start is put back at the end. Blocks that ask for the same number may run side by
    side in threads.
    """
    if count < 1:
        raise ConfigError(f"torch threads = {count} must be at least 1")
    with _threads_lock:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _threads_lock:
            torch.set_num_threads(before)


def default_chunk(device: torch.device) -> int:
    """Patches to encode at once: 64 fit the cache of a CPU, other devices want more work."""
    return 64 if device.type == "cpu" else 4096


def mixed(device: torch.device, precision: str) -> AbstractContextManager:
    """float16 autocast on CUDA when `precision` is `mixed`; elsewhere nothing."""
    if device.type == "cuda" and precision == "mixed":
        return torch.autocast("cuda", dtype=torch.float16)
    return nullcontext()


def in_slices(work: Callable[[slice], None], total: int, chunk: int) -> None:
    """Call `work` on slices that cover `range(total)`; when memory runs out, halve them and go on."""
    start = 0
    while start < total:
        part = slice(start, min(start + chunk, total))
        try:
            work(part)
        except torch.OutOfMemoryError:
            if chunk == 1:
                raise
            chunk = (chunk + 1) // 2
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            continue
        start = part.stop
