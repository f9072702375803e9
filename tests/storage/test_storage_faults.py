"""Every failure has a name, an object, a remedy and no secret; a lost line is Transient within seconds."""

import dataclasses
import errno
import os
import random
import subprocess
import sys
import time

import pytest

from paano.errors import (
    AccessDenied,
    ObjectMissing,
    StorageError,
    StorageFull,
    StorageUnavailable,
    Transient,
)
from storage.objects.store import StorageOptions, open_store
from tests.storage.proxy import line_to
from tests.storage.workers import going


def actions(store):
    return [
        lambda: store.get("x"),
        lambda: store.put("x", b"1"),
        lambda: store.put("x", b"1", if_absent=True),
        lambda: list(store.list()),
        lambda: store.delete("x"),
        lambda: store.head("x"),
    ]


def test_a_wrong_secret_is_access_denied_with_the_variables_to_check(s3):
    options = dataclasses.replace(s3.options, secret="wrong-but-secret")
    for action in actions(open_store(s3.url("any"), options)):
        with pytest.raises(AccessDenied) as caught:
            action()
        assert "wrong-but-secret" not in str(caught.value)
        assert s3.url("any") in str(caught.value)
        assert not isinstance(caught.value, Transient)


def test_an_unknown_key_is_access_denied(s3):
    options = dataclasses.replace(s3.options, key="nobody")
    with pytest.raises(AccessDenied, match="AWS_ACCESS_KEY_ID"):
        open_store(s3.url("any"), options).get("x")


def test_a_missing_bucket_is_named_as_such(s3):
    store = open_store("s3://no-such-bucket-here/prefix", s3.options)
    for action in (lambda: store.get("x"), lambda: list(store.list())):
        with pytest.raises(ObjectMissing, match="no such bucket"):
            action()


def test_no_credentials_at_all_says_which_to_set(s3, monkeypatch, tmp_path):
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    store = open_store(s3.url("any"), StorageOptions(endpoint=s3.endpoint, region="us-east-1"))
    with pytest.raises(AccessDenied, match="AWS_SECRET_ACCESS_KEY"):
        store.get("x")


def test_credentials_come_from_the_usual_variables(s3, monkeypatch):
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    # attempts: a figure of its own, so that no connection made with other credentials is used again
    store = open_store(s3.url("by-variables"), StorageOptions(attempts=2))
    store.put("x", b"1")
    assert store.get("x") == b"1"


@pytest.fixture
def line(s3):
    with line_to(s3.endpoint) as line:
        yield line


@pytest.fixture
def shaky(s3, line):
    """A store at the other end of the line, with little patience."""
    options = dataclasses.replace(
        s3.options, endpoint=line.endpoint, connect_timeout=0.3, read_timeout=0.7, attempts=1
    )
    return open_store(s3.url("shaky"), options)


@pytest.mark.parametrize("mode", ["busy", "silent", "cut"])
def test_a_bad_line_is_transient_within_seconds(shaky, line, mode):
    line.mode = mode
    for action in actions(shaky):
        began = time.monotonic()
        with pytest.raises(StorageUnavailable, match=r"s3://fleet/shaky") as caught:
            action()
        assert time.monotonic() - began < 10
        assert isinstance(caught.value, Transient)
        assert "test-secret" not in str(caught.value)


def test_an_answer_cut_in_the_middle_is_transient_and_never_half_the_data(s3, shaky, line):
    open_store(s3.url("shaky"), s3.options).put("big", os.urandom(3_000_000))
    line.mode, line.bytes = "cut", 1_000_000
    with pytest.raises(StorageUnavailable):
        shaky.get("big")


def test_a_short_fault_is_overcome_without_anybody_noticing(s3, line, monkeypatch):
    store = open_store(s3.url("shaky"), dataclasses.replace(s3.options, endpoint=line.endpoint, attempts=2))
    store.put("x", b"1")
    line.mode = "busy"
    monkeypatch.setattr("storage.retry.time.sleep", lambda seconds: setattr(line, "mode", "good"))
    assert store.get("x") == b"1"


def test_a_dead_endpoint_is_transient():
    options = StorageOptions(endpoint="http://127.0.0.1:9", region="x", key="k", secret="s", attempts=1)
    with pytest.raises(StorageUnavailable, match="check the endpoint"):
        open_store("s3://bucket/x", options).get("y")


def test_a_conditional_put_whose_answer_was_lost_is_not_repeated_blindly(s3, shaky, line):
    line.mode, line.bytes = "cut", 0
    with pytest.raises(StorageUnavailable):
        shaky.put("claim", b"mine", if_absent=True)
    line.mode = "good"
    # It may or may not have arrived; it is never a half and never a false Conflict.
    whole = open_store(s3.url("shaky"), s3.options)
    assert whole.head("claim") is None or whole.get("claim") == b"mine"


def test_a_folder_that_may_not_be_written_is_access_denied(tmp_path):
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(AccessDenied, match="locked"):
            open_store(str(tmp_path / "locked")).put("x", b"1")
        return
    script = (
        "import os, sys\n"
        "from paano.errors import AccessDenied\n"
        "from storage.objects.store import open_store\n"
        "import storage.objects.local; os.setuid(65534)\n"
        "try: open_store(sys.argv[1]).put('x', b'1')\n"
        "except AccessDenied as error: print(error)\n"
    )
    (tmp_path / "locked").mkdir(mode=0o500)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "locked")], capture_output=True, text=True
    )
    assert "locked" in done.stdout, done.stderr


def test_a_full_disk_is_named_and_leaves_the_old_object(tmp_path, monkeypatch):
    store = open_store(str(tmp_path / "data"))
    store.put("x", b"old")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFull, match="no space is left"):
        store.put("x", b"new")
    monkeypatch.undo()
    assert store.get("x") == b"old"
    assert not list(store.aside.glob("half-*"))


def test_a_disk_that_is_really_full_is_named(tmp_path):
    """By the largest file a process may write: the system's own refusal, no mock."""
    script = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from storage.objects.store import open_store\n"
        "from paano.errors import StorageFull\n"
        "store = open_store(sys.argv[1]); store.put('x', b'old')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: store.put('x', b'n' * 1_000_000)\n"
        "except StorageFull as error: print(error, store.get('x'))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "d")], capture_output=True, text=True)
    assert "no space is left" in done.stdout and "b'old'" in done.stdout, done.stderr


def test_a_writer_killed_at_any_moment_leaves_the_old_or_the_new_object(place):
    chance = random.Random(7)
    store = place.store()
    store.put("x", b"0" * 200_000)
    for _ in range(3):
        with going("put_for_ever", place):
            time.sleep(0.1 + chance.random() * 0.2)
        data = store.get("x")
        assert data == data[:1] * 200_000
    assert [info.key for info in store.list()] == ["x"]


def test_an_unexpected_answer_is_an_error_and_no_secret(s3):
    with pytest.raises(StorageError, match="x" * 20):
        open_store(s3.url("any"), s3.options).put("x" * 2_000, b"")
