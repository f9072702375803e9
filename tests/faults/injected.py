"""Faults at the k-th call to a store or the registry, in a process that was made for it.

The calls are wrapped in the test's own process; the product knows nothing of it. Every call has two moments:
before it is made, and after it was made but its answer has not come. Placing a written file has two more.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paano.errors import RegistryUnavailable, StorageUnavailable
from storage.objects import local, s3
from storage.registry.client import RegistryClient

REGISTRY_READS = ("models", "model", "version", "versions", "every_version")
STORE_CALLS = ("get_with_etag", "put", "head", "list", "folders", "delete", "open")


@dataclass
class Fault:
    """What happens when, and how often it has happened."""

    act: Callable[[int, str], None]  # (number of the moment, name of the call)
    count: itertools.count[int]
    names: list[str] = field(default_factory=list)  # of the moments so far
    written: set[tuple[str, str]] = field(default_factory=set)  # (address, digest) of every put


_current: Fault | None = None
_lock = threading.Lock()
_wrapped = False


def moment(name: str) -> None:
    """A moment at which something may happen."""
    if _current is not None:
        with _lock:
            number = next(_current.count)
            _current.names.append(name)
        _current.act(number, name)


def _wrap(owner: Any, name: str, label: str) -> None:
    original = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        if name == "put" and _current is not None:
            _current.written.add((arguments[0].url_of(arguments[1]), digest_of(arguments[2])))
        moment(f"before {label}")
        answer = original(*arguments, **named)
        if name == "list":
            answer = iter(list(answer))
        moment(f"after {label}")
        return answer

    setattr(owner, name, call)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wrap() -> None:
    """Put the moments into the classes of this process, once."""
    global _wrapped
    if _wrapped:
        return
    _wrapped = True
    for owner in (local.LocalStore, s3.S3Store):
        for name in STORE_CALLS:
            _wrap(owner, name, f"store.{name}")
    _wrap(local, "_place", "placing a file")
    for name in REGISTRY_READS:
        _wrap(RegistryClient, name, f"registry.{name}")
    original = RegistryClient.call

    def call(self: RegistryClient, what: str, method: str, *arguments: Any, **named: Any) -> Any:
        moment(f"before registry.{method}")
        answer = original(self, what, method, *arguments, **named)
        moment(f"after registry.{method}")
        return answer

    RegistryClient.call = call  # type: ignore[method-assign]  # in the process of a test


def begin(act: Callable[[int, str], None]) -> Fault:
    """From now on `act` is asked at every moment; they are counted from 1."""
    global _current
    wrap()
    _current = Fault(act, itertools.count(1))
    return _current


def end() -> None:
    """Nothing happens any more."""
    global _current
    _current = None


def nothing(number: int, name: str) -> None:
    """Only count."""


def _at(where: int | str, do: Callable[[str], None]) -> Callable[[int, str], None]:
    """`do` at the moment of this number, or at the first of this name; 0: never.

    Where threads work at once, moments have other numbers every time, and a name is surer.
    """
    done = False

    def act(number: int, name: str) -> None:
        nonlocal done
        if not done and where in (number, name):
            done = True
            do(name)

    return act


def kill_at(where: int | str) -> Callable[[int, str], None]:
    """End this process at a moment, as `kill -9` does."""
    return _at(where, lambda _: os.kill(os.getpid(), signal.SIGKILL))


def fail_at(where: int | str) -> Callable[[int, str], None]:
    """A moment is a lost connection; before the call nothing was done, after it the answer is lost."""

    def fail(name: str) -> None:
        raise lost(name)

    return _at(where, fail)


def kill_moments(names: list[str]) -> list[int]:
    """The moments at which a kill leaves something different: before the next call is after this one."""
    return [n for n, name in enumerate(names, 1) if name.startswith("after") or "placing" in name]


def fail_moments(names: list[str]) -> list[int]:
    """Every call that fails before it is made, and every change whose answer is lost."""
    changes = ("put", "delete", "create", "set_", "update")
    return [
        n
        for n, name in enumerate(names, 1)
        if "placing" not in name and (name.startswith("before") or any(word in name for word in changes))
    ]


def lost(name: str) -> Exception:
    """The error that a lost connection gives at the call `name`."""
    error = RegistryUnavailable if "registry" in name else StorageUnavailable
    return error(f"{name}: the connection was lost; check the network")
