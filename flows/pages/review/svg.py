"""Small figures as SVG: lines, areas, bars and dots on two axes. Python scales, a template draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

WIDTH, HEIGHT = 560.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 14.0, 42.0
Scale = Callable[[np.ndarray], np.ndarray]
MOST_POINTS = 700  # of a line; more cannot be seen
LONGEST_KEY = 40  # characters of a name in a legend


@dataclass(frozen=True)
class Line:
    """Values over x; NaN breaks the line. `ink` is a name of base.css without the dashes."""

    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    ink: str
    label: str = ""
    dash: bool = False
    width: float = 1.4


@dataclass(frozen=True)
class Area:
    """What lies between two lines."""

    x: Sequence[float] | np.ndarray
    low: Sequence[float] | np.ndarray
    high: Sequence[float] | np.ndarray
    ink: str
    label: str = ""


@dataclass(frozen=True)
class Dots:
    """Points."""

    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    ink: str
    label: str = ""
    size: float = 2.0


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, one of each set for every name."""

    names: Sequence[str]
    values: Sequence[float]
    ink: str
    label: str = ""


@dataclass(frozen=True)
class Shape:
    """What the template draws: a path, a rectangle or a dot, in pixels."""

    kind: str
    ink: str
    path: str = ""
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    dash: bool = False


@dataclass(frozen=True)
class Figure:
    """A picture with axes, ready for the template."""

    title: str
    shapes: list[Shape]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    x_label: str = ""
    y_label: str = ""
    legend: list[tuple[str, str, bool]] = field(default_factory=list)  # ink, text, dashed
    height: float = HEIGHT
    width: float = WIDTH
    left: float = LEFT

    @property
    def keys(self) -> list[tuple[float, float, str, str, bool]]:
        """The legend: place, ink, text and dashes of every entry, in as many lines as they need."""
        x, y, placed = self.left, self.height + 8, []
        for ink, text, dashed in self.legend:
            name = text if len(text) <= LONGEST_KEY else text[: LONGEST_KEY - 1] + "…"
            wide = 34 + 6.6 * len(name)
            if x > self.left and x + wide > self.width:
                x, y = self.left, y + 17
            placed.append((x, y, ink, name, dashed))
            x += wide
        return placed

    @property
    def whole(self) -> float:
        """The height with the legend."""
        return max((y for _, y, *_ in self.keys), default=self.height - 12) + 12


def plot(
    title: str,
    *parts: Line | Area | Dots,
    x_label: str = "",
    y_label: str = "",
    log: bool = False,
    x_ticks: Sequence[tuple[float, str]] | None = None,
    y_ticks: Sequence[tuple[float, str]] | None = None,
    bare: bool = False,
) -> Figure:
    """Lines, areas and dots on common axes.

    Args:
        title: what the figure says.
        parts: what is drawn, the first at the bottom.
        x_label: text of the x axis.
        y_label: text of the y axis.
        log: a logarithmic y axis.
        x_ticks: places and texts of the x axis instead of numbers.
        y_ticks: the same of the y axis.
        bare: no numbers on the axes.
    """
    bend = (lambda v: np.log10(np.where(v > 0, v, np.nan))) if log else (lambda v: v)
    xs = np.concatenate([np.asarray(part.x, float) for part in parts] or [np.zeros(1)])
    ys = np.concatenate([bend(np.asarray(values, float)) for part in parts for values in heights(part)])
    x_low, x_high = span(xs)
    y_low, y_high = span(ys)
    room = 0.05 * (y_high - y_low)
    y_low, y_high = y_low - room, y_high + room

    def across(x: np.ndarray) -> np.ndarray:
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def down(y: np.ndarray) -> np.ndarray:
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    shapes = [shape for part in parts for shape in shapes_of(part, across, lambda values: down(bend(values)))]
    ticks = [] if bare else numbers(y_low, y_high)
    return Figure(
        title,
        shapes,
        [(float(across(np.array(place))), text) for place, text in x_ticks or ()]
        or ([] if bare else [(float(across(np.array(v))), short(v)) for v in numbers(x_low, x_high)]),
        [(float(down(np.array(place))), text) for place, text in y_ticks]
        if y_ticks is not None
        else [(float(down(np.array(v))), short(10**v if log else v)) for v in ticks],
        x_label,
        y_label,
        [(part.ink, part.label, isinstance(part, Line) and part.dash) for part in parts if part.label],
    )


def bars(title: str, *parts: Bars, x_label: str = "", high: float = 1.0) -> Figure:
    """Sets of horizontal bars beside each other, from 0 to `high`."""
    names = list(parts[0].names)
    each, left = 22.0, 110.0
    height = TOP + BOTTOM + each * max(1, len(names))
    wide = (WIDTH - left - RIGHT) / high
    thick = (each - 6) / len(parts)
    shapes = [
        Shape(
            "rect",
            part.ink,
            x=left,
            y=TOP + each * row + 3 + thick * place,
            width=max(0.0, value) * wide,
            height=thick,
        )
        for place, part in enumerate(parts)
        for row, value in enumerate(part.values)
        if math.isfinite(value)
    ]
    return Figure(
        title,
        shapes,
        [(left + wide * v, short(v)) for v in numbers(0, high)],
        [(TOP + each * (row + 0.5), name.replace("_", " ")) for row, name in enumerate(names)],
        x_label,
        "",
        [(part.ink, part.label, False) for part in parts if part.label],
        height,
        left=left,
    )


def heights(part: Line | Area | Dots) -> list[Sequence[float] | np.ndarray]:
    return [part.low, part.high] if isinstance(part, Area) else [part.y]


def shapes_of(part: Line | Area | Dots, across: Scale, down: Scale) -> list[Shape]:
    """A part in pixels."""
    x = across(np.asarray(part.x, float))
    if isinstance(part, Dots):
        y = down(np.asarray(part.y, float))
        return [
            Shape("dot", part.ink, x=float(a), y=float(b), width=part.size)
            for a, b in zip(x, y, strict=True)
            if math.isfinite(b)
        ]
    if isinstance(part, Area):
        low, high = down(np.asarray(part.low, float)), down(np.asarray(part.high, float))
        known = np.isfinite(low) & np.isfinite(high)
        there = [
            *zip(x[known], high[known], strict=True),
            *zip(x[known][::-1], low[known][::-1], strict=True),
        ]
        path = "L".join(f"{a:.1f},{b:.1f}" for a, b in there)
        return [Shape("area", part.ink, path=f"M{path}Z")] if there else []
    y = down(np.asarray(part.y, float))
    keep = thinned(np.asarray(y, float))
    text, on = "", False
    for a, b in zip(x[keep], y[keep], strict=True):
        if math.isfinite(b):
            text += f"{'L' if on else 'M'}{a:.1f},{b:.1f}"
        on = math.isfinite(b)
    return [Shape("line", part.ink, path=text, width=part.width, dash=part.dash)]


def thinned(values: np.ndarray) -> np.ndarray:
    from flows.pages.series import kept_rows

    return kept_rows(values, MOST_POINTS // 2)


LARGEST = 1e300  # of an axis: its length is a number too


def span(values: np.ndarray) -> tuple[float, float]:
    """The least and greatest number, apart from each other."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, high = (min(max(float(end), -LARGEST), LARGEST) for end in (known.min(), known.max()))
    room = max(0.5, 1e-6 * abs(high))  # half a unit is nothing beside a very large number
    return (low, high) if high > low else (low - room, high + room)


def numbers(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about `count`."""
    raw = (high - low) / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= raw)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    return f"{value:.3g}"
