"""Whole objects and listings with little work around them: botocore signs, urllib3 sends.

A night reads two small objects for each sensor and lists them all. Through the client of s3fs each object
takes a core 1.7 ms and a page of a listing 25, most of it in hooks and models that a plain request has no use
for; so an object takes a third of that and a page less than half. Only an answer of 200 is taken: with any
other the caller asks again through s3fs, which follows redirects and says what is wrong.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_plus, urlencode, urlsplit
from xml.etree import ElementTree

import fsspec.asyn
import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

GLOBAL, FIRST = "aws-global", "us-east-1"  # what botocore calls no region, and where that is
RENEWED = 60.0  # seconds for which keys are used before they are asked for again
CONNECTIONS = 32


class Listed(NamedTuple):
    """What a listing says of an object."""

    key: str
    size: int
    tag: str
    modified: datetime


@dataclass(frozen=True)
class Page:
    """A part of a listing, and the token of the next one; empty: there is none."""

    objects: list[Listed]
    token: str


def read_page(data: bytes) -> Page:
    """The answer to a ListObjectsV2.

    Raises:
        ParseError, LookupError, ValueError: it is not one.
    """
    root = ElementTree.fromstring(data)
    space = f"{root.tag.partition('}')[0]}}}" if root.tag.startswith("{") else ""
    said = {child.tag.removeprefix(space): child.text or "" for child in root}
    name = unquote_plus if said.get("EncodingType") == "url" else str
    objects = []
    for item in root.iter(f"{space}Contents"):
        of = {child.tag.removeprefix(space): child.text or "" for child in item}
        moment = datetime.fromisoformat(of["LastModified"]).astimezone(UTC)
        objects.append(Listed(name(of["Key"]), int(of["Size"]), of.get("ETag", ""), moment))
    more = {"true": True, "false": False}[said["IsTruncated"]]
    token = said["NextContinuationToken"] if more else ""
    if more and not token:
        raise ValueError("the list goes on, and it does not say where")
    return Page(objects, token)


class Getter:
    """GETs in one bucket, as the s3fs file system `fs` sends them."""

    def __init__(self, fs: Any, bucket: str, user_agent: str, connect: float, read: float) -> None:
        self.fs, self.bucket, self.user_agent = fs, bucket, user_agent
        self.timeout = urllib3.Timeout(connect=connect, read=read)
        self._lock = threading.Lock()
        self._pool: Any = None  # connections to the endpoint; made with the first GET
        self._address = self._region = ""
        self._keys: Any = None
        self._renew = 0.0  # when keys are asked for again
        self._other = False  # this bucket is for s3fs alone

    def get(self, key: str) -> tuple[bytes, str] | None:
        """The bytes and the etag of an object; None if s3fs has to be asked.

        Raises:
            urllib3.exceptions.HTTPError: no answer came, or not all of it.
        """
        answer = self._ask(f"/{self.bucket}/{quote(key, safe='/~')}")
        return (answer.data, answer.headers["ETag"]) if answer and "ETag" in answer.headers else None

    def page(self, prefix: str, most: int, after: str = "", token: str = "") -> Page | None:
        """`most` objects whose keys begin with `prefix`; None as for `get`.

        Those after the key `after`, or after the page that gave `token`.
        """
        asked = {"encoding-type": "url", "list-type": "2", "max-keys": str(most), "prefix": prefix}
        asked |= {"start-after": after} if after else {}
        asked |= {"continuation-token": token} if token else {}
        query = urlencode(sorted(asked.items()), quote_via=quote, safe="~")
        answer = self._ask(f"/{self.bucket}?{query}")
        try:
            return read_page(answer.data) if answer else None
        except (ElementTree.ParseError, LookupError, ValueError):
            return None  # not what S3 says: s3fs tells what is wrong

    def _ask(self, path: str) -> Any:
        """The answer to a GET, if it is one of 200."""
        with self._lock:
            if not self._other and time.monotonic() >= self._renew:
                fsspec.asyn.sync(self.fs.loop, self._get_ready)
            if self._other:
                return None
        request = AWSRequest("GET", self._address + path, headers={"User-Agent": self.user_agent})
        S3SigV4Auth(self._keys, "s3", self._region).add_auth(request)
        answer = self._pool.urlopen(
            "GET",
            path,
            headers=dict(request.headers),
            timeout=self.timeout,
            retries=False,
            redirect=False,
            decode_content=False,
        )
        if answer.status == 200:
            return answer
        # Another region, a signature of another kind: it would be so each time.
        self._other = self._other or 300 <= answer.status < 404
        return None

    async def _get_ready(self) -> None:
        """Address, connections and keys, as botocore knows them."""
        fs = self.fs
        meta = (await fs.set_session()).meta
        found = Credentials(fs.key, fs.secret, fs.token) if fs.key else await fs.session.get_credentials()
        proxies = get_environ_proxies(meta.endpoint_url)
        if found is None or proxies or urlsplit(meta.endpoint_url).path.strip("/"):
            self._other = True
            return
        self._keys = found if fs.key else await found.get_frozen_credentials()
        self._renew = time.monotonic() + RENEWED
        self._region = FIRST if meta.region_name in (None, GLOBAL) else meta.region_name
        self._address = meta.endpoint_url.rstrip("/")
        if self._pool is None:
            checked = {}
            if self._address.startswith("https"):
                bundle = fs.session.get_config_variable("ca_bundle") or get_cert_path(True)
                checked = {"cert_reqs": "CERT_REQUIRED", "ca_certs": bundle}
            self._pool = urllib3.connection_from_url(self._address, maxsize=CONNECTIONS, **checked)
