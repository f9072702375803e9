"""Reading a registry without MLflow gives what MLflow's client gives, and its errors by the same names."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from paano.errors import RegistryError, RegistryUnavailable
from storage.registry.client import Missing, RegistryClient
from storage.registry.reading import ServerReader, SqliteReader, reader_for


@pytest.fixture
def filled(registry, models):
    """Three sensors: one with an older champion and a deleted version, one plain, one with a hostile id."""
    registry.register(
        "a", models[0], tags={"paano.why": "line\nfeed", "paano.note": "it's"}, alias="champion"
    )
    registry.register("a", models[1], description="the second")
    registry.register("a", models[2])
    registry.set_challenger("a", 2)
    registry.delete_version(f"{registry.fleet}.a", 3)
    registry.register("b", models[0])
    registry.register("x'y%/ü", models[0], alias="champion")
    registry.set_waiting("b", "a look")
    return registry


def plain(item):
    """What this project reads of a version or a model."""
    if hasattr(item, "latest_versions"):
        latest = sorted((plain(one) for one in item.latest_versions), key=str)
        aliases = {alias: int(number) for alias, number in item.aliases.items()}
        return item.name, dict(item.tags), aliases, latest
    aliases = sorted(item.aliases or ())
    tags = {key: value or "" for key, value in (item.tags or {}).items()}
    created, text = item.creation_timestamp, item.description or ""
    return item.name, int(item.version), item.source, created, text, sorted(tags.items()), aliases


def by_mlflow(registry, monkeypatch):
    """A client of the same registry that has no reader."""
    monkeypatch.setattr("storage.registry.client.reader_for", lambda uri: None)
    return RegistryClient(registry.tracking_uri)


def test_what_is_read_is_what_mlflow_gives(filled, monkeypatch):
    ours, fleet = filled.client, f"{filled.fleet}."
    names = sorted(model.name for model in ours.models(fleet))
    digest = ("paano.digest", filled.version("a", 1).digest)
    asked = [
        lambda client: sorted(map(plain, client.models(fleet)), key=str),
        lambda client: sorted(map(plain, client.every_version(fleet)), key=str),
        *(lambda client, name=name: plain(client.model(name)) for name in names),
        *(lambda client, name=name: sorted(map(plain, client.versions(name)), key=str) for name in names),
        lambda client: sorted(map(plain, client.versions(f"{fleet}a", digest)), key=str),
        lambda client: plain(client.version(f"{fleet}a", 1)),
        lambda client: client.versions(f"{fleet}nobody"),
        lambda client: client.models("nofleet."),
    ]
    found = [ask(ours) for ask in asked]
    assert isinstance(ours._reader, ServerReader | SqliteReader)
    theirs = by_mlflow(filled, monkeypatch)
    assert found == [ask(theirs) for ask in asked] and theirs._reader is None
    assert len(found[0]) == 3 and len(found[1]) == 4  # and it was not nothing
    for client in (ours, theirs):
        for ask in (lambda c: c.model(f"{fleet}nobody"), lambda c: c.version(f"{fleet}a", 3)):
            with pytest.raises(Missing):
                ask(client)


def test_reading_imports_no_mlflow(filled):
    code = (
        "import sys; from storage.registry.client import RegistryClient; "
        f"found = RegistryClient({filled.tracking_uri!r}).models('{filled.fleet}.'); "
        "print(len(found), [m for m in ('mlflow', 'sqlalchemy', 'pandas') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "3 []"


def test_a_database_of_another_release_is_left_to_mlflow(local, models, monkeypatch):
    local.register("a", models[0])
    path = local.tracking_uri.removeprefix("sqlite:///")
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE registered_models RENAME COLUMN workspace TO another")
    with pytest.raises(sqlite3.OperationalError):
        SqliteReader(local.client._sqlite).models("plant.")
    client = RegistryClient(local.tracking_uri)
    asked = []
    monkeypatch.setattr(
        RegistryClient, "call", lambda self, what, method, *given, **named: asked.append(method)
    )
    client.model("plant.a")
    assert asked == ["get_registered_model"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MLFLOW_TRACKING_AWS_SIGV4", "true"),
        ("MLFLOW_TRACKING_AUTH", "kubernetes"),
        ("MLFLOW_WORKSPACE", "other"),
    ],
)
def test_what_only_mlflow_knows_how_to_reach_is_left_to_mlflow(monkeypatch, tmp_path, name, value):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert isinstance(reader_for("http://server"), ServerReader)
    assert reader_for("postgresql://server/fleet") is None and reader_for("databricks") is None
    monkeypatch.setenv(name, value)
    assert reader_for("http://server") is None


def test_a_file_of_credentials_is_left_to_mlflow(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow" / "credentials").write_text("[mlflow]\nmlflow_tracking_username = ada\n")
    assert reader_for("http://server") is None


class Stub(BaseHTTPRequestHandler):
    """A server that gives `answers` in turn and keeps what it was asked with."""

    answers: ClassVar[list[tuple[int, object]]] = []
    headers_seen: ClassVar[list[str | None]] = []

    def do_GET(self):
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.headers_seen.append(self.headers.get("Authorization"))
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *given):
        pass


@pytest.fixture
def stub(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0.01")
    monkeypatch.setattr("storage.retry.time.sleep", lambda seconds: None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


MODEL = {"registered_model": {"name": "plant.a"}}


@pytest.mark.parametrize(
    ("answers", "error", "says"),
    [
        ([(401, "<html>who are you</html>")], RegistryError, "refused the credentials"),
        (
            [(403, {"error_code": "PERMISSION_DENIED", "message": "no"})],
            RegistryError,
            "refused the credentials",
        ),
        ([(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"})], Missing, "none"),
        ([(404, "<html>nothing here</html>")], RegistryError, "HTTP 404"),
        ([(400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "bad"})], RegistryError, "bad"),
        ([(503, "busy")], RegistryUnavailable, "did not answer"),
        ([(200, "<html>log in first</html>")], RegistryUnavailable, "did not answer"),
    ],
)
def test_errors_of_a_server_have_our_names(stub, monkeypatch, answers, error, says):
    monkeypatch.setattr(Stub, "answers", answers)
    with pytest.raises(error, match=says):
        RegistryClient(stub).model("plant.a")


def test_a_server_that_is_busy_for_a_moment_is_asked_again(stub, monkeypatch):
    monkeypatch.setattr(Stub, "answers", [(503, "busy"), (200, MODEL)])
    assert RegistryClient(stub).model("plant.a").name == "plant.a"


def test_the_credentials_are_sent(stub, monkeypatch):
    monkeypatch.setattr(Stub, "answers", [(200, MODEL)])
    monkeypatch.setattr(Stub, "headers_seen", [])
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "a-token")
    RegistryClient(stub).model("plant.a")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ada")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "s3cret")
    RegistryClient(stub).model("plant.a")
    assert Stub.headers_seen == ["Bearer a-token", "Basic YWRhOnMzY3JldA=="]
