"""The paper's own figures, to be shown beside ours and never mixed with them.

They are means over ten runs on the *evaluation* split of TSB-AD and stand in published.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

UNIVARIATE, MULTIVARIATE = "TSB-AD-U", "TSB-AD-M"


@dataclass(frozen=True)
class Collection:
    """One half of the benchmark as published: figures by subset, overall, and of the next best method."""

    subsets: dict[str, tuple[int, dict[str, float]]]  # number of series, measures
    overall: dict[str, float]
    next_best: dict[str, tuple[float, str]]  # by measure: value, method


@cache
def collections() -> dict[str, Collection]:
    """The published figures, from published.toml beside this file."""
    figures = tomllib.loads(files("flows.evaluation").joinpath("published.toml").read_text(encoding="utf-8"))
    columns: list[str] = figures.pop("columns")
    return {
        name: Collection(
            subsets={
                subset: (int(numbers[0]), dict(zip(columns, numbers[1:], strict=True)))
                for subset, numbers in half["subsets"].items()
            },
            overall=dict(zip(columns, half["overall"], strict=True)),
            next_best={
                column: (best["value"], best["method"])
                for column, best in zip(columns, half["next_best"], strict=True)
            },
        )
        for name, half in figures.items()
    }


def collection_of(channels: int) -> str:
    """The half of the benchmark that a series belongs to."""
    return UNIVARIATE if channels == 1 else MULTIVARIATE


def of_subset(collection: str, subset: str) -> dict[str, float] | None:
    """The published figures of a subset, or None where the paper has none."""
    found = collections()[collection].subsets.get(subset)
    return dict(found[1]) if found else None


def series_of(collection: str, subset: str | None = None) -> int:
    """How many series the published figures of a subset, or of a whole collection, are the mean of."""
    subsets = collections()[collection].subsets
    return subsets[subset][0] if subset is not None else sum(count for count, _ in subsets.values())


def overall(collection: str) -> dict[str, float]:
    """The published figures of a whole collection."""
    return dict(collections()[collection].overall)


def next_best(collection: str) -> dict[str, tuple[float, str]]:
    """The best of the other methods, for each measure on its own."""
    return dict(collections()[collection].next_best)


def same_subsets(collection: str, subsets: Iterable[str]) -> dict[str, float] | None:
    """The published figures averaged over `subsets`, one entry for each of our files.

    So a mean over our files stands beside a mean with the same weights. None unless every one is published.
    """
    figures = [of_subset(collection, subset) for subset in subsets]
    known = [each for each in figures if each]
    if not known or len(known) < len(figures):
        return None
    return {name: sum(each[name] for each in known) / len(known) for name in known[0]}
