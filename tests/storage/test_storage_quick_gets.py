"""The quick way to objects and listings (`storage/objects/s3_get.py`) beside the usual one, its slow twin."""

import dataclasses
import uuid
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paano.errors import AccessDenied, ObjectMissing, StorageError
from storage.objects.s3 import S3Store
from storage.objects.s3_get import Listed, Page, read_page
from storage.objects.store import open_store
from tests.storage.proxy import line_to

KEYS = st.text(
    st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="/\\"), min_size=1, max_size=40
).filter(lambda key: key.strip(". ") and len(key.encode()) < 200)


def usual(store):
    """The same place, without the quick way."""
    other = open_store(store.url, dataclasses.replace(store.options, attempts=store.options.attempts + 1))
    other.getter._other = True
    return other


@given(key=KEYS, data=st.binary(max_size=200))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_quick_way_gives_what_the_usual_one_gives_whatever_the_key(s3, key, data):
    store = open_store(s3.url("quick"), s3.options)
    etag = store.put(key, data)
    assert store.getter.get(f"{store.prefix}{key}") == (data, etag)
    assert usual(store).get_with_etag(key) == store.get_with_etag(key) == (data, etag)


@given(keys=st.lists(KEYS, max_size=12, unique=True), most=st.integers(1, 5))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_listing_is_the_same_either_way_whatever_the_keys_and_however_many_at_once(s3, keys, most):
    store = open_store(s3.url(f"quick-{uuid.uuid4()}"), s3.options)
    for key in keys:
        store.put(key, key.encode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("storage.objects.s3.PAGE", most)
        found = list(store.list())
    assert found == list(usual(store).list())
    assert [info.key for info in found] == sorted(keys)


def test_what_is_left_out_of_a_listing_follows_each_page_alone(s3):
    store = open_store(s3.url(f"quick-{uuid.uuid4()}"), s3.options)
    keys = [f"{folder}/1" for folder in "abcdefg"]
    for key in keys:
        store.put(key, b"")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("storage.objects.s3.PAGE", 2)
        found = store.list("", lambda key: "d" if key < "d" else "")
        assert [info.key for info in found] == [key for key in keys if key[0] not in "cd"]


def answering(monkeypatch, pages):
    """A store whose server answers with the keys and the next token that `pages` has for what it is asked."""

    def page(_store, _prefix, _most, after, token):
        keys, onward = pages[after or token]
        return Page([Listed(key, 1, "", datetime(2026, 1, 1, tzinfo=UTC)) for key in keys], onward)

    monkeypatch.setattr(S3Store, "_page", page)
    return open_store("s3://bucket")


def test_a_server_that_lists_folder_by_folder_loses_no_object(monkeypatch):
    """S3 itself sorts by the whole key: `a-b/1` before `a/1`."""
    store = answering(monkeypatch, {"": (["a/1", "a/2"], "t"), "t": (["a-b/1"], "")})
    assert [info.key for info in store.list()] == ["a/1", "a/2", "a-b/1"]


def test_a_server_that_begins_anew_instead_of_leaving_out_gives_no_object_twice(monkeypatch):
    anew = (["a/1", "a/2"], "t")
    store = answering(monkeypatch, {"": anew, "c": anew, "t": (["c/1", "d/1"], "")})
    found = store.list("", lambda key: "c" if key < "c" else "")
    assert [info.key for info in found] == ["a/1", "a/2", "c/1", "d/1"]


def test_a_listing_that_gets_no_further_is_an_error_and_does_not_go_on_for_ever(monkeypatch):
    store = answering(monkeypatch, {"": (["a"], "t"), "t": (["b"], "t")})
    with pytest.raises(StorageError, match="its list goes on"):
        list(store.list())


def test_a_listing_that_is_no_listing_is_told_by_the_usual_way():
    whole = b"<R><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></R>"
    assert read_page(whole).token == "t" and read_page(whole).objects == []
    damages = [b"", b"<html>", b"<R/>", b"<R><Contents/></R>", whole.replace(b"true", b"perhaps")]
    for damaged in (*damages, whole.replace(b">t<", b"><")):
        with pytest.raises((ElementTree.ParseError, LookupError, ValueError)):
            read_page(damaged)


def test_an_object_that_is_missing_is_told_by_the_usual_way_and_the_quick_one_stays(s3):
    store = open_store(s3.url("quick"), s3.options)
    with pytest.raises(ObjectMissing, match="no such object"):
        store.get("absent")
    store.put("there", b"1")
    assert store.getter.get("quick/there") is not None


def test_keys_that_are_refused_are_not_tried_twice_for_each_object(s3):
    with line_to(s3.endpoint) as line:
        options = dataclasses.replace(s3.options, endpoint=line.endpoint, secret=f"wrong-{uuid.uuid4()}")
        store = open_store(s3.url("quick"), options)
        for _ in range(3):
            with pytest.raises(AccessDenied):
                store.get("x")
        assert store.getter.get("quick/x") is None
        before = line.requests
        assert store.getter.get("quick/x") is None
        assert line.requests == before


def test_behind_a_proxy_s3fs_does_it(s3, monkeypatch):
    open_store(s3.url("quick"), s3.options).put("x", b"1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    options = dataclasses.replace(s3.options, endpoint=s3.endpoint.replace("127.0.0.1", "localhost"))
    assert open_store(s3.url("quick"), options).getter.get("quick/x") is None


def test_keys_that_change_are_asked_for_again(s3, monkeypatch):
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    options = dataclasses.replace(s3.options, key=None, secret=None, attempts=7)
    store = open_store(s3.url("quick"), options)
    store.put("x", b"1")
    getter = store.getter
    assert getter.get("quick/x") is not None
    former = getter._keys
    getter._renew = 0.0
    assert getter.get("quick/x") is not None
    assert getter._keys is not former
