"""The registry with our error names, bounded patience, and one writer at a time on SQLite.

What is read often is read without MLflow (`reading.py`); the rest, and every change, is MLflow's client.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from paano.errors import RegistryError, RegistryUnavailable
from storage.registry import sqlite
from storage.registry.reading import Reader, Refused, reader_for
from storage.retry import patiently
from storage.secrets import public

T = TypeVar("T")

# A dead server must be noticed within seconds, not MLflow's four minutes. Nothing phones home.
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # the address of the registry may hold a password
    "PGCONNECT_TIMEOUT": "5",
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
    """Calls to MLflow's model registry.

    `was_used` says whether versions of this registry were seen before: then a SQLite file that is not there
    is away (a disk that is not mounted), and no new one is made in its place.
    """

    def __init__(self, tracking_uri: str, was_used: Callable[[], bool] = lambda: False) -> None:
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        self.tracking_uri = tracking_uri
        self._was_used = was_used
        self._client: Any = None
        self._pid = 0
        self._reader: Reader | None = None
        self._reading_pid = 0

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
        """MLflow's own client, made on first use in each process."""
        if self._client is None or self._pid != os.getpid():
            from mlflow import MlflowClient

            with _named(self._public), self._writing():  # the first one creates the tables
                self._reach()
                client = MlflowClient(tracking_uri=self.tracking_uri, registry_uri=self.tracking_uri)
                client._get_registry_client().store  # type: ignore[no-untyped-call]  # noqa: B018  no types
            self._client, self._pid = client, os.getpid()
        return self._client

    @property
    def _public(self) -> str:
        return public(self.tracking_uri)

    def _reach(self) -> None:
        """See that a database answers before MLflow, which would try for two minutes, is asked."""
        path = self._sqlite
        if path is not None:
            if not path.exists() and self._was_used():
                raise RegistryUnavailable(
                    f"{path}: the registry is not there, though models of it were seen before; mount or "
                    "restore it, or correct registry.tracking_uri (a new one is made once registry.cache "
                    "is removed)"
                )
            sqlite.make_ready(path)
        elif not self.tracking_uri.startswith(("http://", "https://", "databricks", "uc:")) and (
            "://" in self.tracking_uri and not self.tracking_uri.startswith("file:")
        ):
            import sqlalchemy

            try:
                engine = sqlalchemy.create_engine(self.tracking_uri, poolclass=sqlalchemy.pool.NullPool)
                engine.connect().close()
            except (sqlalchemy.exc.ArgumentError, ImportError) as error:
                raise RegistryError(
                    f"{self._public}: this address cannot be used ({type(error).__name__}); check "
                    "registry.tracking_uri and that its driver is installed "
                    "(`pip install 'paano-fleet[postgres]'`)"
                ) from None

    def call(self, what: str, method: str, *arguments: Any, write: bool = False, **named: Any) -> Any:
        """`client.method(…)` about `what`, repeated a few times while the registry is busy."""

        def once() -> Any:
            client = self.client
            with _named(what), self._writing() if write else nullcontext():
                return getattr(client, method)(*arguments, **named)

        return patiently(once, _Busy, attempts=_ATTEMPTS)

    # -- what is read often; every item has the attributes that MLflow gives it

    def models(self, prefix: str) -> list[Any]:
        """The registered models whose names begin so."""
        return self._beginning(prefix, lambda reader: reader.models(prefix), "search_registered_models")

    def model(self, name: str) -> Any:
        """One registered model; Missing if there is none."""
        return self._read(
            name,
            lambda reader: reader.model(name),
            lambda what: self.call(what, "get_registered_model", name),
        )

    def version(self, name: str, number: int) -> Any:
        """One version; Missing if there is none."""
        return self._read(
            name,
            lambda reader: reader.version(name, number),
            lambda what: self.call(what, "get_model_version", name, str(number)),
        )

    def versions(self, name: str, tag: tuple[str, str] | None = None) -> list[Any]:
        """The versions of a model, all or those with a tag; none if there is no such model."""
        query = f"name = '{name}'" + (f" AND tags.`{tag[0]}` = '{tag[1]}'" if tag else "")
        return self._read(
            name,
            lambda reader: list(reader.versions(name, tag)),
            lambda what: list(self.pages(what, "search_model_versions", filter_string=query)),
        )

    def every_version(self, prefix: str) -> list[Any]:
        """The versions of all registered models whose names begin so."""
        return self._beginning(prefix, lambda reader: reader.every_version(prefix), "search_model_versions")

    def _beginning(self, prefix: str, directly: Callable[[Reader], Iterable[T]], by_mlflow: str) -> list[Any]:
        """What belongs to models whose names begin so; `by_mlflow` is the method of its client."""
        query = f"name LIKE '{prefix}%'"
        found = self._read(
            f"models {prefix}*",
            lambda reader: list[Any](directly(reader)),
            lambda what: list(self.pages(what, by_mlflow, filter_string=query)),
        )
        # `_` in LIKE stands for any character, and some backends ignore case.
        return [item for item in found if item.name.startswith(prefix)]

    def _read(self, what: str, directly: Callable[[Reader], T], by_mlflow: Callable[[str], T]) -> T:
        if self._reading_pid != os.getpid():  # a fork must not share connections
            self._reader, self._reading_pid = reader_for(self.tracking_uri), os.getpid()
        reader = self._reader
        if reader is None:
            return by_mlflow(what)
        try:
            return patiently(lambda: _answer(what, directly, reader), _Busy, attempts=_ATTEMPTS)
        except sqlite3.Error:
            # Not there, of another release or damaged: MLflow's way makes it, or says what it is.
            return by_mlflow(what)

    def pages(self, what: str, method: str, **named: Any) -> Iterator[Any]:
        """Every item of a paged search."""
        token = None
        while True:
            page = self.call(what, method, max_results=_PAGE, page_token=token, **named)
            yield from page
            token = page.token
            if not token:
                return


def _answer(what: str, directly: Callable[[Reader], T], reader: Reader) -> T:
    """What a reader finds, its errors by our names."""
    try:
        return directly(reader)
    except Refused as error:
        raise _name_answer(what, error.code, error.status, error.text) from error
    except sqlite3.Error:
        raise
    except OSError as error:  # of requests, which is not imported for a file
        raise RegistryUnavailable(_AWAY_TEXT.format(what, type(error).__name__)) from error


@contextmanager
def _named(what: str) -> Iterator[None]:
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except MlflowException as error:
        raise _name_error(error, what) from error
    except SQLAlchemyError as error:
        raise _name_database_error(error, what) from error
    except Timeout as error:
        raise RegistryUnavailable(f"{what}: another process has held {error.lock_file} too long") from error
    except RequestException as error:
        raise RegistryUnavailable(_AWAY_TEXT.format(what, type(error).__name__)) from error
    except OSError as error:
        raise _name_system_error(error, what) from error


def _name_database_error(error: Exception, what: str) -> RegistryError | RegistryUnavailable:
    """By what the driver says: a database that is away may come back, one that refuses will not."""
    text = str(getattr(error, "orig", None) or error).strip().split("\n")[0][:200]
    if any(mark in text for mark in ("disk is full", "disk I/O error", "No space left")):
        return RegistryError(f"{what}: no space is left for the registry; free some ({text})")
    if any(mark in text for mark in ("authentication failed", "does not exist", "no password supplied")):
        return RegistryError(f"{what}: the database refused; check registry.tracking_uri ({text})")
    return RegistryUnavailable(_AWAY_TEXT.format(what, text or type(error).__name__))


def _name_system_error(error: OSError, what: str) -> RegistryError | RegistryUnavailable:
    """By what the system says of the database's folder or of the connection."""
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return RegistryError(
            f"{what}: the folder of the registry cannot be written ({error.strerror}); check its owner, its "
            "rights and registry.tracking_uri"
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return RegistryError(f"{what}: no space is left for the registry; free some ({error.strerror})")
    return RegistryUnavailable(_AWAY_TEXT.format(what, type(error).__name__))


def _name_error(error: Any, what: str) -> RegistryError | RegistryUnavailable:
    return _name_answer(what, error.error_code, error.get_http_status_code(), str(error.message))


def _name_answer(what: str, code: str, status: int, text: str) -> RegistryError | RegistryUnavailable:
    text = text.strip().split("\n")[0][:300]
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
