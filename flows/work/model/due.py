"""Which sensors need a new model, and why. Looks at versions and stored scores, never at the clock."""

from __future__ import annotations

import logging
import math
import traceback
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

import polars as pl

from flows.run.fleet import Fleet
from flows.run.outcome import failed
from flows.settings.duration import spell
from flows.settings.fleet_file import Settings
from flows.work.alarm_rule import alarm_rule
from flows.work.model.version_facts import Kind
from paano.alarms.events import anomalous
from paano.errors import PaanoError, Transient
from paano.model import PaAno
from paano.status import Status
from storage.registry.registry import Version
from storage.window import Window

log = logging.getLogger("paano.flows")

COLUMNS = ["sensor", "ts", "score", "status", "model_version"]


@dataclass(frozen=True)
class Check:
    """One sensor looked at. It is due when there is a reason."""

    sensor: str
    reasons: list[str] = field(default_factory=list)
    advice: str = ""  # what would help: retrain, or a refresh first
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def due(self) -> bool:
        return bool(self.reasons)

    @property
    def why(self) -> str:
        return "; ".join(self.reasons)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_shard(
    fleet: Fleet, sensors: list[str], versions: dict[str, Version], as_of: datetime, asked: bool = False
) -> list[Check]:
    """A check for each of `sensors`, which share a shard: their scores are read together."""
    settings = fleet.settings
    recent = Window(as_of - timedelta(days=settings.retrain.days), as_of)
    rows = fleet.scores.read_many(sensors, recent, COLUMNS)
    by_sensor = {key[0]: part for key, part in rows.group_by("sensor")}
    folders = fleet.registry.fetch_many([versions[sensor] for sensor in sensors if sensor in versions])
    checks = []
    for sensor in sensors:
        version = versions.get(sensor)
        if version is None:
            checks.append(Check(sensor, ["no model"], "retrain"))
            continue
        try:
            folder = folders[sensor]
            if isinstance(folder, PaanoError):
                raise folder
            model = PaAno.load(folder, device="cpu")
            scored = by_sensor.get(sensor, rows.clear())
            checks.append(check_sensor(fleet.settings_for(sensor), version, model, scored, as_of))
        except Transient:
            raise
        except PaanoError as error:  # a damaged champion is a reason to train a new one
            checks.append(Check(sensor, [failed(sensor, error).text], "retrain"))
        except Exception as error:  # whatever one model raises is about that sensor only
            log.error("%s: looking whether it needs a new model:\n%s", sensor, traceback.format_exc())
            checks.append(Check(sensor, [failed(sensor, error).text], "retrain"))
    if asked:
        checks = [Check(c.sensor, ["asked for", *c.reasons], c.advice, c.figures) for c in checks]
    return checks


def check_sensor(
    settings: Settings, version: Version, model: PaAno, rows: pl.DataFrame, as_of: datetime
) -> Check:
    """Age, alarms over the budget, shifted scores and gaps of one sensor with a champion.

    Age and interval come from the model itself: a tag can be edited in the MLflow pages.
    """
    rules, facts = settings.retrain, model.facts
    reasons: list[str] = []
    notes = list(version.parsed.notes)
    if facts.kind == Kind.UNTRAINED:
        reasons.append("untrained")
    age = as_of - facts.window_end
    if age > rules.max_age:
        reasons.append(f"{age.days} days old, retrain.max_age is {spell(rules.max_age)}")

    mine = rows.filter(pl.col("model_version") == version.version)
    drift = model.calibration.drift(mine["score"].drop_nulls().to_numpy())
    alarming = days_over_budget(settings, version.sensor, model, mine)
    gaps = int((rows["status"] == Status.NO_DATA).sum()) / rows.height if rows.height else math.nan
    stuck = len(alarming) >= rules.days
    if stuck:
        reasons.append(f"over the alarm budget on each of {rules.days} days")
    if drift.effective >= 1 and drift.statistic > rules.drift and drift.p < 0.01:
        reasons.append(f"scores have shifted: KS {drift.statistic:.2f}, p {drift.p:.1g}, PSI {drift.psi:.2f}")
    figures: dict[str, float | str | None] = {
        "age_days": round(age / timedelta(days=1), 1),
        "ks": _rounded(drift.statistic),
        "psi": _rounded(drift.psi),
        "alarm_days": len(alarming),
        "gaps": _rounded(gaps),
    }
    if gaps > rules.gaps:
        notes.append(f"{gaps:.0%} of the last {rules.days} days are missing")
    if notes:
        figures["note"] = "; ".join(notes)
    # Alarming without end after a shift of level: following with the bank is cheaper than training anew.
    advice = "refresh or retrain" if stuck else "retrain" if reasons else ""
    return Check(version.sensor, reasons, advice, figures)


def days_over_budget(settings: Settings, sensor: str, model: PaAno, rows: pl.DataFrame) -> list[date]:
    """Days with more anomalous points than the budget allows, an event being taken as one patch long.

    Stored scores are judged by the present rule of [alarms], not by the one of the night they were written.
    """
    if not rows.height:
        return []
    interval = model.facts.interval
    rule = alarm_rule(settings, sensor, model.calibration, interval)
    score = rows["score"].fill_null(math.nan).to_numpy()
    found = pl.Series("anomaly", anomalous(score, rows["status"].to_numpy().astype(str), rule.threshold))
    allowed = settings.alarms.budget * (model.config.patch * interval / timedelta(days=30))
    days = (
        rows.with_columns(found)
        .group_by(pl.col("ts").dt.date().alias("day"))
        .agg(share=pl.col("anomaly").mean())
    )
    return sorted(days.filter(pl.col("share") > allowed)["day"])


def _rounded(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
