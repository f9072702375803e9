"""A store in a bucket, through s3fs."""

from __future__ import annotations

import asyncio
import builtins
import functools
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO

import fsspec.asyn

from paano.errors import ConfigError, Conflict, ObjectMissing, StorageError
from storage.objects.errors import name_error, named
from storage.objects.store import ObjectInfo, Skip, StorageOptions, Store, check_key, under

if TYPE_CHECKING:
    from storage.objects.s3_get import Getter, Page

USER_AGENT = "paano-fleet"  # botocore puts its own together anew for every request: a tenth of its time
PAGE, SHORT_PAGE = 1000, 100  # objects of a listing that are asked for at once
SLOWEST = 100_000  # bytes per second: an upload slower than this is given up
_MAKING = threading.Lock()
_MADE: dict[tuple[int, StorageOptions], Any] = {}
_GETTERS: dict[tuple[int, StorageOptions, str], Getter] = {}


class S3Store(Store):
    """A bucket and prefix, through s3fs. Conditions are S3's own If-Match and If-None-Match."""

    def __init__(self, url: str, options: StorageOptions | None = None) -> None:
        super().__init__(url, options)
        self.bucket, _, prefix = self.url.partition("://")[2].partition("/")
        if not self.bucket:
            raise ConfigError(f"{url!r} names no bucket; write s3://bucket/prefix")
        self.prefix = under(prefix)

    @property
    def fs(self) -> Any:
        """The s3fs file system, one for all stores of this process with the same options."""
        # One made before a fork would hang, and a new one takes botocore a second.
        name = (os.getpid(), self.options)
        with _MAKING:
            if name not in _MADE:
                _MADE[name] = _s3_file_system(self.options)
            return _MADE[name]

    @property
    def getter(self) -> Getter:
        """The quick way to objects of this bucket, one for all stores of this process."""
        from storage.objects.s3_get import Getter  # it takes botocore, and commands start without S3

        fs, options = self.fs, self.options
        name = (os.getpid(), options, self.bucket)
        with _MAKING:
            if name not in _GETTERS:
                limits = options.connect_timeout, options.read_timeout
                _GETTERS[name] = Getter(fs, self.bucket, USER_AGENT, *limits)
            return _GETTERS[name]

    def _run(self, key: str, work: Any) -> Any:
        fs = self.fs
        with named(self._tried(key)):
            return fsspec.asyn.sync(fs.loop, work, fs)

    def _tried(self, key: str) -> str:
        """An object and the endpoint that is asked for it, as errors name them."""
        return f"{self.url_of(key)} at {endpoint_name(self.options)}"

    def _call(self, key: str, method: str, **arguments: Any) -> dict[str, Any]:
        # botocore's timeouts do not count while a PUT waits for the server's "100 Continue": it would hang.
        seconds = self.options.connect_timeout + self.options.read_timeout
        seconds += len(arguments.get("Body", b"")) / SLOWEST

        async def work(fs: Any) -> dict[str, Any]:
            return await asyncio.wait_for(fs._call_s3(method, Bucket=self.bucket, **arguments), seconds)

        answer: dict[str, Any] = self._run(key, work)
        return answer

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        full = self.prefix + check_key(key)

        async def work(fs: Any) -> tuple[bytes, str]:
            answer = await fs._call_s3("get_object", Bucket=self.bucket, Key=full)
            try:
                return await answer["Body"].read(), answer["ETag"]
            finally:
                answer["Body"].close()

        quick = iter([self.getter.get])  # for the first try only: s3fs says best what is wrong

        def call() -> tuple[bytes, str]:
            for get in quick:
                with named(self._tried(key)):
                    if (answer := get(full)) is not None:
                        return answer
            found: tuple[bytes, str] = self._run(key, work)
            return found

        return self._patiently(call)

    def put(self, key: str, data: bytes, *, if_match: str | None = None, if_absent: bool = False) -> str:
        arguments: dict[str, Any] = {"Key": self.prefix + check_key(key), "Body": data}
        if if_absent:
            arguments["IfNoneMatch"] = "*"
        if if_match is not None:
            arguments["IfMatch"] = if_match

        def call() -> str:
            try:
                return str(self._call(key, "put_object", **arguments)["ETag"])
            except ObjectMissing as error:
                if if_match is None:
                    raise
                raise Conflict(f"{self._tried(key)}: somebody else removed it first") from error

        # A repeated conditional put could meet its own first try and call it a conflict: the caller, who can
        # look, repeats those.
        return call() if if_absent or if_match is not None else self._patiently(call)

    def head(self, key: str) -> ObjectInfo | None:
        full = self.prefix + check_key(key)
        try:
            answer = self._patiently(lambda: self._call(key, "head_object", Key=full))
        except ObjectMissing:
            return None
        modified = answer["LastModified"].astimezone(UTC)
        return ObjectInfo(key, answer["ContentLength"], modified, answer.get("ETag", ""))

    def list(self, prefix: str = "", skip: Skip | None = None) -> Iterator[ObjectInfo]:
        most, after, token = PAGE, "", ""
        first = seen = again = ""
        while True:
            page = self._page(prefix, most, after, token)
            keys = [one.key for one in page.objects]
            first = first or "".join(keys[:1])
            if after and keys[:1] == [first]:
                skip, again = None, seen  # this server begins anew: it knows of no skipping
            for one in page.objects:
                # Else nothing is left out by its name: some servers list `a/2` before `a-b/1`.
                if one.key > again and (info := self._info(*one)) is not None:
                    yield info
            if not page.token:
                return
            last = "".join(keys[-1:])
            seen, after, token = max(seen, last), "", self._onward(prefix, token, page.token)
            target = self.prefix + skip(last.removeprefix(self.prefix)) if skip and last else ""
            if target > seen:
                # Most of a large page would be left out again.
                seen, after, token, most = target, target, "", SHORT_PAGE
            else:
                most = min(PAGE, 2 * most)

    def _info(self, full: str, size: int, tag: str, modified: datetime) -> ObjectInfo | None:
        """What a listing says of an object; None for the mark of a folder."""
        key = full.removeprefix(self.prefix)
        return ObjectInfo(key, size, modified, tag) if key and not key.endswith("/") else None

    def _page(self, prefix: str, most: int, after: str, token: str) -> Page:
        """A part of a listing: `most` objects after the key `after`, or after the page that gave `token`."""
        from storage.objects.s3_get import Listed, Page

        folder = self.prefix + under(prefix)
        quick = iter([self.getter.page])  # for the first try only: s3fs says best what is wrong
        asked: dict[str, Any] = {"Prefix": folder, "MaxKeys": most}
        asked |= {"StartAfter": after} if after else {}
        asked |= {"ContinuationToken": token} if token else {}

        def call() -> Page:
            for page in quick:
                with named(self._tried(prefix)):
                    if (found := page(folder, most, after, token)) is not None:
                        return found
            answer = self._call(prefix, "list_objects_v2", **asked)
            objects = [
                Listed(item["Key"], item["Size"], item.get("ETag", ""), item["LastModified"].astimezone(UTC))
                for item in answer.get("Contents", ())
            ]
            return Page(objects, self._token(prefix, token, answer))

        return self._patiently(call)

    def _token(self, prefix: str, former: str, answer: dict[str, Any]) -> str:
        """Where a listing goes on; empty: it is at its end."""
        if not answer.get("IsTruncated"):
            return ""
        return self._onward(prefix, former, answer.get("NextContinuationToken", ""))

    def _onward(self, prefix: str, former: str, token: str) -> str:
        """`token`; StorageError if it is none, or leads to where a listing was before: it would never end."""
        if token in ("", former):
            raise StorageError(f"{self._tried(prefix)}: the store says that its list goes on, and not where")
        return token

    def folders(self, prefix: str = "") -> builtins.list[str]:
        asked: dict[str, Any] = {"Prefix": self.prefix + under(prefix), "Delimiter": "/"}
        names: set[str] = set()
        while True:
            answer = self._patiently(functools.partial(self._call, prefix, "list_objects_v2", **asked))
            for item in answer.get("CommonPrefixes", ()):
                names.add(item["Prefix"].rstrip("/").rpartition("/")[2])
            token = self._token(prefix, asked.get("ContinuationToken", ""), answer)
            if not token:
                return sorted(names - {""})
            asked["ContinuationToken"] = token

    def delete(self, keys: str | builtins.list[str]) -> None:
        keys = [keys] if isinstance(keys, str) else keys
        for first in range(0, len(keys), 1000):  # as many as S3 takes at once
            some = [{"Key": self.prefix + check_key(key)} for key in keys[first : first + 1000]]
            objects = {"Objects": some, "Quiet": True}
            answer = self._patiently(functools.partial(self._call, "", "delete_objects", Delete=objects))
            for error in answer.get("Errors", ()):
                where = self._tried(error.get("Key", "").removeprefix(self.prefix))
                raise name_error(_Refused({"Error": error}), where)

    def open(self, key: str) -> BinaryIO:
        with named(self._tried(key)):
            file: BinaryIO = self.fs.open(
                f"{self.bucket}/{self.prefix}{check_key(key)}", "rb", cache_type="none"
            )
        return file


class _Refused(OSError):
    """One object of a bulk delete was refused."""

    def __init__(self, response: dict[str, Any]) -> None:
        super().__init__("refused")
        self.response = response


def endpoint_of(options: StorageOptions) -> str | None:
    """The address of the S3 server; None for Amazon's own."""
    named_by_variable = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return options.endpoint or named_by_variable or None


def endpoint_name(options: StorageOptions) -> str:
    """The endpoint as errors name it: never with a name and password in it."""
    scheme, mark, rest = (endpoint_of(options) or "Amazon S3").rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


@functools.cache
def known_services() -> Any:
    """What botocore knows of S3, read from its files once for this process and its forks: it is slow JSON."""
    from botocore.loaders import create_loader

    loader = create_loader()
    for kind in ("service-2", "endpoint-rule-set-1"):
        loader.load_service_model("s3", kind)
    for name in ("endpoints", "partitions", "sdk-default-configuration", "_retry"):
        loader.load_data(name)
    return loader


def _s3_file_system(options: StorageOptions) -> Any:
    import s3fs
    from aiobotocore.session import AioSession

    session = AioSession()
    if not session.get_config_variable("data_path"):
        session.register_component("data_loader", known_services())
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_moment)
    client = {"region_name": options.region} if options.region else {}
    fs = s3fs.S3FileSystem(
        session=session,
        key=options.key,
        secret=options.secret,
        token=options.token,
        endpoint_url=endpoint_of(options),
        client_kwargs=client,
        config_kwargs={
            "connect_timeout": options.connect_timeout,
            "read_timeout": options.read_timeout,
            "max_pool_connections": 32,
            "user_agent": USER_AGENT,
            "retries": {
                "max_attempts": 1,
                "mode": "standard",
            },  # `Store._patiently` is the only one that repeats
        },
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    fs.retries = 1
    return fs


def _moment(text: Any) -> datetime:
    """A time stamp of an answer; botocore's own parser takes ten times as long for those of listings."""
    from botocore.utils import parse_timestamp

    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):  # a date of a header, or seconds
        moment: datetime = parse_timestamp(text)
        return moment
