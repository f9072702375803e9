"""Processes that may be killed: forked from one that has imported everything, so that each costs little."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.faults.preloaded"])
SECONDS = 900  # nothing here takes a third of it on a quiet machine; a hang is a failure


class Died(Exception):
    """The process ended without an answer: by a signal, if `code` is negative."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the process ended with {code}")
        self.code = code


def _main(answers: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        answer: tuple[bool, Any] = (True, work(*arguments))
    except Exception as error:
        answer = (False, f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-6)}")
    answers.send(answer)
    answers.close()


class Running:
    """Work in a process of its own."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._receive, send = _CONTEXT.Pipe(duplex=False)
        self.process = _CONTEXT.Process(target=_main, args=(send, work, arguments))
        self.process.start()
        send.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def result(self, seconds: float = SECONDS) -> Any:
        """What the work gave. Died if it was killed; RuntimeError with its traceback if it raised."""
        try:
            if not self._receive.poll(seconds):
                self.kill()
                raise TimeoutError(f"no answer within {seconds} s")
            fine, answer = self._receive.recv()
        except EOFError:
            self.process.join()
            raise Died(self.process.exitcode) from None
        finally:
            self._receive.close()
        self.process.join()
        if not fine:
            raise RuntimeError(answer)
        return answer


def in_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """`work(*arguments)` in a process of its own."""
    return Running(work, *arguments).result()


def end_server() -> None:
    """End the process that others are forked from: the system then adds the time of all of them to ours."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # it has no public name
