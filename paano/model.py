"""PaAno: the model a person uses. `PaAno(config).fit(X)`, `.score(X)`, `.update(X)`, `.save(folder)`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paano import artifact
from paano.bank import Bank, bank_size, build_bank, push
from paano.calibrate import Calibration, fit_calibration
from paano.config import PaAnoConfig
from paano.device import default_chunk, home_of, in_slices, keep_freed_memory, mixed, pick_device
from paano.encoder import Encoder, FoldedEncoder, embedding_size, fold
from paano.errors import ArtifactError, NotFitted, SeriesError, SeriesTooShort
from paano.level import Level, fit_level
from paano.patches import GATHER, take_patches, typical_deviation
from paano.score import nearest_distance, spread, strided
from paano.series import Series, read_series, valid_starts
from paano.train import Material, train


@dataclass(frozen=True)
class Detection:
    """One entry per row of the series."""

    score: np.ndarray  # float32 [N], NaN where there is none
    status: np.ndarray  # str [N]: ok, provisional (more patches may come), no_data
    coverage: np.ndarray  # uint16 [N]: patches that were averaged
    shape: np.ndarray  # float32 [N]: the part of the score that patches gave
    level: np.ndarray  # float32 [N]: the part that the level of the series gave; NaN without one


class PaAno:
    """An anomaly model of one series. `device` is where it runs, not a part of it.

    >>> model = PaAno(PaAnoConfig.preset("light")).fit(history)  # (N,) or (N, C), NaN = missing
    >>> model.score(recent)  # float32 (N,), NaN where there is none
    """

    def __init__(self, config: PaAnoConfig | None = None, device: str = "auto"):
        self.config = config if config is not None else PaAnoConfig.preset("default")
        self.device = pick_device(device)
        if self.device.type == "cpu":
            keep_freed_memory()
        self.facts: dict[str, Any] = {}
        self.losses: list[dict[str, float]] = []
        self.seconds: dict[str, float] = {}
        self.level: Level | None = None
        self._weights: dict[str, Tensor] | None = None  # of the encoder
        self._training_scores: np.ndarray | None = None

    # -- fitting ---------------------------------------------------------------------------------------------

    def fit(self, X: Any) -> PaAno:
        """Train the encoder on `X`, build the bank and calibrate. Fitting again starts anew."""
        series, material = self.prepare(X)
        began = time.perf_counter()
        if self.config.iterations:
            ((encoder, losses),) = train([material], self.config)
        else:
            encoder, losses = self._draw_encoder(material), []
        return self.finish(series, material, encoder, losses, time.perf_counter() - began)

    def prepare(self, X: Any) -> tuple[Series, Material]:
        """The first half of `fit`, up to training."""
        series = read_series(X, self.config.max_gap)
        starts = valid_starts(series.usable, self.config.patch)
        if len(starts) == 0:
            raise SeriesTooShort(
                f"no whole patch: {len(series)} rows, {int(series.usable.sum())} of them usable, and a patch "
                f"needs {self.config.patch} in a row; widen the history, lower model.patch or raise "
                "model.max_gap"
            )
        values = self._tensor(series)
        unit = typical_deviation(values, starts, self.config)
        generator = torch.Generator().manual_seed(self.config.seed)
        return series, Material(values, starts, unit, generator, self.device)

    def finish(
        self,
        series: Series,
        material: Material,
        encoder: Encoder,
        losses: list[dict[str, float]],
        seconds: float,
    ) -> PaAno:
        """The second half of `fit`: bank and calibration for a trained encoder."""
        config, starts = self.config, material.starts
        self.losses, self.seconds, self.facts = losses, {"train": seconds}, {}
        self._set_encoder(encoder.weights(), material.unit, series.channels)

        began = time.perf_counter()
        embeddings = self._encode(material.values, starts)  # [n, D]
        size = bank_size(len(starts), config.bank_share, config.bank_cap)
        self.bank = build_bank(embeddings, starts, size, material.generator)
        self.seconds["bank"] = time.perf_counter() - began

        # A patch must not match itself or its neighbours: an exclusion zone of ±w around each.
        began = time.perf_counter()
        patch_scores = (
            nearest_distance(embeddings, self.bank, config.neighbours, starts=starts, exclude=config.patch)
            .cpu()
            .numpy()
        )
        there = patch_scores[~np.isnan(patch_scores)]
        self.normal_limit = float(np.quantile(there, config.normal_quantile)) if len(there) else 2.0
        scores, _ = spread(patch_scores, starts, len(series), config.patch)
        if config.level != "none":
            self.level, level = fit_level(series, config.patch, scores, config.normal_quantile)
            scores, *_ = self.level.combine(scores, level)
        self._training_scores = np.where(series.missing, np.nan, scores).astype(np.float32)
        self.calibration: Calibration = fit_calibration(self._training_scores, patch=config.patch)
        self.seconds["calibrate"] = time.perf_counter() - began
        return self

    def training_scores(self) -> np.ndarray:
        """float32 [N]: point scores of the training series with an exclusion zone of ±w around each patch."""
        if self._training_scores is None:
            raise NotFitted("training scores are there after fit(), not after load(); fit the model again")
        return self._training_scores.copy()

    # -- scoring ---------------------------------------------------------------------------------------------

    def score(self, X: Any, *, origin: int = 0) -> np.ndarray:
        """float32 [N]: the anomaly score of each row, NaN where there is none."""
        return self.detect(X, origin=origin).score

    def detect(self, X: Any, *, origin: int = 0) -> Detection:
        """Score, status and coverage of each row.

        `origin` matters only with model.stride above 1: the number of X's first row in the whole series.
        """
        series = self._read(X)
        rows, patch = len(series), self.config.patch
        starts = strided(valid_starts(series.usable, patch), self.config.stride, origin)
        embeddings = self._encode(self._tensor(series), starts)
        patch_scores = nearest_distance(embeddings, self.bank, self.config.neighbours).cpu().numpy()
        shape, coverage = spread(patch_scores, starts, rows, patch)
        score, level = shape, np.full(rows, np.nan)
        if self.level is not None:
            score, shape, level = self.level.combine(shape, self.level.score(series))

        nothing = series.missing | (coverage == 0)
        score, shape, level = (
            np.where(nothing, np.nan, part).astype(np.float32) for part in (score, shape, level)
        )
        coverage = np.where(nothing, 0, coverage).astype(np.uint16)
        status = np.full(rows, "ok", dtype="<U11")
        status[may_gain_patches(series, patch)] = "provisional"
        status[nothing] = "no_data"
        return Detection(score, status, coverage, shape, level)

    def embed(self, X: Any, starts: Any) -> np.ndarray:
        """float32 [n, D]: embeddings of the patches that start at `starts`; each must be whole."""
        series = self._read(X)
        starts = np.asarray(starts, dtype=np.int64).reshape(-1)
        bad = starts[~np.isin(starts, valid_starts(series.usable, self.config.patch))]
        if len(bad):
            raise SeriesError(f"no whole patch of {self.config.patch} rows starts at row {bad[0]}")
        return self._encode(self._tensor(series), starts).cpu().numpy()

    # -- the bank as a queue ---------------------------------------------------------------------------------

    def update(self, X: Any) -> PaAno:
        """Let the bank follow: patches of `X` judged normal go in, the oldest leave. The encoder stays.

        Normal is a score of at most the model.normal_quantile of training patch scores. As in building the
        bank, model.bank_share of the normal patches stand for all of them. A level learns from the rows of
        those patches that are no news to it.
        """
        series = self._read(X)
        starts = valid_starts(series.usable, self.config.patch)
        embeddings = self._encode(self._tensor(series), starts)
        scores = nearest_distance(embeddings, self.bank, self.config.neighbours)
        normal = scores <= self.normal_limit
        if not bool(normal.any()):
            return self
        embeddings, starts = embeddings[normal], starts[normal.cpu().numpy()]
        size = min(len(self.bank), bank_size(len(starts), self.config.bank_share, self.config.bank_cap))
        generator = torch.Generator().manual_seed(self.config.seed)
        self.bank = push(self.bank, build_bank(embeddings, starts, size, generator).vectors)
        if self.level is not None:
            _, covered = spread(np.zeros(len(starts)), starts, len(series), self.config.patch)
            self.level = self.level.update(series, covered > 0)
        return self

    # -- keeping ---------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike, facts: Mapping[str, Any] | None = None) -> None:
        """Write encoder.safetensors, bank.safetensors and model.json. `facts` is plain JSON."""
        self._check_fitted()
        if facts is not None:
            self.facts = dict(facts)
        encoder = {name: value.cpu().contiguous().numpy() for name, value in self._weights.items()}
        encoder["unit"] = self._unit.cpu().numpy()
        bank = {"vectors": self.bank.vectors.cpu().contiguous().numpy(), "position": self.bank.position}
        if self.level is not None:
            bank |= self.level.tensors()
        model = {
            "config": self.config.to_dict(),
            "config_digest": self.config.digest,
            "channels": self.channels,
            "bank_size": len(self.bank),
            "normal_limit": self.normal_limit,
            "level": None if self.level is None else self.level.numbers(),
            "calibration": self.calibration.to_dict(),
            "losses": self.losses,
            "facts": self.facts,
        }
        artifact.write(folder, encoder, bank, model)

    @classmethod
    def load(cls, folder: str | os.PathLike, device: str = "auto") -> PaAno:
        """A model as it was saved, or an ArtifactError if the files are not what they should be."""
        parts, weights, bank = artifact.read(folder)
        model = cls(parts["config"], device)
        try:
            model.calibration = Calibration.from_dict(parts["calibration"])
            if model.config.level != "none":
                model.level = Level.from_parts(model.config.patch, bank, parts["level"])
            model.normal_limit = float(parts["normal_limit"])
            model.losses, model.facts = [dict(step) for step in parts["losses"]], dict(parts["facts"])
        except (ArtifactError, KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{folder}: {artifact.MODEL} is damaged: {error!r}") from error
        tensors = {name: torch.from_numpy(value.copy()) for name, value in weights.items()}
        unit = tensors.pop("unit")
        on_device = {name: value.to(model.device) for name, value in tensors.items()}
        model._set_encoder(on_device, unit, parts["channels"])
        model.bank = Bank(
            torch.from_numpy(bank["vectors"].copy()).to(home_of(model.device)), bank["position"].copy()
        )
        return model

    # -- inside ----------------------------------------------------------------------------------------------

    def _draw_encoder(self, material: Material) -> Encoder:
        return Encoder(self.config, material.values.shape[1], material.generator).to(self.device).eval()

    def _set_encoder(self, weights: dict[str, Tensor], unit: Tensor, channels: int) -> None:
        self._weights, self._unit, self.channels = weights, unit, channels
        self._folded: FoldedEncoder = fold(weights)

    def _check_fitted(self) -> None:
        if self._weights is None:
            raise NotFitted("the model is not fitted; call fit() or load one")

    def _read(self, X: Any) -> Series:
        self._check_fitted()
        series = read_series(X, self.config.max_gap)
        if series.channels != self.channels:
            raise SeriesError(
                f"the series has {series.channels} channels, the model was fitted on {self.channels}"
            )
        return series

    def _tensor(self, series: Series) -> Tensor:
        return torch.from_numpy(series.values).to(home_of(self.device))

    def _encode(self, values: Tensor, starts: np.ndarray) -> Tensor:
        """float32 [n, D]: embeddings of the patches of `values` [N, C] at `starts` [n], a chunk at a time."""
        config = self.config
        out = torch.empty(len(starts), embedding_size(config), device=values.device)
        rows = torch.from_numpy(starts).to(values.device)
        unit = self._unit.to(values.device)
        chunk = config.chunk or default_chunk(self.device)
        chunk = max(1, min(chunk, GATHER // (config.patch * values.shape[1])))

        def encode(part: slice) -> None:
            with mixed(self.device, config.precision):
                patches = take_patches(values, rows[part], config.patch, unit).to(self.device)
                out[part] = self._folded(patches).to(values.device)

        in_slices(encode, len(starts), chunk)
        return out


def may_gain_patches(series: Series, patch: int) -> np.ndarray:
    """bool [N]: rows that a patch may still cover when more rows arrive at the end."""
    rows = len(series)
    broken = np.flatnonzero(~series.pending)
    after = broken[-1] + 1 if len(broken) else 0  # nothing before can change
    hole = np.flatnonzero(~series.usable[after:])  # at the end, short enough to be bridged by what comes
    whole = after + hole[0] if len(hole) else rows  # patches that end here exist already
    return np.arange(rows) >= max(after, whole - patch + 1)
