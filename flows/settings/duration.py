"""A length of time in the fleet file, as `storage.duration` reads and writes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from storage.duration import parse, spell

__all__ = ["Duration", "parse", "spell"]

Duration = Annotated[
    timedelta, BeforeValidator(parse), PlainSerializer(spell, return_type=str, when_used="always")
]
