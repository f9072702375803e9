"""Keep the stores small: join closed days, let old ones go, sweep model files that nothing points to."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from prefect import flow, task

from flows.fanout import BACK_OFF, day_before_now, is_transient, open_fleet
from flows.parts import open_parts
from flows.settings import Settings
from storage import housekeeping as stores

CLOSED = timedelta(days=7)  # younger days may still be rewritten night by night


@task(name="compact", retries=3, retry_delay_seconds=BACK_OFF, retry_condition_fn=is_transient)
def compact_stores(settings: Settings, today: date, dry_run: bool) -> dict[str, Any]:
    """Join the small objects of closed days; remove days older than scores.keep, if that is set."""
    parts = open_parts(settings)
    done: dict[str, Any] = {}
    for name, store in (("scores", parts.scores), ("events", parts.events)):
        if settings.scores.keep is not None:
            gone = stores.retire(store, settings.scores.keep, today, dry_run)
            done[f"{name}_days_removed"] = len(gone)
        joined = stores.compact(store, today - CLOSED, dry_run)
        done |= {f"{name}_objects_before": joined.before, f"{name}_objects_after": joined.after}
    return done


@task(name="sweep", retries=3, retry_delay_seconds=BACK_OFF, retry_condition_fn=is_transient)
def sweep_models(settings: Settings, dry_run: bool) -> dict[str, Any]:
    """Remove model files that no version points to."""
    swept = open_parts(settings).registry.sweep(dry_run=dry_run)
    return {"model_folders": len(swept.folders), "model_objects": swept.objects, "model_bytes": swept.bytes}


@flow(name="housekeeping")
def housekeeping(
    fleet_file: str = "", today: str = "", dry_run: bool = False, compact: bool = True, sweep: bool = True
) -> dict[str, Any]:
    """Compact and sweep, as of `today` (by default now)."""
    settings = open_fleet(fleet_file)
    day = date.fromisoformat(today) if today else day_before_now() + timedelta(days=1)
    done = compact_stores(settings, day, dry_run) if compact else {}
    return {**done, **(sweep_models(settings, dry_run) if sweep else {})}
