"""The settings of a model: one frozen object, checked once, with a digest.

Every sensitivity of the paper's appendix D is a setting here; defaults of the dataclass are the paper's
(preset `paper`). Names are the ones of the fleet file's `[model]` table and of `--set model.NAME=VALUE`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from paano.errors import ConfigError

# Settings with a closed list of values.
CHOICES: dict[str, tuple[Any, ...]] = {
    "depth": (3, 4, 5),
    "contrast": ("triplet", "infonce", "none"),
    "negative": ("farthest", "median", "closest", "random"),
    "pretext_schedule": ("linear", "constant"),
    "precision": ("float32", "mixed"),
    "level": ("none", "tail"),
    "next_value": ("none", "ridge"),
    "plain": ("none", "nearest"),
    "still": ("measured", "counted"),
    "unit": ("raw", "typical"),
}

# Settings with a range: (lowest, highest), both allowed.
RANGES: dict[str, tuple[float, float]] = {
    "patch": (4, 4096),
    "max_gap": (0, 10_000),
    "width": (0.0625, 4.0),
    "iterations": (0, 1_000_000),
    "minibatch": (2, 65_536),
    "learning_rate": (1e-8, 1.0),
    "weight_decay": (0.0, 1.0),
    "shift": (1, 1024),
    "margin": (0.0, 2.0),
    "contrast_weight": (0.0, 1e3),
    "temperature": (1e-3, 1e3),
    "pretext_weight": (0.0, 1e3),
    "pretext_ratio": (0.0, 1.0),
    "pretext_negatives": (1, 1024),
    "bank_share": (1e-6, 1.0),
    "bank_cap": (1, 1_000_000),
    "neighbours": (1, 1024),
    "stride": (1, 4096),
    "chunk": (0, 1_048_576),
    "normal_quantile": (0.0, 1.0),
    "keep": (0, 1_000_000),
    "seed": (0, 2**63 - 1),
}

# Settings that came later, with the value that stands for what was done before: at it they are no part of the
# digest, so models written before have the digest they were written with.
LATER: dict[str, Any] = {"keep": 0, "next_value": "none", "plain": "none", "still": "measured"}


@dataclass(frozen=True, kw_only=True)
class PaAnoConfig:
    """What a model is made of. Equal settings have equal digests."""

    # series and patches
    patch: int = 96  # w: points of a patch
    max_gap: int = 3  # the longest hole, in points, that is bridged by a straight line
    # Of the normalisation's eps: the numbers as they are (published), or each channel's `typical` patch
    # deviation, so that volts and millivolts give the same model.
    unit: str = "raw"  # what a patch's spread is measured in: raw numbers, or the channel's typical spread

    # encoder (appendix D.1)
    width: float = 1.0  # multiplies the channels 128, 256, 128, 64
    depth: int = 4  # convolutions

    # training (appendix B.1, D.2, D.6)
    iterations: int = 100  # 0 leaves the encoder as it was drawn
    minibatch: int = 512  # M
    learning_rate: float = 1e-4  # of AdamW at the start; it falls to a tenth along a cosine
    weight_decay: float = 1e-4  # of AdamW
    contrast: str = "triplet"  # the loss that sets patches apart
    contrast_weight: float = 0.1  # the paper divides the triplet loss by 10
    negative: str = "farthest"  # which patch of the minibatch the anchor is pushed away from
    shift: int = 2  # r: the positive is the anchor moved by 1 to r points
    margin: float = 0.1  # δ
    temperature: float = 0.1  # of InfoNCE
    pretext_weight: float = 1.0  # λ at the start; 0 leaves the pretext loss out
    pretext_ratio: float = 0.2  # share of the iterations with a pretext loss
    pretext_schedule: str = "linear"  # its weight falls to 0, or stays, over that share
    pretext_negatives: int = 5  # U

    # memory bank and scores (appendix D.3, D.4)
    bank_share: float = 0.1  # of the training patches
    # And never more vectors than this. Measured at half width: with 5,000 a look-up costs a tenth of encoding
    # the patch, with 50,000 one and a half times as much; 1 % of the patches is within 0.1 points of VUS-PR
    # of 10 % in the paper's own table.
    bank_cap: int = 5_000  # most vectors in the bank
    neighbours: int = 3  # k
    stride: int = 1  # score every stride-th patch
    normal_quantile: float = 0.99  # of training patch scores: at most this is judged normal by `update`

    # beside the shape, which is all the paper has (paano/scoring/level.py)
    level: str = "none"  # `tail` adds how far height and movement of the series are from all seen before

    next_value: str = "none"  # `ridge` adds how far each value is from what the values before it announced

    # of a channel that never moved in training (paano/scoring/still.py)
    still: str = "measured"  # `counted` bounds its surprise by the number of rows in which it stood still

    # what the model keeps to say when an event was and what should have been (paano/scoring/kept.py)
    keep: int = 0  # newest rows of the training series that the model keeps; 0: events keep the score's edges

    # beside the encoder's distance (paano/scoring/plain.py)
    plain: str = "none"  # `nearest` adds how far each patch itself is from the nearest of the rows kept

    # execution, as far as it decides the bits of the result
    chunk: int = 0  # patches encoded at once; 0 is what suits the device (64 fit the cache of a CPU)
    precision: str = "float32"  # `mixed` uses float16 on CUDA; elsewhere it changes nothing
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in _kinds().items():
            object.__setattr__(self, name, _typed(name, getattr(self, name), kind))
        if self.shift >= self.patch:
            raise ConfigError(f"model.shift = {self.shift} must be smaller than model.patch = {self.patch}")
        if self.stride > self.patch:
            raise ConfigError(
                f"model.stride = {self.stride} would leave points between patches uncovered; "
                f"use at most model.patch = {self.patch}"
            )
        if self.next_value != "none" and self.level == "none":
            raise ConfigError(
                f'model.next_value = "{self.next_value}" adds to the level, whose unit it shares; '
                'set model.level = "tail" too, or model.next_value = "none"'
            )
        if self.plain != "none" and (self.level == "none" or not self.keep):
            raise ConfigError(
                f'model.plain = "{self.plain}" compares with the rows that are kept and adds to the level; '
                'set model.keep above 0 and model.level = "tail" too, or model.plain = "none"'
            )
        if self.still != "measured" and self.level == "none":
            raise ConfigError(
                f'model.still = "{self.still}" bounds level and next value; '
                'set model.level = "tail" too, or model.still = "measured"'
            )
        if self.iterations and self.contrast == "none" and not (self.pretext_weight and self.pretext_ratio):
            raise ConfigError(
                'model.contrast = "none" without a pretext loss leaves nothing to train; '
                "set model.iterations = 0, or model.pretext_weight and model.pretext_ratio above 0"
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> PaAnoConfig:
        """The settings called `name`, with `changes` on top."""
        if name not in PRESETS:
            raise ConfigError(_unknown("preset", name, PRESETS))
        return cls.from_dict(_changed(PRESETS[name], changes))

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> PaAnoConfig:
        """Settings from a mapping; an unknown name is refused with the nearest known ones."""
        known = {field.name for field in dataclasses.fields(cls)}
        for name in settings:
            if name not in known:
                raise ConfigError(_unknown("setting", f"model.{name}", [f"model.{k}" for k in sorted(known)]))
        return cls(**settings)

    def replace(self, **changes: Any) -> PaAnoConfig:
        """The same settings but for `changes`."""
        return self.from_dict(_changed(self.to_dict(), changes))

    def to_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that stand for all settings."""
        settings = {k: v for k, v in self.to_dict().items() if k not in LATER or v != LATER[k]}
        text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def context(self) -> int:
        """Points needed before and after a window so that its scores do not depend on where it was cut."""
        return self.patch - 1 + self.max_gap + 1


KEEP = 16_384  # rows: 8 weeks of five minutes, 32 kB per channel

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"bank_cap": 1_000_000, "keep": KEEP},
    "light": {"width": 0.5, "minibatch": 128, "keep": KEEP},
    "untrained": {"width": 0.5, "iterations": 0, "keep": KEEP},
    # What paid on labelled series (benchmarks/ACCURACY.md): a short pretext training, the level, the surprise
    # of the next value, one neighbour, and the plain distance. Patches are measured in the channel's own
    # unit: in raw numbers a signal of a thousandth is smaller than eps.
    "default": {
        "unit": "typical",
        "width": 0.5,
        "minibatch": 128,
        "contrast": "none",
        "iterations": 20,
        "pretext_ratio": 1.0,
        "level": "tail",
        "next_value": "ridge",
        "neighbours": 1,
        "keep": KEEP,
        "plain": "nearest",
        "still": "counted",
    },
}


def _changed(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with `changes`; what needs a part that is turned off is off too, unless it is asked for."""
    implied = {}
    if changes.get("level") == "none":
        implied = {"next_value": "none", "plain": "none", "still": "measured"}
    elif changes.get("keep") == 0:
        implied = {"plain": "none"}
    return {**settings, **implied, **changes}


@functools.cache
def _kinds() -> dict[str, type]:
    return get_type_hints(PaAnoConfig)


def _typed(name: str, given: Any, kind: type) -> Any:
    """`given` as `kind`, in its range and list of values, or a ConfigError that says what is allowed."""
    value: Any = given
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"model.{name} = {value!r} is not {_KIND_NAMES[kind]}")
    if name in CHOICES and value not in CHOICES[name]:
        allowed = ", ".join(json.dumps(choice) for choice in CHOICES[name])
        raise ConfigError(f"model.{name} = {value!r} is not one of {allowed}")
    if name in RANGES:
        low, high = RANGES[name]
        number: Any = value
        if not low <= number <= high:
            raise ConfigError(f"model.{name} = {value!r} is outside {low:g} to {high:g}")
    return value


_KIND_NAMES = {int: "a whole number", float: "a finite number", str: "a text", bool: "true or false"}


def _unknown(what: str, name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown {what} {name!r}{hint} Allowed: {', '.join(sorted(known))}"
