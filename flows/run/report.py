"""The end of every run: an outcome table, a summary a person reads, and the decision whether it failed."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

import polars as pl

from flows.pages.escape import markdown, markdown_code
from flows.run.fleet import storage_options
from flows.run.names import artifact_key
from flows.run.outcome import BY_BADNESS, Outcome, State, count
from flows.settings.fleet_file import Settings
from paano.errors import ObjectMissing, RunFailed
from storage.keys import model_name
from storage.objects.store import open_store
from storage.registry.registry import Version
from storage.secrets import public
from storage.tables.runs import RunRow, RunStore
from storage.window import Window

SHOWN = 500  # rows of the table in Prefect; all of them are in the runs folder
WORST = 10


@dataclass(frozen=True)
class Report:
    """What a run did. `outcomes` has every sensor, in order of their names.

    `as_of` is the moment it was about: for a night, the start of its day. A `partial` run was asked for some
    sensors only.
    """

    flow: str
    title: str
    outcomes: list[Outcome]
    as_of: datetime
    partial: bool = False
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        return count(self.outcomes)

    def figure(self, name: str) -> float:
        """A figure summed over all sensors."""
        return float(sum(dict[str, Any](outcome.figures).get(name) or 0 for outcome in self.outcomes))

    def to_dict(self) -> dict[str, Any]:
        return {
            "flow": self.flow,
            "title": self.title,
            **self.counts,
            **self.facts,
            "notes": self.notes,
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }


def finish(
    report: Report,
    settings: Settings,
    night: date | None = None,
    champions: Mapping[str, Version] | None = None,
) -> Report:
    """Publish the report; RunFailed if more sensors failed than `run.tolerated_failures` allows.

    With `night`, the page about that night is written too; `champions` are those of the whole fleet.
    """
    # slow to import, and `paano status` reads outcomes without it
    from prefect.artifacts import create_markdown_artifact, create_table_artifact

    rows = sorted(report.outcomes, key=badness)
    keep(report, settings)
    if night is not None:
        report = with_night_report(report, settings, night, champions)
    said = f"{report.flow}, {report.title}: {_counts(report)}"
    create_table_artifact(
        table=table_rows(rows[:SHOWN]),
        key=artifact_key(settings.fleet.name, report.flow, "outcomes"),
        description=said,
    )
    create_markdown_artifact(
        markdown=summary(report, settings),
        key=artifact_key(settings.fleet.name, report.flow, "summary"),
        description=f"{said}; what failed and why, the worst sensors, links to their models",
    )
    report = with_metrics(report, settings)
    broken = [outcome for outcome in rows if outcome.state is State.FAILED]
    if report.outcomes and len(broken) / len(report.outcomes) > settings.run.tolerated_failures:
        raise RunFailed(
            f"{report.flow} of {report.title}: {len(broken)} of {len(report.outcomes)} sensors failed, "
            f"run.tolerated_failures is {settings.run.tolerated_failures:.0%}: {_named(broken)}",
            report,
        )
    log_end(said, broken, report.notes)
    return report


def log_end(said: str, broken: Sequence[Outcome], notes: Sequence[str]) -> None:
    """The last line in the log of a run that did not fail, which its page in Prefect shows first."""
    from prefect.logging import get_run_logger

    level = logging.WARNING if broken else logging.INFO
    failed = [f"failed: {_named(broken)}"] if broken else []
    get_run_logger().log(level, "%s", "; ".join([said, *failed, *notes]))


def with_night_report(
    report: Report, settings: Settings, night: date, champions: Mapping[str, Version] | None = None
) -> Report:
    """Write the page about `night`, link it in Prefect, and say in the notes where it is or why it is not."""
    from prefect.artifacts import create_link_artifact

    from flows.pages.night_report import report_of_run
    from flows.run.fleet import run_fleet

    written, note = report_of_run(run_fleet(settings), night, report.notes, champions)
    if written is not None:
        create_link_artifact(
            link=written.link,
            link_text=f"the night of {night}",
            key=artifact_key(settings.fleet.name, report.flow, "night"),
            # A browser follows no link from Prefect to a file: the address is there to be copied.
            description=f"{report.title}: {written.link} (events, the fleet hour by hour, what needs a look)",
        )
    return replace(report, notes=[*report.notes, note]) if note else report


def with_metrics(report: Report, settings: Settings) -> Report:
    """Publish the figures of the run for Prometheus, if the settings ask for it."""
    if not settings.metrics.url and not settings.metrics.pushgateway:
        return report
    from flows.run.fleet import open_fleet
    from flows.run.metrics import publish, seconds_so_far

    return replace(report, notes=[*report.notes, *publish(report, open_fleet(settings), seconds_so_far())])


def badness(outcome: Outcome) -> tuple[Any, ...]:
    """Sorts failed sensors first, then skipped ones, then by severity and score."""
    severity = outcome.figures.get("severity") or 0.0
    return BY_BADNESS.index(outcome.state), -severity, outcome.sensor


def summary(report: Report, settings: Settings) -> str:
    """Markdown: how many, what was noticed, the worst sensors with links to their models."""
    lines = [f"# {report.flow}: {markdown(report.title)}", "", _counts(report) + ".", ""]
    lines += [f"- {markdown(note)}" for note in report.notes] + [""] * bool(report.notes)
    for state, heading in ((State.FAILED, "Failed"), (State.SKIPPED, "Skipped")):
        some = [outcome for outcome in report.outcomes if outcome.state is state]
        if some:
            lines += [f"## {heading}", ""]
            lines += [
                f"- {markdown_code(outcome.sensor)}: {markdown(outcome.reason)}" for outcome in some[:WORST]
            ]
            lines += [f"- and {len(some) - WORST} more"] * (len(some) > WORST) + [""]
    worst = [outcome for outcome in sorted(report.outcomes, key=badness) if outcome.figures.get("events")]
    if worst:
        lines += ["## Worst sensors", "", "| sensor | events | severity | model |", "|---|---|---|---|"]
        for outcome in worst[:WORST]:
            figures = outcome.figures
            link = version_link(settings, outcome.sensor, figures.get("version"))
            name = markdown_code(outcome.sensor)
            lines.append(f"| {name} | {figures['events']} | {figures['severity']:.1f} | {link} |")
        lines.append("")
    made = [o for o in report.outcomes if o.state is State.OK and "vus_pr" in o.figures]
    if made:
        lines += ["## Versions", "", "| sensor | version | review test | outcome |", "|---|---|---|---|"]
        for outcome in made[:SHOWN]:
            figures = outcome.figures
            link = version_link(settings, outcome.sensor, figures["version"])
            name, why = markdown_code(outcome.sensor), markdown(outcome.reason)
            lines.append(f"| {name} | {link} | {figures['vus_pr']:.3f} | {why} |")
    return "\n".join(lines)


def version_link(settings: Settings, sensor: str, version: int | None) -> str:
    """A link to a version's page in MLflow, or its number where there are no pages."""
    page = public(settings.registry.page or settings.tracking_uri)
    if version is None or not page.startswith("http"):
        return f"version {version}" if version is not None else "–"
    return (
        f"[version {version}]({page}/#/models/{model_name(settings.fleet.name, sensor)}/versions/{version})"
    )


def keep(report: Report, settings: Settings) -> None:
    """Write the outcome of every sensor to the table of runs; other sensors keep theirs in a partial run."""
    rows = {o.sensor: RunRow(o.sensor, o.state, o.reason, o.batch, o.figures) for o in report.outcomes}
    if rows:
        run_store(settings, report.flow).keep(
            rows.values(), report.as_of, report.title, whole=not report.partial
        )


def run_store(settings: Settings, flow: str) -> RunStore:
    """The table of runs of one flow."""
    return RunStore(settings.place(settings.run.url), flow, storage_options(settings))


def table_rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The outcome table. Every row has every column that some row fills: Prefect shows those of the first."""
    rows = [outcome.to_dict() for outcome in outcomes]
    filled = dict.fromkeys(key for row in rows for key, value in row.items() if value not in (None, ""))
    return [{key: "" if (value := row.get(key)) is None else value for key in filled} for row in rows]


def _named(outcomes: Sequence[Outcome]) -> str:
    """The first of them with their reasons, and how many more there are."""
    shown = "; ".join(f"{outcome.sensor}: {outcome.reason}" for outcome in outcomes[:WORST])
    return shown + (f"; and {len(outcomes) - WORST} more" if len(outcomes) > WORST else "")


def _counts(report: Report) -> str:
    counts = report.counts
    return f"{len(report.outcomes)} sensors: " + ", ".join(f"{counts[state]} {state}" for state in counts)


def night_outcomes(settings: Settings, day: date) -> dict[str, tuple[str, str]]:
    """State and reason of every sensor in the night of `day`, over all its runs; empty if none ran."""
    outcomes = _outcomes_of_version_0_1(settings, day)
    rows = run_store(settings, "score").read_many(None, Window.day(day), ["sensor", "state", "reason"])
    outcomes.update({sensor: (state, reason or "") for sensor, state, reason in rows.iter_rows()})
    return outcomes


def last_outcomes(settings: Settings, day: date) -> dict[str, int]:
    """How many sensors ended in which state in the night of `day`, over all its runs; empty if none ran."""
    states = Counter(state for state, _ in night_outcomes(settings, day).values())
    return {str(state): number for state, number in states.most_common()}


def _outcomes_of_version_0_1(settings: Settings, day: date) -> dict[str, tuple[str, str]]:
    """State and reason of each sensor in `runs/score/DATE.parquet`, as version 0.1 kept it."""
    store = open_store(settings.place(settings.run.url), storage_options(settings))
    try:
        rows = pl.read_parquet(io.BytesIO(store.get(f"score/{day}.parquet")), columns=["sensor", "outcome"])
    except ObjectMissing:
        return {}
    parts = {row["sensor"]: row["outcome"].partition(":") for row in rows.iter_rows(named=True)}
    return {sensor: (state, reason.strip()) for sensor, (state, _, reason) in parts.items()}
