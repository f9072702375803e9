"""Real receivers on loopback: an HTTP server and an SMTP server that keep what they are sent."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """What a receiver was sent. With `refuse` set it answers with an error instead of taking it; the message
    whose title is `unwanted` it never takes."""

    port: int = 0
    messages: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    refuse: bool = False
    unwanted: str = ""


@contextmanager
def http_receiver() -> Iterator[Received]:
    """A server that takes JSON by POST."""
    kept = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            message = json.loads(body)
            answer = 503 if kept.refuse else 200
            if kept.unwanted and kept.unwanted == message.get("title"):
                answer = 422
            if answer == 200:
                kept.messages.append(message)
                kept.headers.append(dict(self.headers))
                kept.paths.append(self.path)
            self.send_response(answer)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield kept
        server.shutdown()


@contextmanager
def smtp_receiver() -> Iterator[Received]:
    """A mail server that takes every mail; its text is kept."""
    kept = Received()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            def say(line: str) -> None:
                self.wfile.write(f"{line}\r\n".encode())

            say("220 here")
            while line := self.rfile.readline().decode().strip():
                word = line[:4].upper()
                if word == "EHLO":
                    say("250 here")
                elif word == "DATA":
                    say("354 go on")
                    text = b""
                    while (part := self.rfile.readline()) != b".\r\n":
                        text += part
                    kept.messages.append(text.decode())
                    say("250 taken")
                elif word == "QUIT":
                    say("221 bye")
                    return
                else:
                    say("550 no" if kept.refuse and word == "RCPT" else "250 ok")

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        kept.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield kept
        server.shutdown()
