"""The opened fleet belongs to a run: a worker process that lives longer sees new sensors and new keys."""

from __future__ import annotations

import fleets
import pytest
from prefect import flow

from flows.run.fleet import fleet_for, storage_options
from flows.settings.fleet_file import Settings
from paano.errors import ConfigError


@pytest.mark.usefixtures("prefect")
def test_a_sensor_that_was_added_after_a_run_is_known_to_the_next_run_of_the_same_process(tmp_path):
    from flows.score import score

    fleet = fleets.make(tmp_path / "fleet", sensors=1, model={"iterations": 0})
    file = fleets.write_fleet_file(fleet.settings)
    assert len(score(fleet_file=file, day=fleets.night(8)).outcomes) == 1
    fleets.write_sensor(fleet.settings, "added", fleets.signal(7, fleets.DAYS * 48))
    report = score(fleet_file=file, day=fleets.night(8))
    assert [(outcome.sensor, outcome.state) for outcome in report.outcomes] == [
        ("added", "ok"),
        ("s00", "ok"),
    ]


@pytest.mark.usefixtures("prefect")
def test_keys_that_changed_are_read_again_within_a_run_and_the_fleet_is_shared_otherwise(tmp_path):
    keys = tmp_path / "keys"
    settings = fleets.settings_of(tmp_path, storage={"credentials": str(keys)}).to_dict()

    def write(secret):
        keys.write_text(f"[default]\naws_access_key_id = AK\naws_secret_access_key = {secret}\n")

    @flow
    def look():
        write("first-secret-of-two")
        one, two = fleet_for(settings), fleet_for(settings)
        write("second-secret-of-two")
        return one, two, fleet_for(settings)

    one, two, three = look()
    assert one is two
    assert one.scores.store.options.secret == "first-secret-of-two"
    assert three.scores.store.options.secret == three.registry.options.secret == "second-secret-of-two"
    assert look()[0] is not one


def test_a_change_in_the_usual_aws_files_makes_a_new_connection(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    settings = fleets.settings_of(tmp_path)
    before = storage_options(settings)
    assert storage_options(settings) == before
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = AK\n")
    assert storage_options(settings) != before


@pytest.mark.parametrize(
    "text", ["aws_secret_access_key = hush\n", "[default]\n\x00hush", b"[default]\nx = \xffhush"]
)
def test_a_malformed_credentials_file_is_an_error_that_shows_no_line_of_it(tmp_path, text):
    (tmp_path / "keys").write_bytes(text if isinstance(text, bytes) else text.encode())
    settings = Settings.from_dict({"storage": {"credentials": "keys"}, "folder": tmp_path})
    with pytest.raises(ConfigError, match="not an AWS credentials file") as caught:
        storage_options(settings)
    assert "hush" not in str(caught.value)


def test_a_percent_sign_in_a_secret_is_part_of_it(tmp_path):
    (tmp_path / "keys").write_text("[default]\naws_secret_access_key = a%b%(c)s\n")
    settings = Settings.from_dict({"storage": {"credentials": "keys"}, "folder": tmp_path})
    assert storage_options(settings).secret == "a%b%(c)s"
