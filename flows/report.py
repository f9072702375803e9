"""The end of every run: an outcome table, a summary a person reads, and the decision whether it failed."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import polars as pl
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows.outcome import Outcome, count
from flows.parts import storage_options
from flows.settings import Settings
from paano.errors import ObjectMissing, RunFailed
from storage.keys import model_name
from storage.objects import open_store

SHOWN = 500  # rows of the table in Prefect; all of them are in the runs folder
WORST = 10


@dataclass(frozen=True)
class Report:
    """What a run did. `outcomes` has every sensor, in order of their names."""

    flow: str
    title: str
    outcomes: list[Outcome]
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        return count(self.outcomes)

    def figure(self, name: str) -> float:
        """A figure summed over all sensors."""
        return sum(outcome.figures.get(name) or 0 for outcome in self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "flow": self.flow,
            "title": self.title,
            **self.counts,
            **self.facts,
            "notes": self.notes,
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }


def finish(report: Report, settings: Settings) -> Report:
    """Publish the report; RunFailed if more sensors failed than `run.tolerated_failures` allows."""
    rows = sorted(report.outcomes, key=badness)
    create_table_artifact(
        table=[_flat(outcome) for outcome in rows[:SHOWN]],
        key=f"paano-{report.flow}-outcomes",
        description=f"{report.flow}, {report.title}: {_counts(report)}",
    )
    create_markdown_artifact(markdown=summary(report, settings), key=f"paano-{report.flow}-summary")
    keep(report, settings)
    broken = [outcome for outcome in rows if outcome.state == "failed"]
    if report.outcomes and len(broken) / len(report.outcomes) > settings.run.tolerated_failures:
        shown = "; ".join(f"{outcome.sensor}: {outcome.reason}" for outcome in broken[:WORST])
        more = f"; and {len(broken) - WORST} more" if len(broken) > WORST else ""
        raise RunFailed(
            f"{report.flow} of {report.title}: {len(broken)} of {len(report.outcomes)} sensors failed, "
            f"run.tolerated_failures is {settings.run.tolerated_failures:.0%}: {shown}{more}"
        )
    return report


def badness(outcome: Outcome) -> tuple[Any, ...]:
    """Sorts failed sensors first, then skipped ones, then by severity and score."""
    severity = outcome.figures.get("severity") or 0.0
    return ["failed", "skipped", "ok"].index(outcome.state), -severity, outcome.sensor


def summary(report: Report, settings: Settings) -> str:
    """Markdown: how many, what was noticed, the worst sensors with links to their models."""
    lines = [f"# {report.flow}: {report.title}", "", _counts(report) + ".", ""]
    lines += [f"- {note}" for note in report.notes] + [""] * bool(report.notes)
    for state, heading in (("failed", "Failed"), ("skipped", "Skipped")):
        some = [outcome for outcome in report.outcomes if outcome.state == state]
        if some:
            lines += [f"## {heading}", ""]
            lines += [f"- `{outcome.sensor}`: {outcome.reason}" for outcome in some[:WORST]]
            lines += [f"- and {len(some) - WORST} more"] * (len(some) > WORST) + [""]
    worst = [outcome for outcome in sorted(report.outcomes, key=badness) if outcome.figures.get("events")]
    if worst:
        lines += ["## Worst sensors", "", "| sensor | events | severity | model |", "|---|---|---|---|"]
        for outcome in worst[:WORST]:
            figures = outcome.figures
            link = version_link(settings, outcome.sensor, figures.get("version"))
            lines.append(f"| `{outcome.sensor}` | {figures['events']} | {figures['severity']:.1f} | {link} |")
        lines.append("")
    made = [o for o in report.outcomes if o.state == "ok" and "vus_pr" in o.figures]
    if made:
        lines += ["## Versions", "", "| sensor | version | review test | outcome |", "|---|---|---|---|"]
        for outcome in made[:SHOWN]:
            figures = outcome.figures
            link = version_link(settings, outcome.sensor, figures["version"])
            lines.append(f"| `{outcome.sensor}` | {link} | {figures['vus_pr']:.3f} | {outcome.reason} |")
    return "\n".join(lines)


def version_link(settings: Settings, sensor: str, version: int | None) -> str:
    """A link to a version's page in MLflow, or its number where there are no pages."""
    page = settings.registry.page or settings.tracking_uri
    if version is None or not page.startswith("http"):
        return f"version {version}" if version is not None else "–"
    return (
        f"[version {version}]({page}/#/models/{model_name(settings.fleet.name, sensor)}/versions/{version})"
    )


def keep(report: Report, settings: Settings) -> None:
    """The whole outcome table as Parquet: `runs/score/2026-11-15.parquet`."""
    rows = [_flat(outcome) for outcome in sorted(report.outcomes, key=lambda outcome: outcome.sensor)]
    out = io.BytesIO()
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(out)
    name = report.title.replace(" ", "_").replace(":", "")
    store = open_store(settings.place(settings.run.url), storage_options(settings))
    store.put(f"{report.flow}/{name}.parquet", out.getvalue())


def _flat(outcome: Outcome) -> dict[str, Any]:
    return {key: value for key, value in outcome.to_dict().items() if value not in (None, "")}


def _counts(report: Report) -> str:
    counts = report.counts
    return f"{len(report.outcomes)} sensors: " + ", ".join(f"{counts[state]} {state}" for state in counts)


def last_outcomes(settings: Settings, day: date) -> dict[str, int]:
    """How many sensors ended in which state in the nightly run of `day`; empty if there was none."""
    store = open_store(settings.place(settings.run.url), storage_options(settings))
    try:
        rows = pl.read_parquet(io.BytesIO(store.get(f"score/{day}.parquet")))
    except ObjectMissing:
        return {}
    states = rows["outcome"].str.split(":").list.first()
    return {row["outcome"]: row["count"] for row in states.value_counts(sort=True).iter_rows(named=True)}
