"""Where a model runs: device, threads, kept memory, mixed precision, going on when memory is short."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from threadpoolctl import ThreadpoolController

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


def data_device(device: torch.device) -> torch.device:
    """Where series and embeddings are: with the encoder, but on the CPU for MPS, which has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


_threads_lock = threading.Lock()
_asked: list[int] = []  # numbers of threads asked for by blocks that run now, the newest last
_found: list[tuple[Callable[[int], None], int]] = []  # what sets a library's threads, and its number before


@contextmanager
def compute_threads(count: int = 1) -> Iterator[None]:
    """Run the block with `count` threads in torch, in numpy's BLAS and in OpenMP.

    On a CPU that number decides the last bits of a result, and threads of several libraries on top of those
    of a fleet's batches only wait for each other. Blocks may be nested and may run side by side in threads;
    there they should ask for the same number, as the newest wins. The numbers found by the first are put back
    when the last one ends.
    """
    if count < 1:
        raise ConfigError(f"threads = {count} must be at least 1")
    with _threads_lock:
        if not _asked:
            libraries = ThreadpoolController().lib_controllers
            _found[:] = [(library.set_num_threads, library.num_threads) for library in libraries]
            _found.append((torch.set_num_threads, torch.get_num_threads()))
        _asked.append(count)
        _set_threads(count)
    try:
        yield
    finally:
        with _threads_lock:
            _asked.reverse()
            _asked.remove(count)  # the newest of them
            _asked.reverse()
            _set_threads(_asked[-1] if _asked else None)


def _set_threads(count: int | None) -> None:
    for use, before in _found:
        use(before if count is None else count)


def default_chunk(device: torch.device) -> int:
    """Patches to encode at once: 64 fit the cache of a CPU, other devices want more work."""
    return 64 if device.type == "cpu" else 4096


FREED_BYTES, LARGEST_BYTES = 256 << 20, 64 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


@functools.cache
def keep_freed_memory() -> None:
    """Let this process keep up to 256 MB of what it frees, where glibc would give all back to the system.

    On a CPU every training step and every chunk of patches frees its activations, and the next one asks for
    as much again; clearing those pages anew each time was 2 % (paper) to 6 % (light) of the training. Blocks
    above 64 MB still go back.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # other C libraries have none, and keep what they like
        mallopt(_M_MMAP_THRESHOLD, LARGEST_BYTES)
        mallopt(_M_TRIM_THRESHOLD, FREED_BYTES)


def give_back_memory() -> None:
    """Give what this process has freed back to the system: after a training, whose peak is the process's.

    What was kept lies in pieces between what is in use, and a process that trains again and again would grow
    by such pieces.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def mixed(device: torch.device, precision: str) -> AbstractContextManager[object]:
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
