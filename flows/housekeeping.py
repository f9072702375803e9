"""Keep the stores small: join closed days, let old ones go, sweep model files that nothing points to."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from prefect import flow, task

from flows.run.days import day_before_now
from flows.run.fanout import load_settings, patient
from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from storage.registry.sweep import SHARE
from storage.secrets import without_secrets
from storage.tables import compaction as stores
from storage.window import read_day

CLOSED = timedelta(days=7)  # younger days may still be rewritten night by night


@task(name="compact")
@without_secrets
def compact_stores(settings: Settings, today: date, dry_run: bool) -> dict[str, Any]:
    """Join the small objects of closed days; remove days older than scores.keep, if that is set."""
    fleet = open_fleet(settings)
    done: dict[str, Any] = {}
    for name, store in (("scores", fleet.scores), ("events", fleet.events)):
        if settings.scores.keep is not None:
            gone = stores.retire(store, settings.scores.keep, today, dry_run)
            done[f"{name}_days_removed"] = len(gone)
        joined = stores.compact(store, today - CLOSED, dry_run)
        done |= {f"{name}_objects_before": joined.before, f"{name}_objects_after": joined.after}
    return done


@task(name="sweep")
@without_secrets
def sweep_models(
    settings: Settings, dry_run: bool, share: float = SHARE, claim: bool = False
) -> dict[str, Any]:
    """Remove versions beyond registry.keep, then model files of ours that no version points to."""
    registry = open_fleet(settings).registry
    retired = registry.retire(settings.registry.keep, dry_run=dry_run)
    swept = registry.sweep(dry_run=dry_run, share=share, claim=claim)
    done: dict[str, Any] = {"model_versions": len(retired.versions)}
    done |= {"model_folders": len(swept.folders), "model_objects": swept.objects, "model_bytes": swept.bytes}
    done |= {f"kept: {why}": number for why, number in sorted(swept.kept.items())}
    return done | ({"refused": swept.refused} if swept.refused else {})


@flow(name="housekeeping")
@without_secrets
def housekeeping(
    fleet_file: str = "",
    today: str = "",
    dry_run: bool = False,
    compact: bool = True,
    sweep: bool = True,
    share: float = SHARE,
    claim: bool = False,
) -> dict[str, Any]:
    """Compact and sweep, as of `today` (by default now)."""
    settings = load_settings(fleet_file)
    day = read_day(today) if today else day_before_now(settings) + timedelta(days=1)
    done = patient(compact_stores, settings)(settings, day, dry_run) if compact else {}
    swept = patient(sweep_models, settings)(settings, dry_run, share, claim) if sweep else {}
    return {**done, **swept}
