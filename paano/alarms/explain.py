"""Explanations: which channels made an event, and which part of the score raised it.

Each channel of the peak patch is put back to normal, one at a time, and the channel whose return lets the
score fall furthest has the largest share. "Normal" is what the same channel did a little earlier, when
*the other channels* looked most as they do now: so a channel that broke with the rest is replaced by what it
would show had it kept with them. Only the artifact and the recent rows are needed, not the training series.

All substituted patches go through the encoder together. With many channels a cheap screen (how far is the
channel from its earlier self, compared with how far it usually is) chooses the few that are worth a try. A
model with a level, a next-value part or a plain distance knows the surprise of each channel: what the score
would lose without it counts as well, in the same unit.

The rows used are fixed by the peak (`reach`), so the answer does not depend on where a window was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from paano.alarms.cause import cause_of
from paano.config import PaAnoConfig
from paano.errors import SeriesError
from paano.scoring.level import over_channels
from paano.scoring.plain import SHARE
from paano.scoring.shape import nearest_distance
from paano.series import Series, read_series, valid_starts

if TYPE_CHECKING:
    from paano.model import PaAno

TRIED = 32  # channels that are put back, at most
EARLIER = 4  # patches before the peak patch in which normal ones are looked for
CANDIDATES = 96  # of them that are looked at


@dataclass(frozen=True)
class Explanation:
    """What is to be said about an event."""

    channels: list[tuple[int, float]]  # index and share of the score's fall, largest first
    cause: str  # which parts of the score raised it: "shape", "level", "next value"


def reach(config: PaAnoConfig) -> tuple[int, int]:
    """Rows before and after the peak that are looked at. Fewer work, with a vaguer answer."""
    return (EARLIER + 1) * config.patch + config.max_gap, config.patch + config.max_gap


def explain(model: PaAno, X: np.ndarray, peak_row: int, top: int = 3) -> Explanation:
    """Which channels made the score of `peak_row`, and which part of the score raised it.

    Args:
        model: the fitted model that gave the score.
        X: (N,) or (N, C), the rows around the peak. Rows farther away than `reach` change nothing.
        peak_row: the row to explain.
        top: how many channels at most.

    Returns:
        Channels with their shares, largest first, and the cause. A row without a score has no channels.

    Raises:
        SeriesError: `peak_row` is not a row of `X`.
    """
    _, after = reach(model.config)
    cut = max(0, peak_row - after)
    around = model.detect(X[cut : peak_row + after + 1], origin=cut)
    row = peak_row - cut
    cause = cause_of(float(around.shape[row]), float(around.level[row]), float(around.next_value[row]))
    return Explanation(channel_shares(model, X, peak_row, top), cause)


def channel_shares(model: PaAno, X: np.ndarray, peak_row: int, top: int = 3) -> list[tuple[int, float]]:
    """(channel, share) of the channels that made the score of `peak_row`, the largest share first.

    Shares of all channels sum to 1; at most `top` channels with a share above 0 are given. A row without a
    score has none.
    """
    if model.channels == 1:
        return [(0, 1.0)]
    config = model.config
    before, after = reach(config)
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or not 0 <= peak_row < len(X):
        raise SeriesError(f"row {peak_row} is not in a series of shape {X.shape}")
    cut = max(0, peak_row - before)
    series = read_series(X[cut : peak_row + after + 1], config.max_gap)
    peak_row -= cut
    starts = valid_starts(series.usable, config.patch)
    if not ((starts <= peak_row) & (starts > peak_row - config.patch)).any():
        return []

    falls, odd = _shape_falls(model, series, starts, peak_row)
    if model.level is not None:
        falls = falls / model.level.shape_unit
        if model.plain is not None and model.kept is not None:
            distance = model.plain.by_channel(series, starts, model.kept)
            falls = SHARE * (falls + _falls(np.maximum(distance - 1.0, 0.0), peak_row))
        falls = falls + _falls(model.level.by_channel(series), peak_row)
    if model.next_value is not None:
        falls = falls + _falls(model.next_value.by_channel(series), peak_row)
    if not falls.sum() > 0:
        # nothing alone brings the score down: the channels that look oddest are all there is to say
        falls = np.maximum(odd, 0.0)
    if not falls.sum() > 0:
        return []
    shares = falls / falls.sum()
    order = np.argsort(-shares, kind="stable")[:top]
    return [(int(c), float(shares[c])) for c in order if shares[c] > 0]


def _shape_falls(
    model: PaAno, series: Series, starts: np.ndarray, peak_row: int
) -> tuple[np.ndarray, np.ndarray]:
    """[C] how far the score of the peak patch falls with each channel, and how odd each channel looks."""
    patch = model.config.patch
    covering = starts[(starts <= peak_row) & (starts > peak_row - patch)][:: max(1, patch // 8)]
    earlier = starts[starts <= covering[0] - patch]
    # counted back from the peak, so that a longer history does not move them
    earlier = earlier[::-1][:: max(1, EARLIER * patch // CANDIDATES)][:CANDIDATES]

    patches = _patches(series.values, np.concatenate([covering, earlier]), patch)  # [n, w, C]
    scores = _scores(model, patches)
    worst = int(np.argmax(scores[: covering.size]))
    peak, score = patches[worst], scores[worst]
    normal = _normal(patches[covering.size :], scores[covering.size :])
    instead, odd = _instead(peak, normal)  # [w, C], [C]

    tried = np.sort(np.argsort(-odd, kind="stable")[:TRIED])
    changed = np.repeat(peak[None], tried.size, axis=0)  # [T, w, C]
    changed[np.arange(tried.size), :, tried] = instead[:, tried].T
    falls = np.zeros(series.channels)
    falls[tried] = np.maximum(score - _scores(model, changed), 0.0)
    return falls, odd


def _falls(surprise: np.ndarray, peak_row: int) -> np.ndarray:
    """[C] how far a part of the row's score falls when a channel has none of its `surprise` [N, C]."""
    surprise = surprise[peak_row]  # [C]
    if not np.isfinite(surprise).all():
        return np.zeros(len(surprise))
    without = np.repeat(surprise[None], len(surprise), axis=0)
    np.fill_diagonal(without, 0.0)
    falls: np.ndarray = over_channels(surprise[None]) - over_channels(without)
    return falls


def _patches(values: np.ndarray, starts: np.ndarray, patch: int) -> np.ndarray:
    patches: np.ndarray = values[starts[:, None] + np.arange(patch)]
    return patches


def _scores(model: PaAno, patches: np.ndarray) -> np.ndarray:
    """float64 [n]: the score of each patch, in one call of the encoder."""
    count, patch, channels = patches.shape
    embeddings = model.embed(patches.reshape(count * patch, channels), np.arange(count) * patch)
    vectors = torch.from_numpy(embeddings).to(model.bank.vectors.device)  # not always the encoder's
    distances = nearest_distance(vectors, model.bank, model.config.neighbours)
    return np.asarray(distances.cpu().numpy(), dtype=np.float64)


def _normal(patches: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The more normal half of the patches."""
    return patches[scores <= np.median(scores)] if len(patches) else patches


def _instead(peak: np.ndarray, normal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What each channel of `peak` [w, C] would normally show, and how odd it is that it does not."""
    if not len(normal):
        # no past to look at: a channel is put back by holding it at its mean
        flat = np.broadcast_to(peak.mean(axis=0), peak.shape)
        return flat, np.ones(peak.shape[1])
    like, distance = _most_alike(peak, normal)
    # The same for a normal patch says how far apart the channel's values are when nothing is wrong.
    usual = np.zeros(peak.shape[1])
    if len(normal) > 2:
        usual = _most_alike(normal[0], normal[2:])[1]
    columns = np.arange(peak.shape[1])
    return normal[like, :, columns].T, distance - usual


def _most_alike(patch: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each channel: the patch whose *other* channels are nearest, and the channel's distance to it."""
    gap = ((_shape(patch)[None] - _shape(others)) ** 2).mean(axis=1)  # [n, C]
    rest = gap.sum(axis=1, keepdims=True) - gap
    like = rest.argmin(axis=0)
    return like, gap[like, np.arange(patch.shape[1])]


def _shape(patches: np.ndarray) -> np.ndarray:
    """Each channel of each patch with mean 0 and deviation 1; a flat one is 0 throughout."""
    centred = patches - patches.mean(axis=-2, keepdims=True)
    deviation = centred.std(axis=-2, keepdims=True)
    size = np.abs(patches).max(axis=-2, keepdims=True)
    scaled: np.ndarray = np.divide(
        centred, deviation, out=np.zeros_like(centred), where=deviation > 1e-9 * size
    )
    return scaled
