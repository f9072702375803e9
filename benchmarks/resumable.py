"""Long benchmarks that can be stopped and taken up again: every finished task is one line of a file."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def read_rows(path: Path | None) -> list[dict[str, Any]]:
    """The rows that are finished; none without a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def run_tasks(
    run: Callable[[T], dict[str, Any]], tasks: Sequence[T], out: Path, workers: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Progress ("3/46") and row of each task as it is finished, in any order; `out` gets the row, too."""
    if not tasks:
        return
    context = multiprocessing.get_context("spawn")  # torch does not survive a fork
    with context.Pool(workers) as pool, out.open("a") as file:
        for done, row in enumerate(pool.imap_unordered(run, tasks), start=1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            yield f"{done}/{len(tasks)}", row
