"""One message per incident; again when it grows by a step or ends; never twice, never lost."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from prefect.testing.utilities import prefect_test_harness
from typer.testing import CliRunner

from flows.cli.app import app
from flows.messages.compose import review_message
from flows.messages.message import About, Message
from flows.messages.quiet import end_of_quiet, is_quiet
from flows.messages.send import address_of, deliver_waiting, offer
from flows.notify import send_waiting
from flows.run.after import after_nights, tell_failure, tell_reviews
from flows.run.fleet import open_fleet
from flows.run.outcome import ok
from flows.settings.fleet_file import Settings
from flows.settings.notify import TargetSettings
from paano.alarms.events import event_id
from paano.errors import ConfigError
from storage.operations.sent import SentStore
from storage.tables.events import EVENT_SCHEMA
from storage.window import Window
from tests.messages.receivers import http_receiver, smtp_receiver

NIGHT = datetime(2026, 11, 17, tzinfo=UTC)
NOW = NIGHT + timedelta(days=1, hours=2)
HOUR = timedelta(hours=1)


@pytest.fixture
def web():
    with http_receiver() as received:
        yield received


@pytest.fixture
def make(tmp_path, web):
    def fleet(target=None, **notify):
        (tmp_path / "catalog.csv").write_text("sensor,group\na,line-1\nb,line-1\nc,line-2\n")
        hook = {"kind": "webhook", "address": f"http://127.0.0.1:{web.port}/", **(target or {})}
        values = {"targets": {"hook": hook}, "prefect": False, "retries": 0, **notify}
        return open_fleet(
            Settings.from_dict(
                {
                    "fleet": {"name": "plant", "timezone": "Europe/Rome"},
                    "history": {"catalog": "catalog.csv"},
                    "notify": values,
                    "folder": tmp_path,
                }
            )
        )

    return fleet


def store(fleet, *events, upto=5):
    """Events (sensor, first hour, last hour, severity[, cause]) of the days from NIGHT on."""
    rows = [
        {
            "event_id": event_id(e[0], NIGHT + e[1] * HOUR), "sensor": e[0], "start": NIGHT + e[1] * HOUR,
            "end": NIGHT + e[2] * HOUR, "peak": NIGHT + e[1] * HOUR, "score": 1.0, "severity": e[3],
            "length": 1, "channels": [], "cause": e[4] if len(e) > 4 else "level", "model_version": 1,
        }
        for e in events
    ]  # fmt: skip
    frame = pl.DataFrame(rows, schema=EVENT_SCHEMA, orient="row")
    fleet.events.update(frame, Window(NIGHT, NIGHT + timedelta(days=upto)), ["a", "b", "c"])


def run(fleet, day=0, now=None):
    window = Window.day((NIGHT + timedelta(days=day)).date())
    return after_nights(fleet, window, window.start.date(), now or NOW + timedelta(days=day))


def test_a_fault_seen_by_two_sensors_is_one_message_and_a_rerun_sends_nothing(make, web):
    fleet = make()
    store(fleet, ("a", 3, 5, 4.2), ("b", 4, 6, 2.0))
    run(fleet)
    run(fleet)
    (message,) = web.messages
    assert message["title"] == "plant: line-1, severity 4.2, 2026-11-17 04:00 (over)"
    assert message["sensors"] == "a b" and message["about"] == "incident" and message["end"]
    assert "paano event confirm|dismiss|expected" in message["text"]


def test_an_incident_that_goes_on_is_told_again_when_it_grows_by_a_step_and_when_it_ends(make, web):
    fleet = make()
    store(fleet, ("a", 20, 23.9, 2.1))
    run(fleet)
    store(fleet, ("a", 20, 47.9, 2.8))
    run(fleet, 1)  # longer, and the same step
    store(fleet, ("a", 20, 71.9, 4.0))
    run(fleet, 2)
    store(fleet, ("a", 20, 75, 4.0))
    run(fleet, 3)
    run(fleet, 3)
    assert [(m["severity"], m["state"]) for m in web.messages] == [
        (2.1, "open"), (4.0, "open"), (4.0, "ended"),
    ]  # fmt: skip


def test_an_incident_whose_first_row_turns_out_to_be_earlier_is_not_told_as_another(make, web):
    fleet = make()
    store(fleet, ("a", 23, 23.9, 2.1))
    run(fleet)
    store(fleet, ("a", 22.5, 26, 2.2))
    run(fleet, 1)
    assert [m["state"] for m in web.messages] == ["open", "ended"]


def test_an_old_day_sends_nothing(make, web):
    fleet = make()
    store(fleet, ("a", 3, 5, 4.2))
    run(fleet, now=NOW + timedelta(days=30))
    assert web.messages == []


def test_a_target_that_is_down_is_tried_again_and_the_night_goes_on(make, web):
    fleet = make(retries=2)
    store(fleet, ("a", 3, 5, 4.2))
    web.refuse = True
    waits = []
    assert offer(fleet.settings, Message("k", About.FAILURE, "x"), NOW) == 1
    count, notes = deliver_waiting(fleet.settings, NOW, waits.append)
    assert count == 0 and waits == [1.0, 5.0] and "'hook'" in notes[0] and "paano notify" in notes[0]
    web.refuse = False
    assert run(fleet) == []
    assert sorted(m["about"] for m in web.messages) == ["failure", "incident"]


def test_in_quiet_hours_messages_wait_but_for_what_is_urgent(make, web):
    fleet = make(quiet="22:00-06:00", urgent=6.0)
    store(fleet, ("a", 3, 5, 4.2), ("c", 3, 5, 7.0))
    run(fleet, now=NOW)  # three o'clock in Rome
    assert [m["severity"] for m in web.messages] == [7.0]
    deliver_waiting(fleet.settings, NOW + 5 * HOUR)
    assert [m["severity"] for m in web.messages] == [7.0, 4.2]


@pytest.mark.parametrize(
    ("quiet", "hour", "expected"),
    [("22:00-06:00", 22, True), ("22:00-06:00", 5, False), ("10:00-12:00", 9, True), ("", 3, False)],
)
def test_quiet_hours_are_in_the_zone_of_the_fleet(make, quiet, hour, expected):
    settings = make(quiet=quiet).settings
    assert is_quiet(settings, datetime(2026, 11, 17, hour, 30, tzinfo=UTC)) is expected


def test_what_waited_in_quiet_hours_is_sent_at_their_end(make, web):
    from prefect.server.schemas.schedules import CronSchedule

    fleet = make(quiet="22:00-06:00")
    store(fleet, ("a", 3, 5, 4.2))
    run(fleet, now=NOW)
    assert not web.messages
    cron, zone = end_of_quiet(fleet.settings)
    [end] = asyncio.run(CronSchedule(cron=cron, timezone=zone).get_dates(1, start=NOW))
    assert end == datetime(2026, 11, 18, 5, tzinfo=UTC)  # six o'clock in Rome
    assert send_waiting.fn(fleet.settings, end - timedelta(seconds=1)) == {"sent": 0, "notes": []}
    assert send_waiting.fn(fleet.settings, end) == {"sent": 1, "notes": []}
    assert [m["severity"] for m in web.messages] == [4.2]


def test_without_quiet_hours_or_targets_nothing_waits_for_their_end(make):
    assert end_of_quiet(make().settings) is None
    assert end_of_quiet(make(quiet="22:00-06:00", targets={}).settings) is None


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"severity": 4.0}, ["a"]),
        ({"groups": ["line-2"]}, ["c"]),
        ({"causes": ["shape"]}, ["c"]),
        ({"about": ["failure"]}, []),
        ({}, ["a", "c"]),
    ],
)
def test_a_target_is_told_what_its_rules_let_through(make, web, rule, told):
    fleet = make(rule)
    store(fleet, ("a", 3, 5, 4.2), ("c", 3, 5, 2.0, "shape and level"))
    run(fleet)
    assert sorted(m["sensor"] for m in web.messages) == told


def test_a_digest_is_one_message_per_night(make, web):
    fleet = make({"digest": True})
    store(fleet, ("a", 3, 5, 4.2), ("c", 3, 5, 2.0))
    run(fleet)
    run(fleet)
    (message,) = web.messages
    assert message["title"] == "plant: 2 incidents on 2026-11-17" and message["text"].count("\n") == 1


def test_a_digest_has_only_what_is_new_to_its_target_and_follows_its_own_rules(make, web):
    address = f"http://127.0.0.1:{web.port}/second"
    other = {"kind": "webhook", "address": address, "digest": True, "groups": ["line-2"]}
    first = {"kind": "webhook", "address": f"http://127.0.0.1:{web.port}/first", "digest": True}
    fleet = make(targets={"first": first, "second": other})
    wide = Window(NIGHT - timedelta(days=4), NIGHT + timedelta(days=2))  # as a night looks back
    store(fleet, ("a", 3, 5, 4.2), ("c", 3, 5, 2.0))
    after_nights(fleet, wide, NIGHT.date(), NOW)
    store(fleet, ("a", 3, 5, 4.2), ("c", 3, 5, 2.0), ("b", 30, 31, 3.0))
    after_nights(fleet, wide, NIGHT.date(), NOW)  # a rerun that found more: it is in the next digest
    next_day = NIGHT + timedelta(days=1)
    after_nights(fleet, wide, next_day.date(), NOW + timedelta(days=1))
    told = [(path, m["text"].split(",")[0]) for path, m in zip(web.paths, web.messages, strict=True)]
    assert sorted(told) == [("/first", "a"), ("/first", "b"), ("/second", "c")]
    assert web.messages[0]["title"] == "plant: 2 incidents on 2026-11-17"


def test_an_incident_that_was_over_is_told_again_when_late_data_makes_it_a_step_worse(make, web):
    fleet = make()
    store(fleet, ("a", 3, 5, 2.2))
    run(fleet)
    store(fleet, ("a", 3, 6, 2.9))
    run(fleet)
    store(fleet, ("a", 3, 6, 5.1))
    run(fleet)
    assert [m["severity"] for m in web.messages] == [2.2, 5.1]


def test_the_end_is_told_of_an_incident_that_became_less_severe(make, web):
    fleet = make()
    store(fleet, ("a", 20, 23.9, 4.1))
    run(fleet)
    store(fleet, ("a", 20, 26, 2.0))
    run(fleet, 1)
    run(fleet, 1)
    assert [m["state"] for m in web.messages] == ["open", "ended"]


def test_a_message_that_a_target_refuses_does_not_hold_up_the_others(make, web):
    fleet = make(retries=2)
    web.unwanted = "k1"
    for key in ("k1", "k2"):
        offer(fleet.settings, Message(key, About.FAILURE, key), NOW)
    waits = []
    count, notes = deliver_waiting(fleet.settings, NOW, waits.append)
    assert (count, waits) == (1, []) and "HTTP 422" in notes[0]
    assert [m["title"] for m in web.messages] == ["k2"]


def test_what_was_said_before_is_read_once_however_many_incidents_there_are(make, web, monkeypatch):
    fleet = make()
    store(fleet, *(("abc"[n % 3], 2 * n, 2 * n + 0.5, 2.0) for n in range(12)))
    run(fleet)
    reads = []
    read = SentStore._read
    monkeypatch.setattr(SentStore, "_read", lambda self, key: reads.append(key) or read(self, key))
    run(fleet)
    assert len(web.messages) == len(reads) == 12


def test_a_silent_sensor_is_told_as_such(make, web):
    fleet = make({"about": ["silence"], "severity": 5.0})
    store(fleet, ("a", 3, 23.9, 1.0, "silent"), ("c", 3, 5, 9.0))
    run(fleet)
    (message,) = web.messages
    assert message["title"] == "plant: a, silent since 2026-11-17 04:00"


def test_models_that_wait_are_told_once(make, web):
    fleet = make()
    outcomes = [
        ok("a", "version 3 waits for a reviewer: not worse", version=3),
        ok("b", "version 2 is champion"),
    ]
    tell_reviews(fleet.settings, outcomes, NOW)
    tell_reviews(fleet.settings, outcomes, NOW)
    (message,) = web.messages
    assert message["title"] == "plant: 1 model wait for a reviewer"
    assert review_message("plant", outcomes[1:]) is None


def test_a_run_that_failed_is_told_by_its_name(make, web, tmp_path):
    from types import SimpleNamespace as Made

    from flows.settings.template import render

    path = tmp_path / "fleet.toml"
    path.write_text(render(make().settings))
    run_ = Made(parameters={"fleet_file": str(path)}, name="plant: score 2026-11-17", deployment_id="d")
    for _ in range(2):
        tell_failure(Made(name="score"), run_, Made(message="12 of 20 sensors failed"))
    (message,) = web.messages
    assert message["title"] == "plant: score 2026-11-17 failed" and "12 of 20" in message["text"]
    by_hand = Made(parameters=run_.parameters, name="plant: score 2030-01-01", deployment_id=None)
    tell_failure(Made(name="score"), by_hand, Made(message="ConfigError: no such day"))
    assert len(web.messages) == 1


def test_a_mail_is_one_mail(make, monkeypatch):
    with smtp_receiver() as mails:
        address = f"mailto://127.0.0.1:{mails.port}?from=p@plant.example&to=o@plant.example&mode=insecure"
        monkeypatch.setenv("PLANT_MAIL", address)
        fleet = make({"kind": "apprise", "address": "variable:PLANT_MAIL"})
        store(fleet, ("a", 3, 5, 4.2), ("b", 4, 6, 2.0))
        run(fleet)
        run(fleet)
    assert len(mails.messages) == 1 and "Subject: plant: line-1, severity 4.2" in mails.messages[0]


def test_an_address_that_is_not_where_the_file_says_is_a_note_without_it(make):
    fleet = make({"address": "variable:NO_SUCH_VARIABLE"})
    store(fleet, ("a", 3, 5, 4.2))
    (note,) = run(fleet)
    assert "the variable NO_SUCH_VARIABLE is not set" in note


@pytest.mark.parametrize(
    "address",
    [
        "http://user:secret-word@host/",
        "https://host/?token=secret-word",
        "mailto://secret-word@host",
        "secret-word",
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(tmp_path, address):
    target = {"kind": "webhook", "address": address}
    with pytest.raises(ConfigError, match="variable:NAME") as error:
        Settings.from_dict({"notify": {"targets": {"x": target}}, "folder": tmp_path})
    assert "secret-word" not in str(error.value)


SECRET_PATHS = [
    "https://hooks.slack.com/services/T000/B000/XXXX",
    "https://discord.com/api/webhooks/1234/word",
    "https://plant.webhook.office.com/webhookb2/word",
    "https://chat.googleapis.com/v1/spaces/AAAA/messages",
    "http://10.0.0.5:8080/hooks/Zk3vR9qLx2Wm8TbY",
    "https://hooks.plant.example/in/550e8400-e29b-41d4-a716-446655440000",
    "https://hooks.plant.example/d41d8cd98f00b204e9800998ecf8427e/post",
    "https://hooks.plant.example/AERylZ_uewzpDx-8fcweHQ",
    "https://hooks.plant.example/Zk3vR9qLx2%57m8TbY",
    "https://hooks.plant.example/post#word",
]
PLAIN_PATHS = [
    "http://alertmanager:9093",
    "http://10.0.0.5:8080/",
    "https://hooks.plant.example/api/v2/incidents",
    "https://hooks.plant.example/plant-7/line-3-station-12/incident-webhook-v2",
    "https://hooks.plant.example/IncidentWebhookReceiver",
    "https://hooks.plant.example/2026-11-20T14-30-00/in",
    "https://slack.com.plant.example/in",
]


@pytest.mark.parametrize("address", SECRET_PATHS)
@pytest.mark.parametrize("kind", ["webhook", "alertmanager"])
def test_an_address_with_a_secret_in_its_path_is_refused_and_not_repeated(tmp_path, kind, address):
    path = tmp_path / "fleet.toml"
    path.write_text(f'[notify.targets.hook]\nkind = "{kind}"\naddress = "{address}"\n')
    with pytest.raises(ConfigError, match="variable:NAME") as wrong:
        Settings.load(path)
    assert "notify.targets.hook" in str(wrong.value) and "block:NAME" in str(wrong.value)
    assert address.rpartition("/")[2] not in str(wrong.value)


@pytest.mark.parametrize("address", PLAIN_PATHS)
def test_an_address_with_a_plain_path_may_stand_in_the_file(address):
    assert TargetSettings(kind="webhook", address=address).address == address


def test_a_secret_block_of_prefect_holds_an_address():
    from prefect.blocks.system import Secret

    rule = TargetSettings(kind="webhook", address="block:plant-hook")
    with prefect_test_harness(server_startup_timeout=120):
        with pytest.raises(ConfigError, match="plant-hook"):
            address_of("hook", rule)
        Secret(value="http://127.0.0.1:1/word").save("plant-hook")
        assert address_of("hook", rule) == "http://127.0.0.1:1/word"


def test_paano_notify_test_and_send(make, web, tmp_path):
    from flows.settings.template import render

    fleet = make()
    path = tmp_path / "fleet.toml"
    path.write_text(render(fleet.settings))
    words = ["--file", str(path), "--json"]
    assert json.loads(CliRunner().invoke(app, ["notify", "test", *words]).stdout) == {"hook": "delivered"}
    offer(fleet.settings, Message("k", About.FAILURE, "x"), NOW)
    assert json.loads(CliRunner().invoke(app, ["notify", "send", *words]).stdout)["sent"] == 1
    assert [m["title"] for m in web.messages] == ["plant: a test message of paano", "x"]
    web.refuse = True
    down = CliRunner().invoke(app, ["notify", "test", *words])
    assert down.exit_code == 1 and "HTTP 503" in down.output


def test_a_damaged_calendar_is_in_the_notes_and_the_incident_is_told(make, web, tmp_path):
    (tmp_path / "calendar.csv").write_text(
        "sensor,start,end,what\n*,2026-11-17,2026-11-18,mute\nx,?,?,mute\n"
    )
    fleet = make()
    store(fleet, ("a", 3, 5, 4.2))
    (note,) = run(fleet)
    assert note.startswith("nothing was muted, because the calendar cannot be read:") and "row 2" in note
    assert len(web.messages) == 1


def test_a_damaged_record_of_messages_is_a_note_and_the_night_goes_on(make, tmp_path):
    fleet = make()
    store(fleet, ("a", 3, 5, 4.2))
    place = tmp_path / "sent" / "waiting" / "hook"
    place.mkdir(parents=True)
    (place / "x.json").write_text("?")
    (note,) = run(fleet)
    assert "x.json" in note
