"""A new version: upload first, register after, alias last.

A crash at any point leaves at most files that no version points to and a logged model that is not finished,
which `sweep` finds. An alias never points to missing files.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from storage.keys import model_name
from storage.objects.store import check_key
from storage.registry import logged, owner, package
from storage.registry.client import Exists, Missing
from storage.registry.figures import VersionFigures
from storage.registry.lookup import (
    CHALLENGER,
    CHAMPION,
    DIGEST_TAG,
    FLEET_TAG,
    PYFUNC_TAG,
    SENSOR_TAG,
    aliases_of,
)
from storage.registry.places import locate, place_of
from storage.registry.versions import Version

if TYPE_CHECKING:
    from storage.registry.registry import Registry

_LONGEST_TEXT = 5000  # characters of a description that every MLflow backend holds
_LINKS = "[Figures, settings and files]"
_SHOWN = 4  # pictures in a description
_THREADS = 8  # of an upload


def register(
    registry: Registry,
    sensor: str,
    folder: str | Path,
    tags: Mapping[str, str],
    description: str,
    attachments: Mapping[str, bytes],
    figures: VersionFigures,
) -> Version:
    """The version of the model saved in `folder`: a new one, or the one that this artifact already has."""
    digest, files = package.pack(folder)
    for path, data in attachments.items():
        files[f"review/{check_key(path)}"] = data
    name, pyfunc = model_name(registry.fleet, sensor), package.pyfunc_digest(files)
    found = the_only(registry, registry.with_digest(name, sensor, digest))
    if found is None:
        marks = {SENSOR_TAG: sensor, FLEET_TAG: registry.fleet, DIGEST_TAG: digest}
        marks[PYFUNC_TAG] = pyfunc
        marks |= {key: str(value) for key, value in tags.items()}
        return _register_new(registry, sensor, digest, files, marks, description, figures)
    # Its files are written again: they may be damaged, and pictures may be newer.
    place = locate(registry.artifacts, registry.fleet, found)
    note = _mark_again(registry, place, sensor, name)
    _upload(registry, place, files)
    if note is not None:
        _note_version(registry, place, note, found.version)
    if found.tags.get(PYFUNC_TAG) != pyfunc:  # another release made it first
        number = str(found.version)
        registry.client.call(name, "set_model_version_tag", name, number, PYFUNC_TAG, pyfunc, write=True)
        found.tags[PYFUNC_TAG] = pyfunc
    return found


def _register_new(
    registry: Registry,
    sensor: str,
    digest: str,
    files: dict[str, bytes],
    tags: dict[str, str],
    description: str,
    figures: VersionFigures,
) -> Version:
    name, client = model_name(registry.fleet, sensor), registry.client
    identity, experiment = registry.identity, registry.experiment
    with ThreadPoolExecutor(2) as pool:  # the registry takes as long as the store: both at once
        looking = pool.submit(registry.model_of, sensor)
        begun = logged.begin(client, experiment, sensor, tags, figures)
        describing = pool.submit(logged.log_figures, client, sensor, begun, figures)
        place = place_of(registry.fleet, begun.model)
        note = owner.note_now(identity, registry.fleet, sensor, name)
        registry.artifacts.put(owner.owner_key(place, identity), note.to_bytes())
        _upload(registry, place, files)
        describing.result()
        if looking.result() is None:
            _create_model(registry, name, sensor)
        finishing = pool.submit(logged.finish, client, sensor, begun)
        text = _short(description, links(experiment, begun.model, files))
        made = _create_version(registry, name, sensor, registry.source(place), tags, text, begun)
        noting = pool.submit(_note_version, registry, place, note, made.version)
        # Another process may have registered the same artifact at the same moment, or an answer was lost and
        # the call repeated: the lowest number stays.
        found = the_only(registry, registry.with_digest(name, sensor, digest)) or made
        finishing.result()
        noting.result()
        if found.source == made.source:
            logged.link(client, begun, name, found.version)
            if found.version != made.version:
                _note_version(registry, place, note, found.version)
    return found


def _mark_again(registry: Registry, place: str, sensor: str, name: str) -> owner.OwnerNote | None:
    """Say in the folder of a version that it is also this registry's; None if it says so already."""
    key = owner.owner_key(place, registry.identity)
    held = owner.read_note(registry.artifacts, key)
    if held is not None and held.version is not None:
        return None
    note = owner.note_now(registry.identity, registry.fleet, sensor, name)
    # A folder that was whole before may be another's too.
    shared = held is None and registry.artifacts.head(f"{place}/MLmodel") is not None
    note = replace(note, shared=shared)
    registry.artifacts.put(key, note.to_bytes())
    return note


def _note_version(registry: Registry, place: str, note: owner.OwnerNote, version: int) -> None:
    whole = replace(note, version=version)
    registry.artifacts.put(owner.owner_key(place, note.registry), whole.to_bytes())


def _upload(registry: Registry, place: str, files: dict[str, bytes]) -> None:
    last = "MLmodel"  # a folder that has one is whole
    others = [path for path in files if path != last]
    with ThreadPoolExecutor(min(_THREADS, len(others))) as pool:
        list(pool.map(lambda path: registry.artifacts.put(f"{place}/{path}", files[path]), others))
    registry.artifacts.put(f"{place}/{last}", files[last])


def _create_version(
    registry: Registry,
    name: str,
    sensor: str,
    source: str,
    tags: dict[str, str],
    text: str,
    begun: logged.LoggedModel,
) -> Version:
    def create() -> Any:
        return registry.client.call(
            name,
            "create_model_version",
            name,
            source,
            run_id=begun.run,
            model_id=begun.model,
            tags=tags,
            description=text,
            await_creation_for=0,  # there is nothing to wait for: the files are there
            write=True,
        )

    try:
        made = create()
    except Missing:  # removed since we looked
        _create_model(registry, name, sensor)
        made = create()
    return registry.to_version(made, sensor)


def _create_model(registry: Registry, name: str, sensor: str) -> None:
    text = (
        f"Anomaly model of sensor `{sensor}` of the fleet `{registry.fleet}`.\n\n"
        f"- `{CHAMPION}` is the version that scores; move the alias and the next run follows.\n"
        f"- `{CHALLENGER}` is the newest version that waits for a review.\n"
    )
    tags = {SENSOR_TAG: sensor, FLEET_TAG: registry.fleet}
    try:
        registry.client.call(
            name, "create_registered_model", name, tags=tags, description=_short(text), write=True
        )
    except Exists:
        return  # another process was first


def the_only(registry: Registry, versions: list[Version]) -> Version | None:
    """The one version of a digest: that with an alias, else the lowest. Others of them are removed."""
    if not versions:
        return None
    if len(versions) == 1:
        return versions[0]
    model = registry.model_of(versions[0].sensor)
    aliases: Mapping[str, Any] = model.aliases if model is not None else {}
    pointed = {int(number) for number in aliases.values()}
    versions = sorted(versions, key=lambda v: v.version)
    kept = next((v for v in versions if v.version in pointed), versions[0])
    for version in versions:
        if version.version != kept.version and version.version not in pointed:
            registry.delete_version(version.name, version.version)
    return replace(kept, aliases=aliases_of(aliases, kept.version))


def links(experiment: str, model: str, files: Mapping[str, bytes]) -> str:
    """Markdown for MLflow's page of a version: the way to its figures and files, and its pictures."""
    lines = [f"{_LINKS}(#/experiments/{quote(experiment)}/models/{quote(model)})"]
    pictures = sorted(path for path in files if path.startswith("review/") and path.endswith(".png"))
    for path in pictures[:_SHOWN]:
        title = path.removeprefix("review/").removesuffix(".png")
        address = f"ajax-api/2.0/mlflow/logged-models/{quote(model)}/artifacts/files"
        lines.append(f"![{title}]({address}?artifact_file_path={quote(path, safe='')})")
    return "\n\n".join(lines)


def without_links(description: str) -> str:
    """The description of a version as it was given to `register`."""
    return description.partition(_LINKS)[0].rstrip()


def _short(text: str, after: str = "") -> str:
    """`text`, cut if it is too long, and then all of `after`."""
    room = _LONGEST_TEXT - len(after) - 2
    text = text if len(text) <= room else text[: room - 1] + "…"
    return f"{text}\n\n{after}" if after and text else text + after
