"""Figures on standard output, for benchmarks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def show(figures: Mapping[str, Any], as_json: bool) -> None:
    """One JSON object, or a line for each figure."""
    if as_json:
        print(json.dumps(figures))
        return
    width = max(map(len, figures), default=0)
    for name, value in figures.items():
        print(f"{name:{width}}  {value}")
