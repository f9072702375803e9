"""What every store promises, on a folder, on S3 and in memory."""

import errno
import os
import pickle
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paano.errors import ConfigError, Conflict, ObjectMissing, StorageError, StorageUnavailable
from storage.objects.store import StorageOptions, open_store
from tests.storage.workers import together


@pytest.fixture(params=["folder", "bucket", "memory"])
def store(request):
    if request.param == "memory":
        return open_store(f"memory://test-{uuid.uuid4()}")
    return request.getfixturevalue(request.param).store()


def test_what_was_put_is_what_is_got(store):
    data = bytes(range(256)) * 1000
    store.put("a/b c/ü.bin", data)
    assert store.get("a/b c/ü.bin") == data


def test_an_object_that_is_not_there_has_a_name_for_it(store):
    with pytest.raises(ObjectMissing, match="nothing/here"):
        store.get("nothing/here")
    assert store.head("nothing/here") is None
    assert list(store.list("nothing")) == []
    assert store.folders("nothing") == []


def test_a_put_if_absent_happens_once(store):
    store.put("once", b"first", if_absent=True)
    with pytest.raises(Conflict, match="once"):
        store.put("once", b"second", if_absent=True)
    assert store.get("once") == b"first"


def test_a_put_if_match_needs_the_etag_of_what_is_there(store):
    first = store.put("x", b"1")
    second = store.put("x", b"2", if_match=first)
    with pytest.raises(Conflict):
        store.put("x", b"3", if_match=first)
    with pytest.raises(Conflict):
        store.put("never-there", b"3", if_match=first)
    assert store.get_with_etag("x") == (b"2", second)


def test_a_listing_is_sorted_whole_and_fresh(store):
    keys = ["b/2", "a", "b/1", "b/c/d", "bb"]
    for key in keys:
        store.put(key, b"xyz")
    assert [info.key for info in store.list()] == sorted(keys)
    assert [info.key for info in store.list("b")] == ["b/1", "b/2", "b/c/d"]  # not bb
    assert store.folders() == ["b"]
    store.put("b/3", b"")
    assert "b/3" in [info.key for info in store.list("b")]
    info = store.head("a")
    assert info.size == 3
    assert abs(info.modified - datetime.now(UTC)) < timedelta(minutes=5)


def test_deleted_objects_are_gone_and_missing_ones_no_error(store):
    for n in range(5):
        store.put(f"d/{n}", b"")
    store.delete([f"d/{n}" for n in range(4)] + ["d/none"])
    assert [info.key for info in store.list()] == ["d/4"]
    store.delete("d/4")
    assert list(store.list()) == []


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/x", "", "a//b", "./x", "a\\..\\b", "a\0b"])
def test_a_key_never_leaves_its_store(store, key):
    for attempt in (lambda: store.put(key, b""), lambda: store.get(key), lambda: store.delete(key)):
        with pytest.raises(StorageError, match="would leave"):
            attempt()


def test_an_open_object_can_be_read_in_parts(store):
    store.put("big", bytes(range(256)) * 100)
    with store.open("big") as file:
        file.seek(25_600 - 10)
        assert file.read() == bytes(range(246, 256))


def test_a_store_travels_to_another_process_as_its_address(place):
    store = place.store()
    store.put("x", b"1")
    assert pickle.loads(pickle.dumps(store)).get("x") == b"1"


def test_of_many_threads_one_wins_each_round(place):
    store = place.store()
    etag = store.put("seat", b"nobody")
    for turn in range(3):
        start = threading.Barrier(4)

        def sit(n, etag=etag, start=start, turn=turn):
            start.wait()
            try:
                return store.put("seat", f"writer {n} in turn {turn}".encode(), if_match=etag)
            except Conflict:
                return None

        with ThreadPoolExecutor(4) as pool:
            won = [n for n in pool.map(sit, range(4)) if n]
        assert len(won) == 1
        etag = won[0]


def test_processes_that_add_by_if_match_lose_no_addition(place):
    place.store().put("sum", b"0")
    together([("add", place, 4)] * 3)
    assert place.store().get("sum") == b"12"


def test_a_listing_of_more_than_a_thousand_objects_is_whole_and_all_can_be_deleted(bucket):
    store = bucket.store()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: store.put(f"many/{n:04d}", b""), range(1_050)))
    keys = [info.key for info in store.list("many")]
    assert keys == [f"many/{n:04d}" for n in range(1_050)]
    store.delete(keys)
    assert list(store.list("many")) == []


@pytest.mark.parametrize("url", ["", "s3://", "s3://key:secret@bucket/x", "no-such-scheme://x/y"])
def test_an_address_that_cannot_be_one_is_refused_without_repeating_it_in_full(url):
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_options_never_show_a_secret():
    options = StorageOptions(key="AKIA-VISIBLE", secret="hush-hush", token="tok-tok")
    for text in (repr(options), str(options), repr(open_store("s3://bucket/x", options))):
        assert "hush-hush" not in text and "AKIA-VISIBLE" not in text and "tok-tok" not in text


def test_a_file_url_is_a_folder(tmp_path):
    open_store(f"file://{tmp_path}/a%20b").put("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"


def test_nothing_but_the_objects_lies_in_a_local_folder(tmp_path):
    store = open_store(str(tmp_path / "data"))
    store.put("date=2026-01-01/x.parquet", b"1")
    assert [p.name for p in (tmp_path / "data").rglob("*") if p.is_file()] == ["x.parquet"]


def test_a_folder_of_another_machine_is_refused():
    with pytest.raises(ConfigError, match="another-host"):
        open_store("file://another-host/x")
    assert open_store("file:///tmp/x%20y").url == "/tmp/x y"
    assert open_store("file://localhost/tmp/x").url == "/tmp/x"


def test_a_pipe_or_a_device_in_place_of_an_object_is_refused_and_does_not_hang(folder):
    store = folder.store()
    store.put("a", b"1")
    os.mkfifo(store.root / "pipe")
    (store.root / "zero").symlink_to("/dev/zero")
    for key in ("pipe", "zero"):
        for read in (store.get, store.open):
            with pytest.raises(StorageError, match="not a regular file"):
                read(key)
    with pytest.raises(StorageError):
        store.put("pipe", b"2", if_match="x")
    assert store.get("a") == b"1"


def test_a_mount_inside_a_store_is_written_to(folder, monkeypatch):
    store, replace = folder.store(), Path.replace

    def within_one_file_system(self, target):
        if self.parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", within_one_file_system)
    etag = store.put("date=1/x", b"1")
    store.put("date=1/x", b"2", if_match=etag)
    assert store.get("date=1/x") == b"2"
    assert [path.name for path in (store.root / "date=1").iterdir()] == ["x"]
    left = store.root / "date=1" / ".half-9-dead"  # a writer was killed
    left.write_bytes(b"half")
    assert [info.key for info in store.list()] == ["date=1/x"]
    os.utime(left, (0, 0))
    store.put("date=1/y", b"3")
    assert sorted(path.name for path in (store.root / "date=1").iterdir()) == ["x", "y"]


def test_an_error_of_s3_names_the_endpoint_without_its_password(bucket):
    with pytest.raises(ObjectMissing, match=f"nothing at {bucket.options.endpoint}: "):
        bucket.store().get("nothing")
    away = StorageOptions(endpoint="http://me:secret@127.0.0.1:9", key="k", secret="s", attempts=1)
    with pytest.raises(StorageUnavailable, match=r"at http://127\.0\.0\.1:9: ") as caught:
        open_store("s3://bucket/x", away).get("y")
    assert "secret" not in str(caught.value)
