"""A line to a server that can be made bad: slow, cut in the middle, or answered with 503."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

BUSY = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 91\r\n"
    b"Connection: close\r\n\r\n"
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>busy, try later .</Message></Error>"
)


class Line:
    """Set `mode`: `good`, `busy` (503), `silent` (no answer), `cut` (closed after `bytes` of the answer)."""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target)
        self.mode = "good"
        self.bytes = 0
        self.requests = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()
        for each in self._open:
            with suppress(OSError):
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            first = client.recv(65536)
            self.requests += 1
            if self.mode == "silent":
                threading.Event().wait(60)
                return
            if self.mode == "busy":
                client.sendall(BUSY)
                client.close()
                return
            server = socket.create_connection((self.target.hostname, self.target.port))
            self._open.append(server)
            server.sendall(first)
            threading.Thread(target=self._pump, args=(client, server, None), daemon=True).start()
            self._pump(server, client, self.bytes if self.mode == "cut" else None)

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if limit is not None:
                    data = data[:limit]
                    limit -= len(data)
                sink.sendall(data)
                if limit == 0:
                    break
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def line_to(target: str) -> Iterator[Line]:
    line = Line(target)
    try:
        yield line
    finally:
        line.close()
