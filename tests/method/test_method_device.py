"""Where a model runs."""

import os
import platform
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from paano import PaAno, PaAnoConfig
from paano.device import (
    compute_threads,
    data_device,
    give_back_memory,
    in_slices,
    keep_freed_memory,
    pick_device,
)
from paano.errors import ConfigError
from paano.network.train import train


def test_the_threads_of_torch_are_put_back_after_nested_blocks_and_errors():
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), compute_threads(2), compute_threads(1):
        assert torch.get_num_threads() == 1
        raise RuntimeError
    assert torch.get_num_threads() == before
    with compute_threads(2):
        with compute_threads(3):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 2


def test_a_block_that_ends_does_not_change_the_threads_of_one_beside_it():
    inside, leave, seen = threading.Event(), threading.Event(), []

    def beside():
        with compute_threads(1):
            inside.set()
            leave.wait(10)
            seen.append(torch.get_num_threads())

    thread = threading.Thread(target=beside)
    thread.start()
    inside.wait(10)
    with compute_threads(1):
        pass
    leave.set()
    thread.join()
    assert seen == [1]


def test_the_threads_of_numpy_are_limited_and_put_back_too():
    def blas() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    before = blas()
    with compute_threads(2):
        with compute_threads(1):
            assert blas() == {1}
        assert blas() == {2}
    assert blas() == before


def test_no_thread_at_all_is_refused():
    with pytest.raises(ConfigError, match="at least 1"), compute_threads(0):
        pass


def test_every_index_is_done_once_even_when_memory_runs_out():
    done, refused = [], []

    def work(part):
        if part.stop - part.start > 3:
            refused.append(part)
            raise torch.OutOfMemoryError("too much")
        done.extend(range(part.start, part.stop))

    in_slices(work, 20, 10)
    assert done == list(range(20)) and len(refused) == 2


def test_a_device_without_float64_keeps_the_series_on_the_cpu():
    assert data_device(torch.device("mps")) == torch.device("cpu")
    assert data_device(torch.device("cuda", 0)) == torch.device("cuda", 0)
    assert pick_device(torch.device("cpu")) == torch.device("cpu")


def test_training_on_a_cpu_takes_its_memory_from_the_system_once_and_not_in_every_iteration():
    resource = pytest.importorskip("resource")
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc can be told to keep freed memory")
    config = PaAnoConfig.preset("light", iterations=6)
    x = np.sin(np.arange(2_000) / 9)

    def pages_per_iteration() -> float:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        train([PaAno(config, "cpu").prepare(x)[1]], config)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / config.iterations

    pages_per_iteration()
    # The outputs of one iteration are about 7,000 pages of 4 kB.
    assert min(pages_per_iteration() for _ in range(2)) < 700


def test_what_was_freed_between_what_is_in_use_is_given_back():
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc can be told to give memory back")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    keep_freed_memory()
    blocks = [torch.ones(25_000) for _ in range(1_000)]  # 100 MB
    held = blocks[::10]
    del blocks
    before = resident()
    give_back_memory()
    assert before - resident() > 60e6 and len(held) == 100
