"""MLflow's client with our error names, bounded patience, and one writer at a time on SQLite."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from filelock import FileLock

from paano.errors import RegistryError, RegistryUnavailable

# A dead server must be noticed within seconds, not MLflow's four minutes. Nothing phones home.
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_PAGE = 1000
_ATTEMPTS = 5
_AWAY = {"TEMPORARILY_UNAVAILABLE", "INTERNAL_ERROR", "REQUEST_LIMIT_EXCEEDED", "DEADLINE_EXCEEDED"}
_AWAY_TEXT = "{}: the registry did not answer ({}); check registry.tracking_uri"
_DENIED = {"PERMISSION_DENIED", "UNAUTHENTICATED"}


class Missing(RegistryError):
    """There is no such model, version or alias."""


class Exists(RegistryError):
    """There already is one."""


class _Busy(RegistryUnavailable):
    """It answered that it cannot now: worth another try at once, unlike a dead one."""


class RegistryClient:
    """Calls to MLflow's model registry."""

    def __init__(self, tracking_uri: str) -> None:
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        self.tracking_uri = tracking_uri
        self._client: Any = None
        self._pid = 0

    @property
    def _sqlite(self) -> Path | None:
        if not self.tracking_uri.startswith("sqlite:///"):
            return None
        return Path(self.tracking_uri.removeprefix("sqlite:///").partition("?")[0]).absolute()

    def _writing(self) -> Any:
        """SQLite refuses a second writer at once; here they queue."""
        path = self._sqlite
        if path is None:
            return nullcontext()
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(f"{path}.lock", timeout=120)

    @property
    def client(self) -> Any:
        if self._client is None or self._pid != os.getpid():
            from mlflow import MlflowClient

            with self._writing(), _named(self.tracking_uri):  # the first one creates the tables
                client = MlflowClient(tracking_uri=self.tracking_uri, registry_uri=self.tracking_uri)
                client._get_registry_client().store  # noqa: B018
            self._client, self._pid = client, os.getpid()
        return self._client

    def call(self, what: str, method: str, *arguments: Any, write: bool = False, **named: Any) -> Any:
        """`client.method(…)` about `what`, repeated a few times while the registry is busy."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                client = self.client
                with self._writing() if write else nullcontext(), _named(what):
                    return getattr(client, method)(*arguments, **named)
            except _Busy:
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable")

    def pages(self, what: str, method: str, **named: Any) -> Iterator[Any]:
        """Every item of a paged search."""
        token = None
        while True:
            page = self.call(what, method, max_results=_PAGE, page_token=token, **named)
            yield from page
            token = page.token
            if not token:
                return


@contextmanager
def _named(what: str) -> Iterator[None]:
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException

    try:
        yield
    except MlflowException as error:
        raise _name_error(error, what) from error
    except (RequestException, OSError) as error:
        raise RegistryUnavailable(_AWAY_TEXT.format(what, type(error).__name__)) from error


def _name_error(error: Any, what: str) -> RegistryError | RegistryUnavailable:
    code, status = error.error_code, error.get_http_status_code()
    text = str(error.message).strip().split("\n")[0][:300]
    if code in ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"):
        return Missing(f"{what}: {text}")
    if code in ("RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS"):
        return Exists(f"{what}: {text}")
    if code in _DENIED or status in (401, 403):
        return RegistryError(
            f"{what}: the registry refused the credentials; set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    if "failed with exception" in text or "Max retries exceeded" in text:
        return RegistryUnavailable(_AWAY_TEXT.format(what, "no connection"))
    if code in _AWAY or status in (429, 500, 502, 503, 504):
        return _Busy(_AWAY_TEXT.format(what, code))
    return RegistryError(f"{what}: the registry refused ({code}): {text}")
