"""`paano` commands, each forked from a process that has imported everything but Prefect: seconds less."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.faults.processes import in_process


@dataclass(frozen=True)
class Done:
    """A command that came to its end: its exit code and what it wrote."""

    code: int
    stdout: bytes
    stderr: bytes


def _command(arguments: list[str], environment: dict[str, str], outputs: tuple[str, str]) -> int:
    """The command in this process, whose outputs go to two files; its exit code."""
    for number, path in enumerate(outputs, 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    logging.disable(logging.NOTSET)
    from flows.cli.app import main

    sys.argv = ["paano", *arguments]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()  # a process of multiprocessing leaves them out
    return code


def paano(*arguments: str, environment: dict[str, str]) -> Done:
    """Run a command of `paano` with `environment` and nothing else of ours."""
    with tempfile.TemporaryDirectory(prefix="paano-faults-") as folder:
        outputs = (f"{folder}/stdout", f"{folder}/stderr")
        code = in_process(_command, list(arguments), environment, outputs)
        return Done(code, *(Path(path).read_bytes() for path in outputs))


def plain_environment(**more: str) -> dict[str, str]:
    """The variables of this process without those of Prefect, and `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**kept, **more}
