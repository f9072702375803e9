"""The fleet file: read whole, refused with everything that is wrong, written so that it reads back."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest

from flows.settings.fleet_file import Settings, keys, variables
from flows.settings.template import render
from paano.config import PRESETS, PaAnoConfig
from paano.errors import ConfigError


def test_the_written_file_reads_back_as_the_same_settings(tmp_path):
    settings = Settings.from_dict(
        {
            "fleet": {"name": "plant"},
            "history": {"url": 's3://b/"odd"', "channels": {"v 1": "flow"}, "interval": "90s"},
            "alarms": {"thresholds": {"pump/1": 0.5}, "merge": "2h"},
            "model": {"preset": "paper", "patch": 64},
            "folder": tmp_path,
        }
    )
    (tmp_path / "fleet.toml").write_text(render(settings))
    assert Settings.load(tmp_path / "fleet.toml") == settings


def test_every_key_stands_in_the_written_file_with_its_meaning():
    text = render(Settings.from_dict({}))
    section = ""
    documented = set()
    for line in text.splitlines():
        if line.startswith("["):
            section = line[1 : line.index("]")]
        elif " = " in line and section:
            key = line.removeprefix("# ").split(" = ")[0]
            assert "  # " in line, f"{section}.{key} has no comment"
            documented.add((section, key))
    assert documented == {(section, key) for section, key, _ in keys()}


def test_one_error_lists_every_wrong_key_and_what_is_allowed():
    wrong = {
        "history": {"uri": "x", "layout": "wide"},
        "alarms": {"budget": -1, "merge": "5 parsecs"},
        "model": {"depth": 9},
        "modle": {},
        "schedule": {"score": "every night", "timezone": "Mars/Base"},
    }
    with pytest.raises(ConfigError) as caught:
        Settings.from_dict(wrong)
    message = str(caught.value)
    for part in (
        "history.uri is unknown", "did you mean url?", "history.layout", "'sensor' or 'long'",
        "alarms.budget", "alarms.merge", '"5min"', "model.depth", "3, 4 or 5", "modle is unknown",
        "did you mean model?", "schedule.score", "cron", "schedule.timezone",
    ):  # fmt: skip
        assert part in message, part
    assert "\n" not in message


def test_settings_of_the_model_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match=r"model\.shift"):
        Settings.from_dict({"model": {"patch": 8, "shift": 9}})


def test_a_variable_wins_over_the_file(monkeypatch):
    monkeypatch.setenv("PAANO_ALARMS__BUDGET", "3")
    monkeypatch.setenv("PAANO_HISTORY__CHANNELS", '["a", "b"]')
    monkeypatch.setenv("PAANO_MODEL__PATCH", "32")
    settings = Settings.from_dict({"alarms": {"budget": 2, "merge": "2h"}})
    assert settings.alarms.budget == 3
    assert settings.alarms.merge == timedelta(hours=2)
    assert settings.history.channels == ["a", "b"]
    assert settings.config().patch == 32


@pytest.mark.parametrize(("name", "value"), [("PAANO_RUN__WORKERZ", "2"), ("PAANO_RUN__WORKERS", "many")])
def test_a_wrong_variable_is_refused_like_a_wrong_key(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="PAANO_RUN__WORKER"):
        Settings.from_dict({})


def test_every_key_has_a_variable():
    assert len(variables()) == len(list(keys()))
    assert "PAANO_SCORES__URL" in variables()


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_preset_gives_the_settings_of_the_method(preset):
    settings = Settings.from_dict({"model": {"preset": preset}})
    assert settings.config(seed=7) == PaAnoConfig.preset(preset, seed=7)


def test_relative_paths_start_at_the_fleet_file(tmp_path):
    (tmp_path / "fleet.toml").write_text('[scores]\nurl = "out/scores"\n')
    settings = Settings.load(tmp_path / "fleet.toml")
    assert settings.place(settings.scores.url) == str(tmp_path / "out/scores")
    assert settings.place("s3://bucket/x") == "s3://bucket/x"
    assert settings.place("/abs") == "/abs"


def test_settings_travel_as_plain_values():
    import json

    settings = Settings.from_dict({"history": {"interval": "5min"}, "model": {"width": 0.25}})
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_a_missing_or_broken_file_is_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="paano init"):
        Settings.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[fleet\n")
    with pytest.raises(ConfigError, match="not TOML"):
        Settings.load(tmp_path / "bad.toml")


def test_credentials_come_from_a_file_and_are_never_shown(tmp_path):
    from flows.run.fleet import storage_options

    (tmp_path / "keys").write_text("[plant]\naws_access_key_id = AK\naws_secret_access_key = hush\n")
    settings = Settings.from_dict(
        {"storage": {"credentials": "keys", "profile": "plant"}, "folder": tmp_path}
    )
    options = storage_options(settings)
    assert (options.key, options.secret) == ("AK", "hush")
    assert "hush" not in repr(options) + repr(settings) + str(settings.to_dict()) + render(settings)
    with pytest.raises(ConfigError, match="allowed: plant"):
        storage_options(Settings.from_dict({"storage": {"credentials": "keys"}, "folder": tmp_path}))


def test_the_fleet_file_is_plain_toml():
    assert tomllib.loads(render(Settings.from_dict({})))["fleet"]["name"] == "fleet"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"scores": {"url": "history/"}}, "scores.url = 'history/' is in the place of history.url"),
        ({"scores": {"url": "history/scores"}}, "give each a folder of its own"),
        ({"events": {"url": "scores"}}, "events.url = 'scores' is in the place of scores.url"),
        (
            {"history": {"url": "s3://plant/x"}, "scores": {"url": "s3a://plant/x/"}},
            "is in the place of history.url",
        ),
        ({"scores": {"url": f"file://{Path('history').absolute()}"}}, "is in the place of history.url"),
        ({"alarms": {"merge": "9999d"}}, "lower alarms.merge or raise alarms.longest"),
        ({"alarms": {"longest": "9999d"}}, "less than or equal to 366 days"),
    ],
)
def test_settings_that_would_spoil_a_store_or_run_for_minutes_are_refused(values, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        Settings.from_dict(values)


def test_a_link_to_the_history_is_no_place_for_scores(tmp_path):
    (tmp_path / "history").mkdir()
    (tmp_path / "alias").symlink_to("history")
    with pytest.raises(ConfigError, match=r"is in the place of history\.url"):
        Settings.from_dict({"scores": {"url": "alias"}, "folder": tmp_path})


def test_a_history_with_a_path_of_its_own_may_share_a_bucket_with_the_scores():
    Settings.from_dict(
        {"history": {"url": "s3://plant", "path": "raw/{sensor}"}, "scores": {"url": "s3://plant/scores"}}
    )


def test_a_wrong_variable_is_named_as_the_variable_and_lists_ask_for_json(monkeypatch):
    monkeypatch.setenv("PAANO_RUN__WORKERS", "many")
    monkeypatch.setenv("PAANO_HISTORY__CHANNELS", "a,b")
    with pytest.raises(ConfigError) as caught:
        Settings.from_dict({"alarms": {"budget": 0}})
    said = str(caught.value)
    assert "the variable PAANO_RUN__WORKERS = 'many'" in said
    assert "the variable PAANO_HISTORY__CHANNELS = 'a,b'" in said and "write JSON" in said
    of_file, _, of_variables = said.partition("wrong in the environment: ")
    assert "alarms.budget = 0" in of_file and "PAANO" not in of_file, "the file is not blamed for a variable"
    assert of_variables.count("PAANO_HISTORY__CHANNELS") == 1
