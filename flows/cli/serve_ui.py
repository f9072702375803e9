"""`paano ui`: serve the live view in this process until it is stopped."""

from __future__ import annotations

import secrets
import socket
import threading
from importlib import import_module
from urllib.parse import quote

from flows.cli.console import imports_done, screen
from flows.settings.fleet_file import Settings
from paano.errors import ConfigError
from storage.registry.reading import reader_for


def serve_ui(settings: Settings, host: str, port: int, token: str = "") -> None:
    """Serve the pages on `host` and `port`; on an address that others reach, with a token."""
    import uvicorn

    from flows.pages.ui import LOOPBACK, make_app

    if host not in LOOPBACK and not token:
        token = secrets.token_urlsafe(24)
    app = make_app(settings, token, host)
    listening = open_socket(host, port)
    number = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{number}/" + (f"?token={quote(token)}" if token else "")
    # They take seconds to import: better now than with the first page.
    slow = ["paano.model"] if reader_for(settings.tracking_uri) else ["mlflow", "paano.model"]
    threading.Thread(target=lambda: [import_module(name) for name in slow], daemon=True).start()
    imports_done()
    screen.print(f"the pages of fleet {settings.fleet.name}: {address}  (Ctrl-C stops)", soft_wrap=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    server.run(sockets=[listening])


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; ConfigError names another port where this one is taken."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(kind, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(128)  # who comes before the server runs waits for it
    except OSError as error:
        found.close()
        raise ConfigError(
            f"{host}:{port} cannot be served ({error.strerror}); name another with --port"
        ) from None
    return found
