"""PaAno: the model a person uses. `PaAno(config).fit(X)`, `.score(X)`, `.update(X)`, `.save(folder)`."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paano import artifact
from paano.alarms.calibrate import Calibration
from paano.alarms.expected import Expected, expected
from paano.alarms.fit_calibration import fit_calibration
from paano.config import PaAnoConfig
from paano.device import data_device, default_chunk, in_slices, keep_freed_memory, mixed, pick_device
from paano.errors import ArtifactError, NotFitted, SeriesError, SeriesTooShort
from paano.estimator import Estimator, check_names, not_fitted
from paano.facts import ModelFacts
from paano.frames import Frame, read_frame
from paano.network.encoder import Encoder, FoldedEncoder, embedding_size, fold
from paano.network.remembered import Remembered
from paano.network.train import Losses, Material, read_losses, train
from paano.patches import GATHER, take_patches, typical_deviation
from paano.scoring.bank import Bank, bank_size, build_bank, join_bank, push
from paano.scoring.kept import Kept, keep_rows
from paano.scoring.level import Level, fit_level
from paano.scoring.next_value import NextValue, fit_next_value
from paano.scoring.plain import SHARE, Plain, fit_plain
from paano.scoring.shape import nearest_distance, spread, strided
from paano.scoring.still import still_rows
from paano.series import Series, read_series, valid_starts
from paano.status import Status

NEARLY_EQUAL = 1e-5  # cosine distance of embeddings that differ by rounding alone


@dataclass(frozen=True)
class Detection:
    """What a model found: one entry for each row of the series, in the same order."""

    score: np.ndarray  # float32 [N], NaN where there is none
    status: np.ndarray  # str [N]: ok, provisional (more patches may come), no_data
    coverage: np.ndarray  # uint16 [N]: patches that were averaged
    shape: np.ndarray  # float32 [N]: the part of the score that patches gave
    level: np.ndarray  # float32 [N]: the part that the level of the series gave; NaN without one
    next_value: np.ndarray  # float32 [N]: the part that the forecast of each value gave; NaN without one
    index: Any = None  # the time index of a pandas, polars or Arrow table; None for an array


class PaAno(Estimator):
    """An anomaly model of one series.

    >>> model = PaAno(PaAnoConfig.preset("light")).fit(history)  # (N,) or (N, C), NaN = missing
    >>> model.score(recent)  # float32 (N,), NaN where there is none

    A series is an array, a list, or a table of pandas, polars or Arrow with a column for each channel; rows
    are in order of time, one interval apart. The answer to a table keeps its time index (`paano.frames`).
    scikit-learn's names (`decision_function`, `predict`, `get_params` and so on) are in `paano.estimator`;
    `score` is the anomaly score of each row, higher for more anomalous rows.

    Args:
        config: the settings; the preset `default` unless given.
        device: where the model runs (`auto`, `cpu`, `cuda`, `cuda:1`, `mps`). It is not a part of the model.

    Attributes after `fit` or `load`:
        calibration: from scores to thresholds and severities.
        channels, n_features_in_: the number of channels.
        feature_names_in_: their names, if a table gave them.
        facts: what was stored beside the model; losses: of every training iteration.

    Raises:
        ConfigError: there is no such device.
    """

    def __init__(self, config: PaAnoConfig | None = None, device: str = "auto") -> None:
        self._given = {"config": config, "device": device}
        self.config = config if config is not None else PaAnoConfig.preset("default")
        self.device = pick_device(device)
        if self.device.type == "cpu":
            keep_freed_memory()
        self.facts = ModelFacts()
        self.losses: list[Losses] = []
        self.seconds: dict[str, float] = {}
        self.level: Level | None = None
        self.next_value: NextValue | None = None
        self.kept: Kept | None = None
        self.plain: Plain | None = None
        self._weights: dict[str, Tensor] | None = None  # of the encoder
        self._training_scores: np.ndarray | None = None
        self._remembered: Remembered | None = None

    # -- fitting ---------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> PaAno:
        """Train the encoder on `X`, build the bank and calibrate. Fitting again starts anew.

        Args:
            X: the training series, (N,) or (N, C); NaN and ±inf are missing values.
            y: not used; scikit-learn's tools pass it.

        Returns:
            The model itself.

        Raises:
            SeriesError: `X` is not a series of numbers.
            SeriesTooShort: it has too few whole patches.
        """
        series, material = self.prepare(X)
        began = time.perf_counter()
        if self.config.iterations:
            ((encoder, losses),) = train([material], self.config)
        else:
            encoder, losses = self._draw_encoder(material), []
        return self.finish(series, material, encoder, losses, time.perf_counter() - began)

    def prepare(self, X: Any) -> tuple[Series, Material]:
        """The first half of `fit`, up to training."""
        frame = read_frame(X)
        series = read_series(frame.values, self.config.max_gap)
        check_names(self, frame, fitting=True)
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
        losses: list[Losses],
        seconds: float,
    ) -> PaAno:
        """The second half of `fit`: bank and calibration for a trained encoder."""
        config, starts = self.config, material.starts
        self.losses, self.seconds, self.facts = losses, {"train": seconds}, ModelFacts()
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
        self.kept = keep_rows(series, config.keep) if config.keep else None
        self.plain, self.next_value = None, None
        still = still_rows(series) if config.still == "counted" else None
        if config.level != "none":
            self.level, level = fit_level(series, config.patch, scores, config.normal_quantile, still)
            shape, level = self.level.in_nats(scores, level)
            if config.plain != "none" and self.kept is not None:
                self.plain, plain = fit_plain(series, starts, self.kept, config.patch)
                shape = SHARE * (shape + plain)
            scores = shape + level
        if config.next_value != "none":
            self.next_value = fit_next_value(series, config.patch, still)
            scores = scores + self.next_value.score(series)
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

    def score(self, X: Any, y: Any = None, *, origin: int = 0) -> Any:
        """The anomaly score of each row: higher is more anomalous, NaN where there is none.

        Args:
            X: the series, with the channels that the model was fitted on.
            y: not used; scikit-learn's tools pass it.
            origin: the number of X's first row in the whole series; it matters with model.stride above 1.

        Returns:
            float32 [N], in the form of `X` where that is a table with a time index.

        Raises:
            NotFitted: the model was neither fitted nor loaded.
            SeriesError: `X` is not a series of numbers with these channels.
        """
        frame, score = self._scored(X, origin)
        return frame.answer(score, "score")

    def _scored(self, X: Any, origin: int = 0) -> tuple[Frame, np.ndarray]:
        """`X` taken apart, and the anomaly score of each row."""
        frame = read_frame(X)
        return frame, self._detect(frame, origin).score

    def detect(self, X: Any, *, origin: int = 0) -> Detection:
        """Score, status and coverage of each row.

        Parameters, returns and raises as `score`; the entries of the Detection are arrays.
        """
        return self._detect(read_frame(X), origin)

    def _detect(self, frame: Frame, origin: int) -> Detection:
        series = self._read_parts(frame)
        rows, patch = len(series), self.config.patch
        starts = strided(valid_starts(series.usable, patch), self.config.stride, origin)
        embeddings = self._encode(self._tensor(series), starts)
        patch_scores = nearest_distance(embeddings, self.bank, self.config.neighbours).cpu().numpy()
        shape, coverage = spread(patch_scores, starts, rows, patch)
        score, level, next_value = shape, np.full(rows, np.nan), np.full(rows, np.nan)
        if self.level is not None:
            shape, level = self.level.in_nats(shape, self.level.score(series))
            if self.plain is not None and self.kept is not None:
                shape = SHARE * (shape + self.plain.score(series, starts, self.kept))
            score = shape + level
        if self.next_value is not None:
            next_value = self.next_value.score(series)
            score = score + next_value

        nothing = series.missing | (coverage == 0)
        score, shape, level, next_value = (
            np.where(nothing, np.nan, part).astype(np.float32) for part in (score, shape, level, next_value)
        )
        coverage = np.where(nothing, 0, coverage).astype(np.uint16)
        status = np.full(rows, Status.OK.value, dtype="<U11")
        status[may_gain_patches(series, patch)] = Status.PROVISIONAL.value
        status[nothing] = Status.NO_DATA.value
        return Detection(score, status, coverage, shape, level, next_value, frame.index)

    def embed(self, X: Any, starts: Any) -> np.ndarray:
        """float32 [n, D]: embeddings of the patches that start at `starts`; each must be whole."""
        series = self._read(X)
        starts = np.asarray(starts, dtype=np.int64).reshape(-1)
        bad = starts[~np.isin(starts, valid_starts(series.usable, self.config.patch))]
        if len(bad):
            raise SeriesError(f"no whole patch of {self.config.patch} rows starts at row {bad[0]}")
        return self._encode(self._tensor(series), starts).cpu().numpy()

    def expected(self, X: Any, event: tuple[int, int]) -> Expected:
        """What rows `event` (first, last) of `X` should have been, with a band (`paano.alarms.expected`)."""
        self._fitted_weights()
        return expected(self, X, event)

    # -- the bank as a queue ---------------------------------------------------------------------------------

    def update(self, X: Any) -> PaAno:
        """Let the bank follow: patches of `X` judged normal go in, the oldest leave. The encoder stays.

        Normal is a score of at most the model.normal_quantile of training patch scores. As in building the
        bank, model.bank_share of the normal patches stand for all of them. A level learns from the rows of
        those patches whose level is at most its `limit`. A kept history goes on with the rows of those
        patches.
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
        _, covered = spread(np.zeros(len(starts)), starts, len(series), self.config.patch)
        if self.level is not None:
            self.level = self.level.update(series, covered > 0)
        if self.kept is not None:
            self.kept = self.kept.followed_by(series, covered > 0, self.config.keep)
        return self

    def take_in(self, X: Any, rows: Any) -> PaAno:
        """What `rows` of `X` show is normal from now on, whatever it scored: a person says so.

        Patches that touch one of these rows and that the bank does not hold yet go in beside all that it
        has; the level learns their rows. Encoder and calibration stay.

        Args:
            X: a series with the rows and a patch of values around them.
            rows: bool [N], or their numbers.

        Raises:
            NotFitted, SeriesError: as `score`.
        """
        series = self._read(X)
        wanted = np.zeros(len(series), dtype=bool)
        wanted[np.asarray(rows)] = True
        starts = valid_starts(series.usable, self.config.patch)
        before = np.concatenate([[0], np.cumsum(wanted)])
        starts = starts[before[starts + self.config.patch] > before[starts]]
        if not len(starts):
            return self
        embeddings = self._encode(self._tensor(series), starts)
        strange = nearest_distance(embeddings, self.bank, self.config.neighbours) > NEARLY_EQUAL
        if bool(strange.any()):
            # As many copies of each as neighbours are asked for: it must not depend on what else is near.
            fresh = torch.nn.functional.normalize(embeddings[strange], dim=1)
            most = max(1, self.config.bank_cap // self.config.neighbours)
            fresh = fresh[:: -(-len(fresh) // most)]
            self.bank = join_bank(self.bank, fresh.repeat(self.config.neighbours, 1))
        _, covered = spread(np.zeros(len(starts)), starts, len(series), self.config.patch)
        if self.kept is not None:
            self.kept = self.kept.followed_by(series, covered > 0, self.config.keep)
        if self.level is not None:
            self.level = self.level.update(series, covered > 0, whatever=True)
        if self.next_value is not None:
            self.next_value = self.next_value.take_in(series, covered > 0)
        if self.plain is not None and self.kept is not None:
            self.plain = self.plain.take_in(series, covered > 0, self.kept)
        return self

    # -- keeping ---------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str], facts: Mapping[str, Any] | None = None) -> None:
        """Write encoder.safetensors, bank.safetensors and model.json.

        Args:
            folder: where to; it is made if it is not there.
            facts: what to keep beside the model (`ModelFacts`, or entries of plain JSON). Without it the
                facts that the model has stay.

        Raises:
            NotFitted: there is nothing to save.
            ArtifactError: a fact cannot have this value, or is not plain JSON.
        """
        weights = self._fitted_weights()
        if facts is not None:
            self.facts = ModelFacts(facts)
        encoder = {name: value.cpu().contiguous().numpy() for name, value in weights.items()}
        encoder["unit"] = self._unit.cpu().numpy()
        bank = {"vectors": self.bank.vectors.cpu().contiguous().numpy(), "position": self.bank.position}
        if self.level is not None:
            bank |= self.level.tensors()
        if self.next_value is not None:
            bank |= self.next_value.tensors()
        if self.kept is not None:
            bank |= self.kept.tensors()
        if self.plain is not None:
            bank |= self.plain.tensors()
        model = {
            "config": self.config.to_dict(),
            "config_digest": self.config.digest,
            "channels": self.channels,
            "bank_size": len(self.bank),
            "kept_rows": 0 if self.kept is None else len(self.kept),
            "normal_limit": self.normal_limit,
            "level": None if self.level is None else self.level.numbers(),
            "calibration": self.calibration.to_dict(),
            "losses": self.losses,
            "facts": self.facts.to_dict(),
        }
        artifact.write(folder, encoder, bank, model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str = "auto") -> PaAno:
        """The model that was saved in `folder`.

        Raises:
            ArtifactError: a file is missing, damaged, hostile or of another format; the message names it.
            ConfigError: there is no such device.
        """
        parts, weights, bank = artifact.read(folder)
        model = cls(parts["config"], device)
        try:
            model.calibration = Calibration.from_dict(parts["calibration"])
            if model.config.level != "none":
                model.level = Level.from_parts(model.config.patch, bank, parts["level"])
            if model.config.next_value != "none":
                model.next_value = NextValue.from_tensors(model.config.patch, bank)
            if model.config.keep:
                model.kept = Kept.from_tensors(bank)
            if model.config.plain != "none":
                model.plain = Plain.from_tensors(model.config.patch, bank)
            model.normal_limit = float(parts["normal_limit"])
            model.losses = read_losses(parts["losses"])
            model.facts = artifact.facts_of(parts)
        except (ArtifactError, KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{folder}: {artifact.MODEL} is damaged: {error!r}") from error
        tensors = {name: torch.from_numpy(value) for name, value in weights.items()}
        unit = tensors.pop("unit")
        on_device = {name: value.to(model.device) for name, value in tensors.items()}
        model._set_encoder(on_device, unit, parts["channels"])
        model.bank = Bank(
            torch.from_numpy(bank["vectors"].copy()).to(data_device(model.device)), bank["position"].copy()
        )
        return model

    # -- inside ----------------------------------------------------------------------------------------------

    def _draw_encoder(self, material: Material) -> Encoder:
        return Encoder(self.config, material.values.shape[1], material.generator).to(self.device).eval()

    def _set_encoder(self, weights: dict[str, Tensor], unit: Tensor, channels: int) -> None:
        self._weights, self._unit, self.channels = weights, unit, channels
        self.n_features_in_ = channels
        self._folded: FoldedEncoder = fold(weights)

    def _fitted_weights(self) -> dict[str, Tensor]:
        if self._weights is None:
            raise not_fitted("the model is not fitted; call fit() or load one")
        return self._weights

    def _read(self, X: Any) -> Series:
        return self._read_parts(read_frame(X))

    def _read_parts(self, frame: Frame) -> Series:
        self._fitted_weights()
        series = read_series(frame.values, self.config.max_gap)
        check_names(self, frame, fitting=False)
        if series.channels != self.channels:
            raise SeriesError(
                f"the series has {series.channels} channels, the model was fitted on {self.channels}: "
                f"X has {series.channels} features, but PaAno is expecting {self.channels} features as input"
            )
        return series

    def _tensor(self, series: Series) -> Tensor:
        return torch.from_numpy(series.values).to(data_device(self.device))

    def _encode(self, values: Tensor, starts: np.ndarray) -> Tensor:
        """float32 [n, D]: embeddings of the patches of `values` [N, C] at `starts` [n], a chunk at a time."""
        if self._remembered is not None:
            return self._remembered(values, starts)
        config = self.config
        rows = torch.from_numpy(starts).to(values.device)
        unit = self._unit.to(values.device)
        chunk = config.chunk or default_chunk(self.device)
        chunk = max(1, min(chunk, GATHER // (config.patch * values.shape[1])))
        if self.device.type == "cpu":
            return self._folded.on_cpu(values, rows, config.patch, unit, chunk)
        return self._encode_on_device(values, rows, unit, chunk)

    def _encode_on_device(self, values: Tensor, rows: Tensor, unit: Tensor, chunk: int) -> Tensor:
        """The same on any device; chunks become smaller where its memory runs out."""
        out = torch.empty(len(rows), embedding_size(self.config), device=values.device)

        def encode(part: slice) -> None:
            with mixed(self.device, self.config.precision):
                patches = take_patches(values, rows[part], self.config.patch, unit).to(self.device)
                out[part] = self._folded(patches).to(values.device)

        in_slices(encode, len(rows), chunk)
        return out


def remembering(model: PaAno) -> PaAno:
    """`model` in a form that encodes no patch twice: to score several series that are mostly the same.

    It shares everything with the one given, and what it remembers with copies of it. It is not for training.
    """
    if model._remembered is not None:
        return model
    other = copy.copy(model)
    other._remembered = Remembered(model._encode, model.config.patch)
    return other


def may_gain_patches(series: Series, patch: int) -> np.ndarray:
    """bool [N]: rows that a patch may still cover when more rows arrive at the end."""
    rows = len(series)
    broken = np.flatnonzero(~series.pending)
    after = broken[-1] + 1 if len(broken) else 0  # nothing before can change
    hole = np.flatnonzero(~series.usable[after:])  # at the end, short enough to be bridged by what comes
    whole = after + hole[0] if len(hole) else rows  # patches that end here exist already
    return np.arange(rows) >= max(after, whole - patch + 1)
