"""Reading a registry without MLflow, whose import costs more than all that is read here.

A server is asked by MLflow's documented REST interface, a SQLite file by its tables; both give what MLflow's
client gives, as far as this project looks at it. Where something is set that only MLflow knows what to do
with, and for every other address, there is no reader and MLflow is asked. Nothing is written here.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    import requests

_PAGE = 1000
_BUSY_SECONDS = 30.0  # that a SQLite file may be held by a writer
_REMOVED = "Deleted_Internal"  # the stage of a version that was deleted
_TRY_AGAIN = (408, 429, 500, 502, 503, 504)
_KNOWN_VARIABLES = {
    "MLFLOW_TRACKING_URI",
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_INSECURE_TLS",
    "MLFLOW_TRACKING_SERVER_CERT_PATH",
    "MLFLOW_TRACKING_CLIENT_CERT_PATH",
}


class Refused(Exception):
    """The registry answered with an error: MLflow's code for it, the status of the answer, its text."""

    def __init__(self, code: str, status: int, text: str) -> None:
        super().__init__(text)
        self.code, self.status, self.text = code, status, text


@dataclass(frozen=True)
class ModelVersion:
    """A version as MLflow shows it; `aliases` are there when it alone was asked for."""

    name: str
    version: str
    source: str
    creation_timestamp: int  # milliseconds
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    aliases: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Model:
    """A registered model as MLflow shows it; `latest_versions` are the newest of each stage."""

    name: str
    tags: dict[str, str]
    aliases: dict[str, str]
    latest_versions: list[ModelVersion]


class Reader(Protocol):
    """Questions to a registry. Refused with RESOURCE_DOES_NOT_EXIST for what is not there."""

    def models(self, prefix: str) -> Iterable[Model]:
        """The registered models whose names begin so (on a server in any case of letters)."""

    def model(self, name: str) -> Model:
        """One registered model."""

    def version(self, name: str, number: int) -> ModelVersion:
        """One version."""

    def versions(self, name: str, tag: tuple[str, str] | None = None) -> Iterable[ModelVersion]:
        """The versions of a model, all or those with a tag; none if there is no such model."""

    def every_version(self, prefix: str) -> Iterable[ModelVersion]:
        """The versions of all models whose names begin so (on a server in any case of letters)."""


def reader_for(tracking_uri: str) -> Reader | None:
    """What reads this registry without MLflow; None if only MLflow can."""
    if os.environ.get("MLFLOW_WORKSPACE"):
        return None
    if tracking_uri.startswith("sqlite:///"):
        return SqliteReader(Path(tracking_uri.removeprefix("sqlite:///").partition("?")[0]))
    if tracking_uri.startswith(("http://", "https://")) and _is_plain():
        return ServerReader(tracking_uri)
    return None


def _is_plain() -> bool:
    """Whether nothing is set or installed that changes how MLflow talks to a server, beyond what we do."""
    from importlib.metadata import entry_points

    set_too = {
        name for name, value in os.environ.items() if name.startswith("MLFLOW_TRACKING_") and value.strip()
    }
    return (
        set_too <= _KNOWN_VARIABLES
        and not Path("~/.mlflow/credentials").expanduser().exists()
        and not entry_points(group="mlflow.request_header_provider")
        and not entry_points(group="mlflow.model_registry_store")
    )


class ServerReader:
    """A registry behind MLflow's server. `requests.RequestException` if it does not answer."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    @cached_property
    def _session(self) -> requests.Session:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        tries = int(os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES") or 2)
        pause = float(os.environ.get("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR") or 2)
        again = Retry(total=tries, backoff_factor=pause, status_forcelist=_TRY_AGAIN)
        session = requests.Session()
        session.mount("http://", HTTPAdapter(max_retries=again))
        session.mount("https://", HTTPAdapter(max_retries=again))
        session.headers["User-Agent"] = "paano-fleet"
        user, password = (os.environ.get(f"MLFLOW_TRACKING_{name}") for name in ("USERNAME", "PASSWORD"))
        if user and password:
            session.auth = (user, password)
        elif token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
            session.headers["Authorization"] = f"Bearer {token}"
        if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1"):
            session.verify = False
        elif bundle := os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"):
            session.verify = bundle
        session.cert = os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH") or None
        return session

    def _ask(self, what: str, **given: str | int) -> dict[str, Any]:
        seconds = float(os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT") or 30)
        address = f"{self._address}/api/2.0/mlflow/{what}"
        answer = self._session.get(address, params=given, timeout=seconds)
        try:
            said = answer.json()
        except ValueError:
            said = None
        if answer.status_code == 200 and isinstance(said, dict):
            return said
        code = said.get("error_code") if isinstance(said, dict) else None
        text = said.get("message") if isinstance(said, dict) else answer.text
        usual = "INTERNAL_ERROR" if answer.ok else f"HTTP {answer.status_code}"
        raise Refused(str(code or usual), answer.status_code, str(text or answer.reason))

    def _pages(self, what: str, item: str, query: str) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            more = {"page_token": token} if token else {}
            page = self._ask(what, filter=query, max_results=_PAGE, **more)
            yield from page.get(item, ())
            token = page.get("next_page_token", "")
            if not token:
                return

    def models(self, prefix: str) -> Iterator[Model]:
        query = f"name LIKE '{prefix}%'"
        return map(_model, self._pages("registered-models/search", "registered_models", query))

    def model(self, name: str) -> Model:
        return _model(self._ask("registered-models/get", name=name)["registered_model"])

    def version(self, name: str, number: int) -> ModelVersion:
        return _version(self._ask("model-versions/get", name=name, version=number)["model_version"])

    def versions(self, name: str, tag: tuple[str, str] | None = None) -> Iterator[ModelVersion]:
        query = f"name = '{name}'" + (f" AND tags.`{tag[0]}` = '{tag[1]}'" if tag else "")
        return map(_version, self._pages("model-versions/search", "model_versions", query))

    def every_version(self, prefix: str) -> Iterator[ModelVersion]:
        query = f"name LIKE '{prefix}%'"
        return map(_version, self._pages("model-versions/search", "model_versions", query))


def _version(item: Mapping[str, Any]) -> ModelVersion:
    return ModelVersion(
        name=item["name"],
        version=str(item["version"]),
        source=item.get("source", ""),
        creation_timestamp=int(item.get("creation_timestamp", 0)),
        description=item.get("description", ""),
        tags={tag["key"]: tag.get("value", "") for tag in item.get("tags", ())},
        aliases=list(item.get("aliases", ())),
    )


def _model(item: Mapping[str, Any]) -> Model:
    return Model(
        name=item["name"],
        tags={tag["key"]: tag.get("value", "") for tag in item.get("tags", ())},
        aliases={alias["alias"]: str(alias["version"]) for alias in item.get("aliases", ())},
        latest_versions=[_version(one) for one in item.get("latest_versions", ())],
    )


class SqliteReader:
    """A registry in a SQLite file. `sqlite3.Error` if its tables are not those that this one knows."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """The file as it is at one moment. It is opened for writing because a killed writer may have left
        something to roll back."""
        address = f"{self._path.as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as file:
            file.execute("BEGIN")
            yield file

    def _models(self, where: str, *given: str) -> list[Model]:
        where = f"workspace = 'default' AND {where}"
        with self._database() as file:
            names = [
                name for (name,) in file.execute(f"SELECT name FROM registered_models WHERE {where}", given)
            ]
            tags: dict[str, dict[str, str]] = {name: {} for name in names}
            aliases: dict[str, dict[str, str]] = {name: {} for name in names}
            latest: dict[str, list[ModelVersion]] = {name: [] for name in names}
            query = f"SELECT name, key, value FROM registered_model_tags WHERE {where}"
            for name, key, value in file.execute(query, given):
                tags[name][key] = value or ""
            query = f"SELECT name, alias, version FROM registered_model_aliases WHERE {where}"
            for name, alias, number in file.execute(query, given):
                aliases[name][alias] = str(number)
            newest = (
                f"{where} AND (name, version) IN "
                f"(SELECT name, max(version) FROM model_versions WHERE {where} "
                f"AND current_stage IS NOT '{_REMOVED}' GROUP BY name, current_stage)"
            )
            for version in _versions(file, newest, *given, *given):
                latest[version.name].append(version)
        return [Model(name, tags[name], aliases[name], latest[name]) for name in names]

    def _found(self, where: str, *given: str | int) -> list[ModelVersion]:
        with self._database() as file:
            return _versions(file, f"workspace = 'default' AND {where}", *given)

    def models(self, prefix: str) -> list[Model]:
        return self._models("substr(name, 1, length(?)) = ?", prefix, prefix)

    def model(self, name: str) -> Model:
        found = self._models("name = ?", name)
        return found[0] if found else _missing(f"Registered Model with name={name} not found")

    def version(self, name: str, number: int) -> ModelVersion:
        where = "workspace = 'default' AND name = ? AND version = ?"
        with self._database() as file:
            found = _versions(file, where, name, number)
            query = f"SELECT alias FROM registered_model_aliases WHERE {where}"
            aliases = [alias for (alias,) in file.execute(query, (name, number))]
        if not found:
            _missing(f"Model Version (name={name}, version={number}) not found")
        return replace(found[0], aliases=aliases)

    def versions(self, name: str, tag: tuple[str, str] | None = None) -> list[ModelVersion]:
        found = self._found("name = ?", name)
        return [one for one in found if tag is None or one.tags.get(tag[0]) == tag[1]]

    def every_version(self, prefix: str) -> list[ModelVersion]:
        return self._found("substr(name, 1, length(?)) = ?", prefix, prefix)


def _versions(file: sqlite3.Connection, where: str, *given: str | int) -> list[ModelVersion]:
    """Versions that were not deleted, the newest first."""
    chosen = f"SELECT name, version FROM model_versions WHERE {where} AND current_stage IS NOT '{_REMOVED}'"
    rows = file.execute(
        "SELECT name, version, source, creation_time, description FROM model_versions "
        f"WHERE workspace = 'default' AND (name, version) IN ({chosen}) "
        "ORDER BY creation_time DESC, version DESC",
        given,
    ).fetchall()
    tags: dict[tuple[str, int], dict[str, str]] = {}
    query = (
        "SELECT name, version, key, value FROM model_version_tags "
        f"WHERE workspace = 'default' AND (name, version) IN ({chosen})"
    )
    for name, number, key, value in file.execute(query, given):
        tags.setdefault((name, number), {})[key] = value or ""
    return [
        ModelVersion(name, str(number), source or "", created or 0, text or "", tags.get((name, number), {}))
        for name, number, source, created, text in rows
    ]


def _missing(text: str) -> NoReturn:
    raise Refused("RESOURCE_DOES_NOT_EXIST", 404, text)
