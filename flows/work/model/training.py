"""Make new versions of a sensor's model: the first untrained one, a trained one, a refreshed one.

Everything is decided by the arguments: the same history, settings and seed give the same version again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flows.pages import pictures
from flows.processes.leftovers import temporary_folder
from flows.run.fleet import Fleet, pinned_intervals
from flows.run.outcome import Outcome, attempt, ok, skipped
from flows.run.plan import sensor_seed
from flows.work.known_periods import Taught, leave_out, rows_of, taught
from flows.work.model.review_test import recommend, run_review_test
from flows.work.model.training_history import (
    SMALLEST_REVIEW,
    begun,
    enough_points,
    hold_out,
    sensor_config,
    when_enough,
)
from flows.work.model.verdict_test import around, objections, rings
from flows.work.model.version_facts import Kind, describe, facts_of, figures_of, recipe, review_tags, tags_of
from paano import PaAno, PaAnoConfig
from paano.device import compute_threads, give_back_memory, pick_device
from paano.errors import PaanoError
from paano.facts import ModelFacts
from paano.model import remembering
from paano.network.together import fit_together
from storage.history.reader import Reading
from storage.registry.figures import VersionFigures
from storage.registry.registry import CHALLENGER, CHAMPION, Version
from storage.window import Window


def cold_start(fleet: Fleet, past: Reading) -> Version:
    """The first model of a sensor: a bank behind an encoder as it was drawn. It is champion at once."""
    config = sensor_config(fleet.settings_for(past.sensor), past.sensor).replace(iterations=0)
    with compute_threads(fleet.settings.run.threads):
        model = PaAno(config, device=fleet.settings.run.device).fit(past.values)
    facts = facts_of(past, Kind.UNTRAINED, config)
    tags = tags_of(facts, config, recipe(Kind.UNTRAINED, past, config))
    text = "Made on the sensor's first night, without training. It is due for retraining."
    figures = figures_of(model, facts, fleet.settings_for(past.sensor))
    return save_version(fleet, model, facts, tags, text, alias=CHAMPION, figures=figures)


@dataclass(frozen=True)
class Candidate:
    """A model that is about to be made: what it learns from and what it is reviewed on."""

    config: PaAnoConfig
    past: Reading
    newest: Reading
    champion: Version | None
    kind: Kind
    recipe: str
    why: str
    said: Taught = dataclasses.field(default_factory=Taught)  # by people, of the past
    whole: Reading | None = None  # with what is left out of `past`


def retrain_sensor(fleet: Fleet, sensor: str, as_of: datetime, champion: Version | None, why: str) -> Outcome:
    """Train on the history before `as_of`, review on its newest part, register, promote by policy."""
    candidate = prepare_training(fleet, sensor, as_of, champion, why)
    if isinstance(candidate, Outcome):
        return candidate
    with compute_threads(fleet.settings.run.threads):
        model = PaAno(candidate.config, device=fleet.settings.run.device).fit(candidate.past.values)
    outcome = offer(fleet, take_in(model, candidate), candidate)
    give_back_memory()
    return outcome


def take_in(model: PaAno, candidate: Candidate) -> PaAno:
    """`model`, for which everything is normal that people called so."""
    whole = candidate.whole
    for part in candidate.said.normal if whole is not None else []:
        near = around(whole, part, model.config)  # type: ignore[arg-type]  # checked one line above
        model.take_in(near.values, rows_of(near, part))
    return model


def retrain_group(
    fleet: Fleet,
    sensors: list[str],
    as_of: datetime,
    versions: Mapping[str, Version],
    why: Mapping[str, str],
    batch: int = 0,
) -> list[Outcome]:
    """`retrain_sensor` for several at once, for a GPU that one model would leave idle."""
    ready: dict[str, Candidate] = {}

    def prepare_one(sensor: str) -> Outcome:
        found = prepare_training(fleet, sensor, as_of, versions.get(sensor), why[sensor])
        if isinstance(found, Candidate):
            ready[sensor] = found
            return ok(sensor)
        return found

    def offer_one(sensor: str) -> Outcome:
        fitted = models[sensor]
        if isinstance(fitted, PaanoError):
            raise fitted
        return offer(fleet, take_in(fitted, ready[sensor]), ready[sensor])

    outcomes = {sensor: attempt(prepare_one, sensor, batch) for sensor in sensors}
    jobs = [(candidate.config, candidate.past.values) for candidate in ready.values()]
    with compute_threads(fleet.settings.run.threads):
        models = dict(
            zip(ready, fit_together(jobs, str(pick_device(fleet.settings.run.device))), strict=True)
        )
    outcomes |= {sensor: attempt(offer_one, sensor, batch) for sensor in ready}
    give_back_memory()
    return list(outcomes.values())


def prepare_training(
    fleet: Fleet, sensor: str, as_of: datetime, champion: Version | None, why: str
) -> Candidate | Outcome:
    """What to train on, or the outcome when there is nothing to train."""
    settings = fleet.settings_for(sensor)
    window = Window(as_of - settings.history.lookback, as_of)
    raw = begun(fleet.history.read(sensor, window, pinned_intervals(fleet).get(sensor)))
    said = taught(fleet, sensor, window, raw.interval)
    whole = begun(leave_out(raw, said.left_out, sensor_config(settings, sensor).max_gap))
    if whole.rows < enough_points(settings):
        return skipped(sensor, f"no_model: {when_enough(settings, whole)}", why=why)
    config = sensor_config(settings, sensor)
    past, newest = hold_out(whole, settings, config)
    if len(newest) < SMALLEST_REVIEW * config.patch or past.rows < config.patch:
        return skipped(sensor, f"too short a history to review a model: {whole.rows} points", why=why)
    mark = recipe(Kind.TRAINED, whole, config, settings.retrain.holdout, *said.marks())
    if done := find_recipe(fleet, sensor, mark):
        return settle_version(fleet, done, champion, why)
    return Candidate(config, past, newest, champion, Kind.TRAINED, mark, why, said, raw)


def refresh_sensor(fleet: Fleet, sensor: str, as_of: datetime, champion: Version | None) -> Outcome:
    """Put the normal part of what came since the champion's last data into its bank; a new version."""
    settings = fleet.settings_for(sensor)
    if champion is None:
        return skipped(sensor, "no model to refresh; `paano retrain` makes one")
    model = open_model(fleet, champion)
    since = model.facts.window_end
    step = model.facts.interval
    lead = model.config.context * step
    start = max(since, as_of - settings.history.lookback)
    window = Window(as_of - settings.history.lookback, as_of)
    said = taught(fleet, sensor, window, step)
    fresh = as_of - settings.retrain.holdout - start >= model.config.patch * step
    raw = None
    if said.normal or said.confirmed:
        raw = fleet.history.read(sensor, window, step, model.facts.channel_names)
    strange = [part for part in said.normal if raw and rings(model, raw, part, settings)]
    if not fresh and not strange:
        return skipped(sensor, f"its bank already holds the history up to {since:%Y-%m-%d %H:%M}")
    newer = Window(start - lead, as_of) if fresh else window
    whole = fleet.history.read(sensor, newer, step, model.facts.channel_names)
    whole = leave_out(whole, said.left_out, model.config.max_gap)
    past, newest = hold_out(whole, settings, model.config)
    if len(newest) < SMALLEST_REVIEW * model.config.patch:
        return skipped(sensor, f"too short a history to review a model: {whole.rows} new points")
    mark = recipe(Kind.REFRESHED, whole, model.config, champion.digest, *said.marks())
    if done := find_recipe(fleet, sensor, mark):
        return settle_version(fleet, done, champion, "refresh")
    candidate = Candidate(model.config, past, newest, champion, Kind.REFRESHED, mark, "refresh", said, raw)
    with compute_threads(settings.run.threads):
        if fresh:
            model.update(past.values)
        model = take_in(model, candidate)
    return offer(fleet, model, candidate)


def offer(fleet: Fleet, model: PaAno, candidate: Candidate) -> Outcome:
    """Review a new model beside the champion, register it as challenger and promote it if it may be."""
    sensor = candidate.past.sensor
    settings = fleet.settings_for(sensor)
    champion, newest, kind, why = candidate.champion, candidate.newest, candidate.kind, candidate.why
    former = open_model(fleet, champion) if champion else None
    if former is not None and former.channels != model.channels:
        former = None  # the sensor got or lost channels: there is nothing to compare with
    goes_on = former.facts if former is not None and kind is Kind.REFRESHED else None
    facts = facts_of(candidate.past, kind, model.config, goes_on)
    seed = sensor_seed(settings.fleet.seed, sensor)
    tested = remembering(model)  # its pictures are of the same patches
    with compute_threads(settings.run.threads):
        test = run_review_test(tested, newest, settings, seed)
        if candidate.whole is not None:
            against_words = objections(model, facts, candidate.whole, candidate.said, settings)
            test = dataclasses.replace(test, objections=against_words)
        against = run_review_test(former, newest, settings, seed) if former else None
        pages = pictures.review(tested, former, newest, test, against, settings)
    recommendation = recommend(test, against, settings)
    tags = tags_of(facts, model.config, candidate.recipe)
    tags |= review_tags(recommendation, test, champion, why)
    text = describe(kind, why, recommendation, test, against, champion)
    figures = figures_of(model, facts, settings, test)
    # A first version that passes has no one to be compared with: champion at once, in fewer calls.
    first = champion is None and recommendation.passed and settings.retrain.policy == "auto"
    alias = CHAMPION if first else CHALLENGER
    version = save_version(fleet, model, facts, tags, text, alias, figures, pages)
    outcome = settle_version(fleet, version, champion, why)
    return Outcome(
        outcome.sensor,
        outcome.state,
        outcome.reason,
        figures={
            **outcome.figures,
            "channels": said_channels(candidate.past),
            "seconds": round(sum(model.seconds.values()), 2),
        },
    )


def said_channels(past: Reading) -> str:
    """The channels a model was made of, and the columns that were left out, for the outcome table."""
    return ", ".join(past.channels) + (f" ({past.note})" if past.note else "")


def settle_version(fleet: Fleet, version: Version, champion: Version | None, why: str) -> Outcome:
    """Promote a registered version if its recommendation and the policy allow it; say what it is now."""
    tags, number = version.parsed, version.version
    figures: dict[str, Any] = {"version": number, "why": why}
    figures |= {
        name: value for name, value in (("vus_pr", tags.vus_pr), ("alarms", tags.alarms)) if value is not None
    }
    if champion is not None and champion.version == number:
        if CHALLENGER in version.aliases:  # a run was cut within its promotion
            promote(fleet, version)
        return skipped(
            version.sensor, f"version {number} is this already: same history and settings", **figures
        )
    if CHALLENGER not in version.aliases and champion is not None and champion.version > number:
        return skipped(version.sensor, f"version {number} was this and has been replaced", **figures)
    if version.tags.get("paano.review", "").startswith("rejected"):
        return skipped(version.sensor, f"version {number} was this and has been rejected", **figures)
    passed, reason = tags.passed, tags.reason or "no reason is recorded"
    if not {CHALLENGER, CHAMPION} & {*version.aliases}:
        newest = fleet.registry.challengers([version.sensor]).get(version.sensor)
        if newest is None or newest.version < number:  # a run was cut before the alias was set
            fleet.registry.set_challenger(version.sensor, number)
    if passed and fleet.settings.retrain.policy == "auto":
        if number > 1 or CHAMPION not in version.aliases:  # else it is, and nothing has ever waited
            promote(fleet, version)
        return ok(version.sensor, f"version {number} is champion: {reason}", **figures)
    waits = "waits for a reviewer" if passed else "stays challenger"
    fleet.registry.set_waiting(version.sensor, f"version {number}, {tags.recommendation or 'not tested'}")
    return ok(version.sensor, f"version {number} {waits}: {reason}", **figures)


def promote(fleet: Fleet, version: Version) -> None:
    """Make `version` the champion; the next run follows."""
    fleet.registry.set_champion(version.sensor, version.version)
    fleet.registry.set_waiting(version.sensor, "")
    fleet.registry.clear_challenger(version.sensor)  # last: while it is there, a rerun finishes this


def find_recipe(fleet: Fleet, sensor: str, mark: str) -> Version | None:
    """The version already made from the same history, settings and seed."""
    return next((v for v in fleet.registry.versions(sensor) if v.parsed.recipe == mark), None)


def open_model(fleet: Fleet, version: Version) -> PaAno:
    """The model of a version, on the device that the settings name."""
    return PaAno.load(fleet.registry.fetch(version), device=fleet.settings.run.device)


def save_version(
    fleet: Fleet,
    model: PaAno,
    facts: ModelFacts,
    tags: dict[str, str],
    description: str,
    alias: str,
    figures: VersionFigures,
    attachments: dict[str, bytes] | None = None,
) -> Version:
    """Register `model` as a version of its sensor; an empty `alias` sets none."""
    with temporary_folder() as folder:
        model.save(folder, facts=facts)
        return fleet.registry.register(
            facts.sensor, folder, tags, description, alias or None, attachments, figures
        )
