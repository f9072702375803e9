"""Names of things: object keys, shards, model names. Sensor ids come from outside and may be hostile.

`encode_id` turns any non-empty id into a name that is safe as one path component, as an object key and in an
MLflow model name. Letters, digits, `_`, `-` and single inner dots stay; every other byte of the UTF-8 text
becomes `~XX`. An id whose encoded form would be longer than LONGEST is cut and ends in `~~` and a hash: this
name cannot be decoded by itself, so the whole id is kept beside it (the tag `paano.sensor`) and checked.
"""

from __future__ import annotations

import hashlib
import re
from datetime import date

from paano.errors import ConfigError

LONGEST = 150  # MLflow holds 256 characters of a name and 500 of a source, both with the fleet in them
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
_SAFE_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")
_HASH_MARK = "~~"
FLEET_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"  # for the fleet file too


def encode_id(sensor: str) -> str:
    """A safe name for `sensor`: the same for the same id, different for different ids."""
    if not isinstance(sensor, str) or not sensor:
        raise ConfigError(f"a sensor id must be a text that is not empty, not {sensor!r}")
    if len(sensor) <= LONGEST and _PLAIN.fullmatch(sensor):
        return sensor
    try:
        raw = sensor.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"sensor id {sensor!r} is not valid Unicode") from error
    parts = [chr(b) if b in _SAFE_BYTES else f"~{b:02X}" for b in raw]
    for n, part in enumerate(parts):  # "." and ".." mean something to a file system, a leading dot hides
        if part == "." and (n == 0 or raw[n - 1] == ord(".")):
            parts[n] = "~2E"
    name = "".join(parts)
    if len(name) <= LONGEST:
        return name
    # A whole number of parts, so that the readable beginning never ends inside an escape.
    mark = _HASH_MARK + hashlib.sha256(raw).hexdigest()[:32]
    kept, room = "", LONGEST - len(mark)
    for part in parts:
        if len(kept) + len(part) > room:
            break
        kept += part
    return kept + mark


def decode_id(name: str) -> str:
    """The id that `encode_id` was given; ConfigError for a shortened or foreign name."""
    if is_shortened(name):
        raise ConfigError(f"{name!r} is a shortened sensor id: the whole id is in the tag paano.sensor")
    raw = bytearray()
    position = 0
    while position < len(name):
        if name[position] == "~":
            digits = name[position + 1 : position + 3]
            if not re.fullmatch(r"[0-9A-F]{2}", digits):
                raise ConfigError(f"{name!r} is not an encoded sensor id")
            raw.append(int(digits, 16))
            position += 3
        else:
            raw += name[position].encode()
            position += 1
    try:
        sensor = raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name!r} is not an encoded sensor id") from error
    if not sensor or encode_id(sensor) != name:
        raise ConfigError(f"{name!r} is not an encoded sensor id")
    return sensor


def is_shortened(name: str) -> bool:
    """Whether `name` stands for an id too long to be decoded from it."""
    return _HASH_MARK in name


def shard_of(sensor: str, shards: int) -> int:
    """The shard of a sensor: stable over machines, runs and releases."""
    digest = hashlib.sha256(sensor.encode()).digest()
    return int.from_bytes(digest[:8], "big") % shards


def check_fleet(fleet: str) -> str:
    """`fleet`, if it can be the first part of a model name."""
    if not isinstance(fleet, str) or not re.fullmatch(FLEET_NAME, fleet):
        raise ConfigError(
            f"fleet.name = {fleet!r} must be 1 to 63 letters, digits, - or _, starting with a letter or digit"
        )
    return fleet


def model_name(fleet: str, sensor: str) -> str:
    """The registered model of a sensor: `{fleet}.{encoded sensor}`. A fleet's name has no dot."""
    return f"{check_fleet(fleet)}.{encode_id(sensor)}"


def date_prefix(day: date) -> str:
    return f"date={day.isoformat()}"


def shard_key(day: date, shard: int) -> str:
    """The object of one (date, shard), relative to its store."""
    return f"{date_prefix(day)}/shard-{shard:04d}.parquet"


def score_key(day: date, shard: int) -> str:
    return shard_key(day, shard)


def event_key(day: date, shard: int) -> str:
    return shard_key(day, shard)
