"""Versions as MLflow 3 *logged models*: the experiment of a fleet sorts and filters all of its models.

A version has a run, for the loss of every training step and for MLflow's page that compares versions, and a
logged model with the figures, params and tags. The files of a version lie where MLflow looks for those of
the logged model, so its page shows the pictures. A logged model is PENDING until its files are there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paano.errors import RegistryError
from storage.registry.client import Missing, RegistryClient
from storage.registry.figures import VersionFigures

MODEL_TYPE = "paano"
_ID = re.compile(r"m-[0-9a-f]{32}")
_FORBIDDEN = re.compile(r"[/:.%\"'\s]+")  # in the name of a logged model
_LONGEST_TAG = 5000
_LONGEST_NAME = 200
_PAGE = 500


@dataclass(frozen=True)
class LoggedModel:
    """A logged model and the run it came from."""

    run: str
    model: str


def begin(
    client: RegistryClient,
    experiment: str,
    sensor: str,
    tags: Mapping[str, str],
    figures: VersionFigures,
) -> LoggedModel:
    """A new logged model of `sensor` in `experiment`, PENDING, and a run for it.

    Raises:
        RegistryError: the registry cannot hold logged models, or the experiment was deleted.
    """
    name = _FORBIDDEN.sub("_", sensor)[:_LONGEST_NAME]
    shown = {key: value[:_LONGEST_TAG] for key, value in tags.items() if value}
    run = client.call(sensor, "create_run", experiment, run_name=name, tags=shown, write=True)
    model = client.call(
        sensor,
        "create_logged_model",
        experiment,
        name=name,
        source_run_id=run.info.run_id,
        tags=shown,
        params=figures.shown_params(),
        model_type=MODEL_TYPE,
        write=True,
    )
    if not _ID.fullmatch(str(model.model_id)):  # it becomes part of a key
        raise RegistryError(f"{sensor}: the registry gave a logged model the id {model.model_id!r:.80}")
    return LoggedModel(str(run.info.run_id), str(model.model_id))


def log_figures(client: RegistryClient, sensor: str, logged: LoggedModel, figures: VersionFigures) -> None:
    """Write what was measured; the run is finished after it."""
    from mlflow.entities import Dataset, DatasetInput, Metric, Param

    now = int(datetime.now(UTC).timestamp() * 1000)
    values = [Metric(name, value, now, 0, model_id=logged.model) for name, value in figures.metrics().items()]
    # Of the run only: the table of models would read every step of each.
    values += [Metric("training_loss", loss, now, step) for step, loss in figures.loss_curve()]
    params = [Param(key, value) for key, value in figures.shown_params().items()]
    if values or params:
        client.call(sensor, "log_batch", logged.run, metrics=values, params=params, write=True)
    if figures.data_digest:
        source = json.dumps({"sensor": sensor, **{k: v for k, v in figures.params.items() if "window" in k}})
        data = Dataset(
            name=sensor[:_LONGEST_NAME], digest=figures.data_digest[:36], source_type="paano", source=source
        )
        client.call(sensor, "log_inputs", logged.run, datasets=[DatasetInput(data)], write=True)
    client.call(sensor, "set_terminated", logged.run, write=True)


def finish(client: RegistryClient, sensor: str, logged: LoggedModel) -> None:
    """The files are there: the logged model is READY."""
    from mlflow.entities import LoggedModelStatus

    client.call(sensor, "finalize_logged_model", logged.model, LoggedModelStatus.READY, write=True)


def link(client: RegistryClient, logged: LoggedModel, name: str, version: int) -> None:
    """Name the version on the page of the logged model; an MLflow server does that by itself."""
    if not client.tracking_uri.startswith(("http://", "https://")):
        tags = {"mlflow.modelVersions": json.dumps([{"name": name, "version": version}])}
        client.call(name, "set_logged_model_tags", logged.model, tags, write=True)


def remove(client: RegistryClient, what: str, model: str) -> None:
    """Remove a logged model and its run; what is gone already is no error."""
    try:
        found = client.call(what, "get_logged_model", model)
        client.call(what, "delete_logged_model", model, write=True)
        if found.source_run_id:
            client.call(what, "delete_run", found.source_run_id, write=True)
    except Missing:
        return


def remove_unfinished(
    client: RegistryClient, experiment: str, limit: datetime, kept: Iterable[str] = ()
) -> int:
    """Remove logged models and runs that were begun before `limit` and never finished; how many.

    A training that was killed leaves them, and an answer of the registry that got lost. `kept` are the ids
    of logged models that a version uses.
    """
    millis, known, gone = int(limit.timestamp() * 1000), set(kept), 0
    for found in _search(
        client,
        "search_logged_models",
        experiment,
        filter_string=f"status = 'PENDING' AND creation_timestamp < {millis}",
    ):
        if found.model_id not in known and found.model_type == MODEL_TYPE:
            remove(client, found.model_id, found.model_id)
            gone += 1
    query = f"attributes.status = 'RUNNING' AND attributes.start_time < {millis}"
    for run in _search(client, "search_runs", experiment, filter_string=query):
        if (run.data.tags or {}).get("paano.sensor"):
            client.call(run.info.run_id, "delete_run", run.info.run_id, write=True)
            gone += 1
    return gone


def _search(client: RegistryClient, method: str, experiment: str, **named: Any) -> list[Any]:
    """Every item of a search in one experiment, before anything of it is removed."""
    found: list[Any] = []
    token = None
    while True:
        page = client.call(
            f"experiment {experiment}", method, [experiment], max_results=_PAGE, page_token=token, **named
        )
        found += page
        token = page.token
        if not token:
            return found
