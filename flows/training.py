"""Make new versions of a sensor's model: the first untrained one, a trained one, a refreshed one.

Everything is decided by the arguments: the same history, settings and seed give the same version again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from flows import pictures
from flows.outcome import Outcome, attempt, ok, skipped
from flows.parts import Parts, pinned_intervals
from flows.plan import sensor_seed
from flows.settings import Settings
from flows.together import fit_together
from flows.trial import Trial, Verdict, judge, try_model
from paano import PaAno, PaAnoConfig
from paano.device import pick_device, torch_threads
from paano.errors import PaanoError
from storage.history import Reading
from storage.registry import CHALLENGER, CHAMPION, Version
from storage.window import Window

UNTRAINED, TRAINED, REFRESHED = "untrained", "trained", "refreshed"
SMALLEST_TRIAL = 5  # patches of newest history that the review test needs for one fault


def sensor_config(settings: Settings, sensor: str) -> PaAnoConfig:
    """The model settings of one sensor: the fleet's, with a seed of its own."""
    return settings.config(sensor_seed(settings.fleet.seed, sensor))


# -- enough history ------------------------------------------------------------------------------------------


def begun(reading: Reading) -> Reading:
    """The reading from its first measured row on."""
    there = np.flatnonzero(~np.isnan(reading.values).all(axis=1))
    first = int(there[0]) if len(there) else len(reading)
    return dataclasses.replace(
        reading, start=reading.start + first * reading.interval, values=reading.values[first:]
    )


def enough_points(settings: Settings) -> int:
    return settings.retrain.enough or 5 * settings.config().patch


def when_enough(settings: Settings, reading: Reading) -> str:
    """How much history there is, and the date on which there will be enough."""
    have, need = reading.rows, enough_points(settings)
    if need * reading.interval > settings.history.lookback:
        room = settings.history.lookback // reading.interval
        return (
            f"a model needs {need} points and history.lookback holds {room}; "
            "widen it, or lower retrain.enough or model.patch"
        )
    if have == 0:
        return f"no points yet, {need} are needed"
    ready = reading.end + max(0, need - have) * reading.interval
    return f"{have} of {need} points, enough on {ready:%Y-%m-%d} if it keeps reporting"


# -- new versions --------------------------------------------------------------------------------------------


def cold_start(parts: Parts, past: Reading) -> Version:
    """The first model of a sensor: a bank behind an encoder as it was drawn. It is champion at once."""
    config = sensor_config(parts.settings, past.sensor).replace(iterations=0)
    with torch_threads(parts.settings.run.threads):
        model = PaAno(config, device=parts.settings.run.device).fit(past.values)
    facts = facts_of(past, UNTRAINED)
    tags = tags_of(facts, config, recipe(UNTRAINED, past, config))
    text = "Made on the sensor's first night, without training. It is due for retraining."
    return save_version(parts, model, facts, tags, text, alias=CHAMPION)


@dataclass(frozen=True)
class Candidate:
    """A model that is about to be made: what it learns from and what it is reviewed on."""

    config: PaAnoConfig
    past: Reading
    newest: Reading
    champion: Version | None
    kind: str
    recipe: str
    why: str


def retrain_sensor(parts: Parts, sensor: str, as_of: datetime, champion: Version | None, why: str) -> Outcome:
    """Train on the history before `as_of`, review on its newest part, register, promote by policy."""
    candidate = prepare_training(parts, sensor, as_of, champion, why)
    if isinstance(candidate, Outcome):
        return candidate
    with torch_threads(parts.settings.run.threads):
        model = PaAno(candidate.config, device=parts.settings.run.device).fit(candidate.past.values)
    return offer(parts, model, candidate)


def retrain_group(
    parts: Parts,
    sensors: list[str],
    as_of: datetime,
    versions: Mapping[str, Version],
    why: Mapping[str, str],
    batch: int = 0,
) -> list[Outcome]:
    """`retrain_sensor` for several at once, for a GPU that one model would leave idle."""
    ready: dict[str, Candidate] = {}

    def prepare_one(sensor: str) -> Outcome:
        found = prepare_training(parts, sensor, as_of, versions.get(sensor), why[sensor])
        if isinstance(found, Candidate):
            ready[sensor] = found
            return ok(sensor)
        return found

    def offer_one(sensor: str) -> Outcome:
        if isinstance(models[sensor], PaanoError):
            raise models[sensor]
        return offer(parts, models[sensor], ready[sensor])

    outcomes = {sensor: attempt(prepare_one, sensor, batch) for sensor in sensors}
    jobs = [(candidate.config, candidate.past.values) for candidate in ready.values()]
    with torch_threads(parts.settings.run.threads):
        models = dict(
            zip(ready, fit_together(jobs, str(pick_device(parts.settings.run.device))), strict=True)
        )
    outcomes |= {sensor: attempt(offer_one, sensor, batch) for sensor in ready}
    return list(outcomes.values())


def prepare_training(
    parts: Parts, sensor: str, as_of: datetime, champion: Version | None, why: str
) -> Candidate | Outcome:
    """What to train on, or the outcome when there is nothing to train."""
    settings = parts.settings
    window = Window(as_of - settings.history.lookback, as_of)
    whole = begun(parts.history.read(sensor, window, pinned_intervals(parts).get(sensor)))
    if whole.rows < enough_points(settings):
        return skipped(sensor, f"no_model: {when_enough(settings, whole)}", why=why)
    config = sensor_config(settings, sensor)
    past, newest = hold_out(whole, settings, config)
    if len(newest) < SMALLEST_TRIAL * config.patch or past.rows < config.patch:
        return skipped(sensor, f"too short a history to review a model: {whole.rows} points", why=why)
    mark = recipe(TRAINED, whole, config, settings.retrain.holdout)
    if done := find_recipe(parts, sensor, mark):
        return settle_version(parts, done, champion, why)
    return Candidate(config, past, newest, champion, TRAINED, mark, why)


def refresh_sensor(parts: Parts, sensor: str, as_of: datetime, champion: Version | None) -> Outcome:
    """Put the normal part of what came since the champion's last data into its bank; a new version."""
    settings = parts.settings
    if champion is None:
        return skipped(sensor, "no model to refresh; `paano retrain` makes one")
    model = open_model(parts, champion)
    since = datetime.fromisoformat(model.facts["window_end"])
    step = timedelta(seconds=model.facts["interval_seconds"])
    lead = model.config.context * step
    start = max(since, as_of - settings.history.lookback)
    if as_of - settings.retrain.holdout - start < model.config.patch * step:
        return skipped(sensor, f"its bank already holds the history up to {since:%Y-%m-%d %H:%M}")
    whole = parts.history.read(sensor, Window(start - lead, as_of), step)
    past, newest = hold_out(whole, settings, model.config)
    if len(newest) < SMALLEST_TRIAL * model.config.patch:
        return skipped(sensor, f"too short a history to review a model: {whole.rows} new points")
    mark = recipe(REFRESHED, whole, model.config, champion.digest)
    if done := find_recipe(parts, sensor, mark):
        return settle_version(parts, done, champion, "refresh")
    with torch_threads(settings.run.threads):
        model.update(past.values)
    return offer(parts, model, Candidate(model.config, past, newest, champion, REFRESHED, mark, "refresh"))


def hold_out(whole: Reading, settings: Settings, config: PaAnoConfig) -> tuple[Reading, Reading]:
    """History to learn from, and the newest part for the review test (with context before it)."""
    end = whole.end
    # A short history gives what the review test needs, and a third at most.
    least = SMALLEST_TRIAL * config.patch * whole.interval
    kept = min(max(settings.retrain.holdout, least), len(whole) // 3 * whole.interval)
    lead = min(config.context * whole.interval, end - kept - whole.start)
    return whole.cut(Window(whole.start, end - kept)), whole.cut(Window(end - kept - lead, end))


def offer(parts: Parts, model: PaAno, candidate: Candidate) -> Outcome:
    """Review a new model beside the champion, register it as challenger and promote it if it may be."""
    settings, sensor = parts.settings, candidate.past.sensor
    champion, newest, kind, why = candidate.champion, candidate.newest, candidate.kind, candidate.why
    former = open_model(parts, champion) if champion else None
    if former is not None and former.channels != model.channels:
        former = None  # the sensor got or lost channels: there is nothing to compare with
    seed = sensor_seed(settings.fleet.seed, sensor)
    with torch_threads(settings.run.threads):
        trial = try_model(model, newest, settings, seed)
        against = try_model(former, newest, settings, seed) if former else None
        pages = pictures.review(model, former, newest, trial, against, settings.alarms.budget)
    verdict = judge(trial, against, settings)
    facts = facts_of(candidate.past, kind)
    tags = tags_of(facts, model.config, candidate.recipe) | verdict_tags(verdict, trial, champion, why)
    text = describe(kind, why, verdict, trial, against, champion)
    version = save_version(parts, model, facts, tags, text, alias=CHALLENGER, attachments=pages)
    outcome = settle_version(parts, version, champion, why)
    return Outcome(
        outcome.sensor,
        outcome.state,
        outcome.reason,
        figures={**outcome.figures, "seconds": round(sum(model.seconds.values()), 2)},
    )


def settle_version(parts: Parts, version: Version, champion: Version | None, why: str) -> Outcome:
    """Promote a registered version if its verdict and the policy allow it; say what it is now."""
    tags, number = version.tags, version.version
    figures = {
        "version": number,
        "why": why,
        "vus_pr": float(tags["paano.vus_pr"]),
        "alarms": float(tags["paano.alarms"]),
    }
    if champion is not None and champion.version == number:
        return skipped(
            version.sensor, f"version {number} is this already: same history and settings", **figures
        )
    if CHALLENGER not in version.aliases and champion is not None and champion.version > number:
        return skipped(version.sensor, f"version {number} was this and has been replaced", **figures)
    passed = tags["paano.verdict"] == "passed"
    if passed and parts.settings.retrain.policy == "auto":
        promote(parts, version)
        return ok(version.sensor, f"version {number} is champion: {tags['paano.reason']}", **figures)
    waits = "waits for a reviewer" if passed else "stays challenger"
    return ok(version.sensor, f"version {number} {waits}: {tags['paano.reason']}", **figures)


def promote(parts: Parts, version: Version) -> None:
    """Make `version` the champion; the next run follows."""
    parts.registry.set_champion(version.sensor, version.version)
    parts.registry.clear_challenger(version.sensor)


def find_recipe(parts: Parts, sensor: str, mark: str) -> Version | None:
    """The version already made from the same history, settings and seed."""
    return next((v for v in parts.registry.versions(sensor) if v.tags.get("paano.recipe") == mark), None)


# -- what a version says of itself ---------------------------------------------------------------------------


def open_model(parts: Parts, version: Version) -> PaAno:
    return PaAno.load(parts.registry.fetch(version), device=parts.settings.run.device)


def recipe(kind: str, reading: Reading, config: PaAnoConfig, *more: Any) -> str:
    """Sixteen digits that stand for all that decides a version."""
    parts = [kind, reading.digest, config.digest, *map(str, more)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def facts_of(reading: Reading, kind: str) -> dict[str, Any]:
    """What goes into model.json beside the model."""
    return {
        "sensor": reading.sensor,
        "kind": kind,
        "interval_seconds": reading.interval.total_seconds(),
        "channel_names": list(reading.channels),
        "window_start": reading.start.isoformat(),
        "window_end": reading.end.isoformat(),
        "data_digest": reading.digest,
    }


def tags_of(facts: dict[str, Any], config: PaAnoConfig, mark: str) -> dict[str, str]:
    tags = {
        key: str(facts[key])
        for key in ("kind", "interval_seconds", "window_start", "window_end", "data_digest")
    }
    tags |= {"channels": str(len(facts["channel_names"])), "config_digest": config.digest, "recipe": mark}
    return {f"paano.{key}": value for key, value in tags.items()}


def verdict_tags(verdict: Verdict, trial: Trial, champion: Version | None, why: str) -> dict[str, str]:
    tags = {
        "verdict": "passed" if verdict.passed else "not passed",
        "reason": verdict.reason,
        "why": why,
        "vus_pr": f"{trial.vus_pr:.4f}",
        "alarms": f"{trial.alarms:.2f}",
        "previous": str(champion.version) if champion else "",
    }
    tags |= {f"vus_pr.{kind}": f"{value:.4f}" for kind, value in trial.faults.items()}
    return {f"paano.{key}": value for key, value in tags.items()}


def describe(
    kind: str, why: str, verdict: Verdict, trial: Trial, against: Trial | None, champion: Version | None
) -> str:
    """The version's description in MLflow, in Markdown."""
    other = f"champion (version {champion.version})" if champion and against else "champion"
    lines = [
        f"**{'Passed' if verdict.passed else 'Not passed'}**: {verdict.reason}.",
        "",
        f"A {kind} model. Why it was made: {why}.",
        "",
        f"| review test | this version | {other} |",
        "|---|---|---|",
    ]
    rows: list[tuple[str, Callable[[Trial], float]]] = [
        ("VUS-PR, mean", lambda t: t.vus_pr),
        *((f"VUS-PR, {name}", lambda t, name=name: t.faults.get(name, np.nan)) for name in trial.faults),
        ("alarms per 30 days", lambda t: t.alarms),
    ]
    for title, figure in rows:
        beside = f"{figure(against):.3f}" if against else "–"
        lines.append(f"| {title} | {figure(trial):.3f} | {beside} |")
    lines += ["", "Pictures are beside the model, in `review/`."]
    return "\n".join(lines)


def save_version(
    parts: Parts,
    model: PaAno,
    facts: dict[str, Any],
    tags: dict[str, str],
    description: str,
    alias: str,
    attachments: dict[str, bytes] | None = None,
) -> Version:
    """Register `model` as a version of its sensor."""
    with tempfile.TemporaryDirectory(prefix="paano-") as folder:
        model.save(folder, facts=facts)
        return parts.registry.register(
            facts["sensor"], folder, tags, description, alias=alias, attachments=attachments
        )
