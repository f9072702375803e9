"""The dashboards: a form that Grafana takes, figures that a run writes, queries that run over our tables."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import duckdb
import jsonschema
import polars as pl
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from flows.run.fleet import open_fleet
from flows.run.metrics import publish
from flows.run.outcome import failed, ok
from flows.run.report import Report
from flows.settings.fleet_file import Settings
from flows.work.night.incidents import update_incidents
from storage.tables.events import EVENT_SCHEMA
from storage.tables.scores import SCORE_SCHEMA
from storage.window import Window

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
DAY = datetime(2026, 11, 17, tzinfo=UTC)
NOW = DAY + timedelta(days=1, hours=2)

register_default_plugins()  # the kinds of panels and queries that Grafana's model knows

# What Grafana's model says in words only: ranges, required keys, the kinds of panels that are used.
SOURCE = {"type": "object", "required": ["type", "uid"], "properties": {"uid": {"type": "string"}}}
PANEL = {
    "type": "object",
    "required": ["id", "type", "title", "gridPos", "datasource", "targets", "fieldConfig"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"enum": ["timeseries", "stat", "table", "barchart"]},
        "datasource": SOURCE,
        "gridPos": {
            "type": "object",
            "required": ["x", "y", "w", "h"],
            "properties": {
                "x": {"type": "integer", "minimum": 0, "maximum": 23},
                "y": {"type": "integer", "minimum": 0},
                "w": {"type": "integer", "minimum": 1, "maximum": 24},
                "h": {"type": "integer", "minimum": 1},
            },
        },
        "fieldConfig": {"type": "object", "required": ["defaults", "overrides"]},
        "targets": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["refId", "datasource"],
                "oneOf": [{"required": ["expr"]}, {"required": ["rawSql", "format"]}],
            },
        },
    },
}
DASHBOARD = {
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "panels", "time", "templating"],
    "properties": {
        "uid": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,40}$"},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "minItems": 1, "items": PANEL},
        "templating": {
            "type": "object",
            "required": ["list"],
            "properties": {
                "list": {
                    "type": "array",
                    "items": {
                        "required": ["name", "type", "query"],
                        "properties": {"type": {"enum": ["datasource", "query"]}},
                    },
                }
            },
        },
    },
}


def dashboard(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


@pytest.fixture
def fleet(tmp_path):
    values = {"fleet": {"name": "plant"}, "metrics": {"url": "metrics"}, "folder": tmp_path}
    fleet = open_fleet(Settings.from_dict(values))
    event = {
        "event_id": "e1", "sensor": "a", "start": DAY, "end": DAY, "peak": DAY, "score": 2.0, "severity": 3.4,
        "length": 1, "channels": [], "cause": "level", "model_version": 1,
    }  # fmt: skip
    row = {
        "sensor": "a", "ts": DAY, "score": 2.0, "threshold": 1.0, "anomaly": True, "status": "ok",
        "coverage": 1, "model_version": 1,
    }  # fmt: skip
    fleet.events.update(pl.DataFrame([event], schema=EVENT_SCHEMA), Window.day(DAY.date()))
    fleet.scores.update(pl.DataFrame([row], schema=SCORE_SCHEMA), Window.day(DAY.date()))
    update_incidents(fleet, Window.day(DAY.date()))
    return fleet


def report():
    outcomes = [ok("a", events=1, severity=3.4), ok("b", events=0, severity=0.0), failed("c", "broken")]
    return Report("score", "2026-11-17", outcomes, DAY)


def written(fleet, tmp_path):
    publish(report(), fleet, 12.5, NOW)
    text = (tmp_path / "metrics" / "paano-plant-score.prom").read_text()
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.mark.parametrize("name", ["runs", "tables"])
def test_a_dashboard_has_the_form_that_grafana_takes_and_its_panels_do_not_overlap(name):
    held = dashboard(name)
    jsonschema.validate(held, DASHBOARD)
    assert len({panel["id"] for panel in held["panels"]}) == len(held["panels"])
    cells = [
        (x, y)
        for panel in held["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24


def taken_by_grafana(held):
    """The dashboard in Grafana's own model, written again: a key that it lacks does not come back."""
    model = Dashboard.from_json(held)
    return json.loads(JSONEncoder().encode(model))


def lost(held, back, path=""):
    """Where a value of `held` is not in `back`; what `back` has beside it are defaults."""
    if isinstance(held, dict) and isinstance(back, dict):
        return [
            where
            for key, value in held.items()
            for where in (lost(value, back[key], f"{path}.{key}") if key in back else [f"{path}.{key}"])
        ]
    if isinstance(held, list) and isinstance(back, list) and len(held) == len(back):
        return [
            where
            for n, pair in enumerate(zip(held, back, strict=True))
            for where in lost(*pair, f"{path}[{n}]")
        ]
    return [] if held == back else [path]


@pytest.mark.parametrize("name", ["runs", "tables"])
def test_grafanas_own_model_has_every_key_of_a_dashboard(name):
    held = dashboard(name)
    assert lost(held, taken_by_grafana(held)) == []


@pytest.mark.parametrize(
    ("place", "key"),
    [
        (lambda held: held, "refreshh"),
        (lambda held: held["panels"][0], "tittle"),
        (lambda held: held["panels"][0]["options"], "legendd"),
        (lambda held: held["panels"][0]["targets"][0], "exprr"),
        (lambda held: held["templating"]["list"][0], "lable"),
    ],
)
def test_a_misspelt_key_is_noticed(place, key):
    held = dashboard("runs")
    place(held)[key] = "x"
    (where,) = lost(held, taken_by_grafana(held))
    assert where.endswith(f".{key}")


def test_a_run_writes_openmetrics_that_says_what_became_of_it(fleet, tmp_path):
    families = written(fleet, tmp_path)

    def value(name, **labels):
        return next(s.value for s in families[name].samples if labels.items() <= s.labels.items())

    assert value("paano_sensors", outcome="ok", fleet="plant", flow="score") == 2
    assert value("paano_sensors", outcome="failed") == value("paano_failed", sensor="c") == 1
    assert value("paano_events", severity="3") == value("paano_incidents") == 1
    assert value("paano_run_seconds") == 12.5 and value("paano_staleness_seconds") == 7200


def test_events_incidents_and_staleness_are_of_the_fleets_day_and_every_event_counts(tmp_path):
    """In Auckland, 13 hours ahead of UTC, 17 November ends at 11 o'clock UTC."""
    zone = {"fleet": {"name": "plant", "timezone": "Pacific/Auckland"}}
    fleet = open_fleet(Settings.from_dict({**zone, "metrics": {"url": "metrics"}, "folder": tmp_path}))
    begun = [  # sensor, hours after the midnight of UTC, severity
        ("a", -14, 5.0), ("a", -13, 3.4), ("a", 2, 3.9), ("b", 4, 7.5), ("b", 10, None), ("a", 11, 5.0)
    ]  # fmt: skip
    events = [
        {
            "event_id": f"e{n}", "sensor": sensor, "start": DAY + timedelta(hours=hours),
            "end": DAY + timedelta(hours=hours), "peak": DAY + timedelta(hours=hours), "score": 2.0,
            "severity": severity, "length": 1, "channels": [], "cause": "level", "model_version": 1,
        }
        for n, (sensor, hours, severity) in enumerate(begun)
    ]  # fmt: skip
    last = DAY + timedelta(hours=10, minutes=50)
    row = {
        "sensor": "a", "ts": last, "score": 2.0, "threshold": 1.0, "anomaly": True, "status": "ok",
        "coverage": 1, "model_version": 1,
    }  # fmt: skip
    wide = Window(DAY - timedelta(days=1), DAY + timedelta(days=1))
    fleet.events.update(pl.DataFrame(events, schema=EVENT_SCHEMA), wide)
    fleet.scores.update(pl.DataFrame([row], schema=SCORE_SCHEMA), wide)
    update_incidents(fleet, wide)
    families = written(fleet, tmp_path)
    counts = {sample.labels["severity"]: sample.value for sample in families["paano_events"].samples}
    assert counts == {"1": 1, "2": 0, "3": 2, "4": 0, "5": 0, "6+": 1}

    def value(name):
        return families[name].samples[0].value

    assert value("paano_incidents") == 4
    assert value("paano_staleness_seconds") == (NOW - DAY - timedelta(hours=11)).total_seconds()
    assert value("paano_run_about_timestamp_seconds") == (DAY - timedelta(hours=13)).timestamp()


def test_the_dashboard_asks_for_nothing_that_a_run_does_not_write(fleet, tmp_path):
    families = written(fleet, tmp_path)
    asked = set(re.findall(r"paano_\w+", json.dumps(dashboard("runs"))))
    assert asked and asked <= set(families)


def test_every_query_runs_over_the_tables_as_they_are(fleet, tmp_path):
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        for table in ("scores", "events", "incidents"):
            files = f"{tmp_path}/{table}/date=*/*.parquet"
            base.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}')")
        for panel in dashboard("tables")["panels"]:
            query = panel["targets"][0]["rawSql"].replace("$sensor", "a")
            query = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 >= TIMESTAMPTZ '2026-11-01'", query)
            assert len(base.execute(query).fetchall()) == 1, panel["title"]


def test_a_pushgateway_gets_the_figures_and_one_that_is_away_is_a_note(fleet, tmp_path):
    taken = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self):
            taken.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        values = {**fleet.settings.to_dict(), "metrics": {"pushgateway": f"127.0.0.1:{server.server_port}"}}
        assert publish(report(), open_fleet(Settings.from_dict(values)), 1.0, NOW) == []
        server.shutdown()
    ((path, body),) = taken
    assert path == "/metrics/job/paano_score/fleet/plant" and b"paano_sensors" in body
    (note,) = publish(report(), open_fleet(Settings.from_dict(values)), 1.0, NOW)
    assert "Pushgateway" in note
