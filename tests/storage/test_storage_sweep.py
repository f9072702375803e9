"""`sweep` removes only what is provably its own, orphaned and old; `retire` only what nobody needs."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from paano import PaAno
from paano.errors import RegistryError
from storage.registry.client import RegistryClient
from storage.registry.places import folder_of, former_place, locate, logged_model_of
from storage.registry.registry import Registry

LATER = datetime.now(UTC) + timedelta(days=2)


@pytest.fixture
def make(tmp_path, empty_database):
    """A registry with a database of its own; all of them see the same artifact store."""

    def made(name, artifacts=tmp_path / "artifacts", fleet="plant"):
        database = tmp_path / f"{name}.db"
        if not database.exists():
            shutil.copy(empty_database, database)
        return Registry(f"sqlite:///{database}", artifacts, fleet, tmp_path / f"cache-{name}")

    return made


@pytest.fixture
def local(make):
    return make("production")


def crash_upload(registry, sensor, model, monkeypatch):
    """Upload files that are never registered."""

    class Crash(BaseException):
        pass

    def create(*_arguments, **_named):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr("storage.registry.registration._create_version", create)
        with pytest.raises(Crash):
            registry.register(sensor, model)


def places(registry):
    return {folder_of(info.key) for info in registry.artifacts.list("plant") if "/model/" in info.key}


def owned_by(registry, sensor):
    """The owner notes that name `sensor`."""
    notes = registry.artifacts.root.rglob("owners/*.json")
    return [path for path in notes if json.loads(path.read_bytes())["sensor"] == sensor]


def as_before_0_2(registry, version):
    """`version` as the release before made it: files by sensor and digest, no logged model; its folder."""
    place = former_place("plant", version.name.removeprefix("plant."), version.digest)
    new = registry.artifacts.root / locate(registry.artifacts, "plant", version)
    shutil.copytree(new, registry.artifacts.root / place, ignore=shutil.ignore_patterns("owners"))
    shutil.rmtree(new)
    registry.delete_version(version.name, version.version)
    registry.client.call(
        "a", "create_model_version", version.name, registry.source(place), tags=version.tags,
        await_creation_for=0, write=True,
    )  # fmt: skip
    return place


def test_files_that_were_never_registered_go_when_they_are_old(local, models, monkeypatch):
    kept = local.register("a", models[0], alias="champion")
    crash_upload(local, "b", models[1], monkeypatch)
    assert local.sweep(now=datetime.now(UTC)).folders == [] and local.sweep().kept == {"young": 1}
    found = local.sweep(now=LATER)
    assert len(found.folders) == 1 and not found.removed and not found.refused
    assert found.folders[0] in str(owned_by(local, "b")[0])
    assert local.sweep(dry_run=False, now=LATER).removed
    assert len(places(local)) == 1 and local.sweep(now=LATER).folders == []
    local.cache.drop(local.cache.models / kept.name / kept.digest[:32])
    assert PaAno.load(local.fetch(kept))


def test_files_of_a_version_that_was_deleted_go_once_a_later_one_is_known(local, models):
    first = local.register("a", models[0])
    local.delete_version(first.name, 1)
    found = local.sweep(now=LATER)  # the last one known: it may be a restored backup that forgot it
    assert found.folders == [] and "restored from a backup" in next(iter(found.kept))
    local.register("a", models[1], alias="champion")
    local.register("b", models[1], alias="champion")
    assert len(local.sweep(dry_run=False, now=LATER).folders) == 1
    assert PaAno.load(local.fetch(local.champions()["a"]))


def test_another_registry_on_the_same_files_removes_nothing(make, local, models):
    for sensor in "abc":
        local.register(sensor, models[0], alias="champion")
    staging = make("staging")
    staging.register("x", models[1], alias="champion")
    before = places(local)
    found = staging.sweep(now=LATER)
    assert found.folders == [] and found.kept == {"another registry uses it": 3}
    staging.sweep(dry_run=False, now=LATER, share=1)
    assert places(local) == before


def test_an_empty_registry_removes_nothing(make, local, models, monkeypatch):
    local.register("a", models[0], alias="champion")
    empty = make("empty")
    assert empty.sweep(now=LATER, dry_run=False, claim=True).folders == []
    crash_upload(empty, "b", models[1], monkeypatch)  # its own orphan, and still it has no version
    with pytest.raises(RegistryError, match="has no version of the fleet"):
        empty.sweep(now=LATER, dry_run=False)
    assert "has no version" in empty.sweep(now=LATER).refused
    assert len(places(local)) == 2


def test_a_registry_restored_from_a_backup_keeps_what_it_forgot(tmp_path, make, local, models):
    local.register("a", models[0], alias="champion")
    shutil.copy(tmp_path / "production.db", tmp_path / "backup.db")
    local.register("a", models[1], alias="champion")
    local.register("b", models[2], alias="champion")
    before = places(local)
    restored = make("backup")  # at another address
    restored.sweep(dry_run=False, now=LATER, share=1, claim=True)
    assert places(local) == before
    restored.register("a", models[3], alias="champion")  # takes number 2 again, for other files
    restored.sweep(dry_run=False, now=LATER, share=1)
    assert before < places(local)
    assert all(PaAno.load(local.fetch(v)) for v in local.champions().values())


def test_a_copy_of_the_registry_at_another_address_asks_to_be_told(
    tmp_path, make, local, models, monkeypatch
):
    local.register("a", models[0], alias="champion")
    shutil.copy(tmp_path / "production.db", tmp_path / "copy.db")
    copy = make("copy")
    crash_upload(copy, "b", models[1], monkeypatch)
    with pytest.raises(RegistryError, match="paano sweep --claim"):
        copy.sweep(dry_run=False, now=LATER)
    assert len(copy.sweep(dry_run=False, now=LATER, claim=True).folders) == 1
    crash_upload(local, "c", models[2], monkeypatch)
    with pytest.raises(RegistryError, match="another address"):
        local.sweep(dry_run=False, now=LATER)


def test_the_same_files_through_a_symbolic_link_are_the_same_files(tmp_path, make, local, models):
    local.register("a", models[0], alias="champion")
    os.symlink(tmp_path / "artifacts", tmp_path / "link")
    linked = make("production", artifacts=tmp_path / "link")
    assert linked.sweep(dry_run=False, now=LATER).folders == []
    version = linked.champions()["a"]
    shutil.rmtree(linked.cache.models)
    assert PaAno.load(linked.fetch(version)) and len(places(local)) == 1


def test_s3a_is_s3(make, models, tmp_path, bucket):
    for scheme in ("s3", "s3a"):
        database = tmp_path / "production.db"
        make("production")
        registry = Registry(
            f"sqlite:///{database}",
            bucket.url.replace("s3://", f"{scheme}://"),
            "plant",
            tmp_path / f"cache-{scheme}",
            bucket.options,
        )
        if scheme == "s3":
            registry.register("a", models[0], alias="champion")
        assert registry.sweep(dry_run=False, now=LATER).folders == []
        assert PaAno.load(registry.fetch(registry.champions()["a"]))


def test_files_of_the_release_before_have_no_owner_and_stay(local, models):
    local.register("a", models[0], alias="champion")
    version = local.register("b", models[1], alias="champion")
    for path in local.artifacts.root.rglob("owners/*.json"):
        path.unlink()
    (local.artifacts.root / "plant" / "registry.json").unlink()
    local.client.call("b", "delete_registered_model", version.name, write=True)
    found = local.sweep(dry_run=False, now=LATER, share=1)
    assert found.folders == [] and "no owner" in next(iter(found.kept)) and len(places(local)) == 2


def test_two_registries_that_make_the_same_model_have_files_of_their_own(make, local, models):
    """Staging trains on the same history: the same model, another folder."""
    local.register("a", models[0], alias="champion")
    staging = make("staging")
    staging.register("a", models[0])
    staging.register("a", models[1], alias="champion")
    staging.delete_version("plant.a", 1)
    assert len(staging.sweep(dry_run=False, now=LATER, share=1, claim=True).folders) == 1
    shutil.rmtree(local.cache.models)
    assert PaAno.load(local.fetch(local.champions()["a"]))


def test_files_that_were_there_before_are_not_taken_as_ones_own(local, models):
    """A folder of the release before may be used by a registry that leaves no marks."""
    as_before_0_2(local, local.register("a", models[0]))
    again = local.register("a", models[0], alias="champion")  # marks the folder, as one that was there
    assert again.version == 2 and logged_model_of(locate(local.artifacts, "plant", again)) is None
    local.register("a", models[1], alias="champion")
    local.delete_version("plant.a", 2)
    found = local.sweep(dry_run=False, now=LATER, share=1)
    assert found.folders == [] and found.kept == {"it was there before this registry": 1}


def test_a_version_of_the_release_before_is_fetched_and_its_files_stay(local, models):
    place = as_before_0_2(local, local.register("a", models[0]))
    local.set_champion("a", 2)
    shutil.rmtree(local.cache.models)
    assert PaAno.load(local.fetch(local.champions()["a"])) and local.attach(
        local.version("a", 2), "x.png", b""
    )
    assert local.sweep(dry_run=False, now=LATER, share=1).folders == [] and place in places(local)


def test_a_large_share_does_not_go_at_once(local, models, monkeypatch):
    local.register("a", models[0], alias="champion")
    for n in range(12):
        crash_upload(local, f"b{n}", models[1], monkeypatch)
    with pytest.raises(RegistryError, match=r"12 of 13 .*paano sweep --share 1"):
        local.sweep(dry_run=False, now=LATER)
    assert "12 of 13" in local.sweep(now=LATER).refused and len(places(local)) == 13
    assert len(local.sweep(dry_run=False, now=LATER, share=1).folders) == 12
    assert len(places(local)) == 1


@pytest.mark.parametrize("note", [b"", b"[]", b'{"registry": 3}', b"x" * 100_000, b'{"version": "1"}'])
def test_a_damaged_owner_note_proves_nothing(local, models, monkeypatch, note):
    local.register("a", models[0], alias="champion")
    crash_upload(local, "b", models[1], monkeypatch)
    owned_by(local, "b")[0].write_bytes(note)
    found = local.sweep(dry_run=False, now=LATER, share=1)
    assert found.folders == [] and found.kept == {"its owner note is damaged": 1}


def test_other_objects_below_the_fleet_are_not_models(local, models):
    local.register("a", models[0], alias="champion")
    for key in (
        "plant/notes.txt",
        "plant/a/readme.md",
        "plant/a/x/y",
        "plant/.mlflow/1/models/m/artifacts/f",
    ):
        local.artifacts.put(key, b"x")
    assert local.sweep(dry_run=False, now=LATER, share=1).folders == []
    assert local.artifacts.get("plant/a/x/y") == b"x"


def test_a_sweep_that_was_cut_short_is_finished_by_the_next(local, models, monkeypatch):
    local.register("a", models[0], alias="champion")
    crash_upload(local, "b", models[1], monkeypatch)
    whole = local.artifacts.delete
    with monkeypatch.context() as patch:
        patch.setattr(local.artifacts, "delete", lambda keys: whole(keys[:4]))
        local.sweep(dry_run=False, now=LATER)
    assert len(local.sweep(dry_run=False, now=LATER).folders) == 1
    assert local.sweep(now=LATER).folders == [] and len(places(local)) == 1


# -- old versions


def numbers(registry, sensor):
    return sorted(v.version for v in registry.versions(sensor))


def test_the_newest_stay_and_so_do_champion_challenger_and_the_one_before(local, models):
    for model in models[:9]:
        local.register("a", model)
    local.register("b", models[0], alias="champion")
    local.set_champion("a", 3)
    local.set_tags(local.version("a", 3), {"paano.previous": "1"})
    local.set_challenger("a", 5)
    dry = local.retire(keep=2)
    assert [number for _, number in dry.versions] == [2, 4, 6, 7] and not dry.removed
    assert numbers(local, "a") == list(range(1, 10))
    local.retire(keep=2, dry_run=False)
    assert numbers(local, "a") == [1, 3, 5, 8, 9] and numbers(local, "b") == [1]
    assert local.champions()["a"].version == 3 and local.challengers()["a"].version == 5
    swept = local.sweep(dry_run=False, now=LATER)
    assert len(swept.folders) == 4
    assert all(PaAno.load(local.fetch(v)) for v in local.versions("a"))
    assert local.retire(keep=2, dry_run=False).versions == []


@pytest.mark.parametrize("previous", ["", "soon", "0"])
def test_without_a_tag_the_one_before_is_the_next_lower(local, models, previous):
    for model in models[:6]:
        local.register("a", model)
    local.set_champion("a", 4)
    local.set_tags(local.version("a", 4), {"paano.previous": previous})
    local.retire(keep=1, dry_run=False)
    assert numbers(local, "a") == [3, 4, 6]


def test_an_alias_of_a_reviewers_own_protects_a_version_and_foreign_ones_are_left_alone(local, models):
    for model in models[:4]:
        local.register("a", model, alias="champion")
    local._set_alias(local.version("a", 1), "reference")
    local.client.call(
        "a", "create_model_version", "plant.a", "s3://elsewhere/x", await_creation_for=0, write=True
    )
    local.retire(keep=1, dry_run=False)
    assert numbers(local, "a") == [1, 3, 4, 5]


def test_doubled_versions_of_one_digest_are_removed(local, models):
    """As lost answers left them: the same files under several numbers."""
    first = local.register("a", models[0])
    for _ in range(3):
        local.client.call(
            "a",
            "create_model_version",
            first.name,
            first.source,
            tags=first.tags,
            await_creation_for=0,
            write=True,
        )
    assert numbers(local, "a") == [1, 2, 3, 4]
    again = local.register("a", models[0], alias="champion")  # the next training of the same heals it
    assert again.version == 1 and numbers(local, "a") == [1]


def test_housekeeping_heals_doubled_versions_and_keeps_the_one_with_an_alias(local, models):
    first = local.register("a", models[0])
    for _ in range(2):
        local.client.call(
            "a",
            "create_model_version",
            first.name,
            first.source,
            tags=first.tags,
            await_creation_for=0,
            write=True,
        )
    local.set_champion("a", 2)
    local.retire(keep=10, dry_run=False)
    assert numbers(local, "a") == [1, 2] and local.champions()["a"].version == 2


@pytest.mark.parametrize("times", [1, 2, 4])
def test_lost_answers_leave_one_version(local, models, monkeypatch, times):
    """The registry did what it was asked; its answer got lost, so the call is made again."""
    from storage.registry.client import _Busy

    original, lost = RegistryClient.call, []

    def call(self, what, method, *arguments, **named):
        answer = original(self, what, method, *arguments, **named)
        if method == "create_model_version" and len(lost) < times:
            lost.append(answer)
            answer = original(self, what, method, *arguments, **named)  # what a repeated request does
        return answer

    monkeypatch.setattr(RegistryClient, "call", call)
    version = local.register("a", models[0], alias="champion")
    assert version.version == 1 and numbers(local, "a") == [1]
    assert issubclass(_Busy, Exception)
