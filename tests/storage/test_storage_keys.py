import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paano.errors import ConfigError
from storage.history.paths import folder_of, sensor_of
from storage.keys import LONGEST, decode_id, encode_id, is_shortened, model_name, shard_of
from storage.objects.store import check_key

HOSTILE = [
    *(
        "../../x",
        "/etc/passwd",
        ".",
        "..",
        "...",
        "a/b",
        "a\\b",
        "a b",
        "",
        "ünï çödé",
        "传感器",
        "a~2Fb",
        "~",
    ),
    *("%2e%2e", "x" * 300, "é" * 300, "a\0b", "a\nb", "'; DROP TABLE x --", "{sensor}", "CON", "a.b.c"),
    *(".hidden", "a=b"),
]
ids = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60) | st.sampled_from(
    [h for h in HOSTILE if h]
)


@given(ids)
def test_an_encoded_id_is_one_harmless_path_component(sensor):
    name = encode_id(sensor)
    assert re.fullmatch(r"[A-Za-z0-9_.~-]+", name)
    assert not name.startswith(".") and ".." not in name and len(name) <= LONGEST
    check_key(f"a/{name}/b")


@given(ids)
def test_an_id_comes_back_from_its_encoded_form(sensor):
    name = encode_id(sensor)
    if not is_shortened(name):
        assert decode_id(name) == sensor


@given(ids, ids)
def test_different_ids_have_different_names(one, other):
    assert (encode_id(one) == encode_id(other)) == (one == other)
    assert (folder_of(one) == folder_of(other)) == (one == other)


@given(ids)
def test_a_folder_of_a_sensor_never_leaves_its_root_and_leads_back_to_the_sensor(sensor):
    folder = folder_of(sensor)
    check_key(f"history/{folder}/x.parquet")
    assert "/" not in folder
    if not is_shortened(folder):
        assert sensor_of(folder) == sensor


@pytest.mark.parametrize("long", ["x" * 300, "é" * 300, "site/" * 60])
def test_an_id_of_300_characters_fits_into_a_model_name_and_stays_distinct(long):
    name = model_name("a" * 63, long)
    assert len(name) <= 256
    assert name != model_name("a" * 63, long + "!")
    with pytest.raises(ConfigError, match=re.escape("paano.sensor")):
        decode_id(encode_id(long))


@pytest.mark.parametrize("empty", ["", None, 7])
def test_an_id_that_is_no_text_is_refused(empty):
    with pytest.raises(ConfigError, match="sensor id"):
        encode_id(empty)


@pytest.mark.parametrize("foreign", ["a~zz", "~", "a~2", "a~41", "~FF", "a/b"])
def test_a_name_we_never_made_is_not_decoded(foreign):
    with pytest.raises(ConfigError):
        decode_id(foreign)


@pytest.mark.parametrize("fleet", ["", "a.b", "a/b", "-x", "x" * 64, "ü"])
def test_a_fleet_name_that_could_be_confused_is_refused(fleet):
    with pytest.raises(ConfigError, match=r"fleet\.name"):
        model_name(fleet, "s")


def test_the_shard_of_a_sensor_never_changes():
    # The sixteenth hexadecimal digit that `sha256sum` prints: another one would move every stored row.
    assert [shard_of(s, 16) for s in ("pump-17", "传感器", "../../x")] == [0x2, 0x2, 0xE]
