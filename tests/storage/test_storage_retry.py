"""A call is repeated while it may work, not longer, and not for another error."""

import pytest

from paano.errors import Conflict, StorageError, StorageUnavailable, Transient
from storage.retry import patiently


def failing(times, error):
    calls = []

    def call():
        calls.append(1)
        if len(calls) <= times:
            raise error("no")
        return len(calls)

    return call, calls


def test_it_is_called_again_until_it_works():
    call, _ = failing(3, StorageUnavailable)
    assert patiently(call, Transient, attempts=5, first=0.001) == 4


def test_the_last_error_is_raised_when_it_lasts():
    call, calls = failing(99, Conflict)
    with pytest.raises(Conflict):
        patiently(call, (Conflict, Transient), attempts=5, first=0.001)
    assert len(calls) == 5


def test_another_error_is_raised_at_once():
    call, calls = failing(99, StorageError)
    with pytest.raises(StorageError):
        patiently(call, Transient, attempts=5, first=0.001)
    assert len(calls) == 1


def test_no_try_is_begun_after_the_time_is_up():
    call, calls = failing(99, Conflict)
    with pytest.raises(Conflict):
        patiently(call, Conflict, attempts=1000, first=0.01, seconds=0.05)
    assert len(calls) < 10
