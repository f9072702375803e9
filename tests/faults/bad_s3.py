"""An S3 server with faults: every request goes through here to the real one, and some go wrong.

Requests are passed on byte for byte, so that signatures hold. Which ones go wrong is drawn from a seeded
generator; `share` of all, in one of the ways in `kinds`.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>try later</Message></Error>"
ANSWERS = {
    "error 500": (500, "InternalError"),
    "error 503": (503, "ServiceUnavailable"),
    "throttling": (503, "SlowDown"),
    "too many": (429, "TooManyRequests"),
}
EMPTY = (
    "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
    "<Name>fleet</Name><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
    "</ListBucketResult>"
)


class BadS3(ThreadingHTTPServer):
    """The server in front. Set `share` and `kinds`; `wrong` counts what went wrong."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target: str, seed: int = 17) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = urlsplit(target)
        self.share, self.kinds = 0.0, ("error 503",)
        self.wrong = self.requests = 0
        self.listings: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {}
        self._chance, self._lock = random.Random(seed), threading.Lock()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def draw(self, listing: bool) -> str:
        """What goes wrong with this request; nothing: empty. Listings have ways of their own."""
        with self._lock:
            self.requests += 1
            own = [kind for kind in self.kinds if ("listing" in kind) <= listing]
            if not own or self._chance.random() >= self.share:
                return ""
            self.wrong += 1
            return self._chance.choice(own)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone away is what is tried here."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: BadS3

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        listing = self.command == "GET" and "list-type=2" in self.path
        kind = self.server.draw(listing)
        if kind in ANSWERS:
            status, code = ANSWERS[kind]
            return self._send(status, [("Content-Type", "application/xml")], ERROR.format(code).encode())
        if kind == "empty listing":
            return self._send(200, [("Content-Type", "application/xml")], EMPTY.encode())
        if kind == "stale listing" and self.path in self.server.listings:
            return self._send(*self.server.listings[self.path])
        if kind == "connection refused":
            return self._hang_up()
        status, headers, data = self._forward(body)
        if listing and status == 200:
            self.server.listings.setdefault(self.path, (status, headers, data))  # the first one is kept
        if kind == "lost answer":
            return self._hang_up()
        if kind == "cut answer" and self.command != "HEAD":
            return self._send(status, headers, data, data[: len(data) // 2])
        if kind == "slow answer":
            time.sleep(0.3)
        return self._send(status, headers, data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        line = http.client.HTTPConnection(
            self.server.target.hostname or "", self.server.target.port, timeout=30
        )
        try:
            line.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("expect", "connection"):
                    line.putheader(name, value)
            line.endheaders(body or None)
            answer = line.getresponse()
            data = answer.read()
            skipped = ("connection", "transfer-encoding", "date", "server")
            if self.command != "HEAD":
                skipped += ("content-length",)
            return answer.status, [h for h in answer.getheaders() if h[0].lower() not in skipped], data
        finally:
            line.close()

    def _send(
        self, status: int, headers: list[tuple[str, str]], data: bytes, part: bytes | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD" and status not in (204, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data if part is None else part)
        if part is not None:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(2)


@contextmanager
def bad_s3(target: str, seed: int = 17) -> Iterator[BadS3]:
    """A server in front of `target`."""
    server = BadS3(target, seed)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
