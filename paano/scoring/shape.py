"""From embeddings to scores: cosine distance to the nearest of the bank, spread from patches to points."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paano.scoring.bank import BLOCK, Bank


def nearest_distance(
    embeddings: Tensor,
    bank: Bank,
    neighbours: int,
    *,
    starts: np.ndarray | None = None,
    exclude: int | None = None,
) -> Tensor:
    """float32 [n]: mean cosine distance of `embeddings` [n, D] to the nearest vectors of the bank.

    With `exclude`, a patch that starts at `starts[i]` never matches a bank vector whose position is within
    ±exclude of it; where nothing else is left the result is NaN. A bank with fewer than `neighbours` vectors
    gives what it has. An embedding of length 0 (a flat patch can have one) is at distance 0 of another such
    and at distance 1 of everything else.
    """
    vectors = bank.vectors
    empty_bank = ~vectors.any(dim=1)  # [K]
    has_empty = bool(empty_bank.any())
    k = min(neighbours, len(bank))
    rows = max(1, BLOCK // max(len(bank), k * vectors.shape[1]))
    out = torch.empty(len(embeddings), dtype=torch.float32, device=embeddings.device)
    for i in range(0, len(embeddings), rows):
        part = F.normalize(embeddings[i : i + rows], dim=1)  # [m, D]
        similar = part @ vectors.T  # [m, K]
        empty = ~part.any(dim=1)  # [m]
        if has_empty:
            similar[empty[:, None] & empty_bank] = 1.0
        if starts is not None and exclude is not None:
            exclude_near(similar, starts[i : i + rows], bank.position, exclude)
        best, which = similar.topk(k, dim=1)  # [m, k]
        # 1 − cosine is |a − b|² / 2 for unit vectors, which keeps its digits where the cosine is nearly 1.
        distance = (part[:, None] - vectors[which]).square().sum(dim=2) / 2
        distance += (empty[:, None] != empty_bank[which]) / 2
        there = best > -torch.inf
        out[i : i + rows] = torch.where(there, distance, 0.0).sum(dim=1) / there.sum(dim=1)  # 0 / 0 is NaN
    return out


def exclude_near(similar: Tensor, starts: np.ndarray, position: np.ndarray, exclude: int) -> None:
    """Set to −inf where bank `position` (ascending) is within ±exclude of `starts` (ascending)."""
    low = int(np.searchsorted(position, starts[0] - exclude, side="left"))
    high = int(np.searchsorted(position, starts[-1] + exclude, side="right"))
    near = np.abs(position[None, low:high] - starts[:, None]) <= exclude  # [m, few]
    similar[:, low:high].masked_fill_(torch.from_numpy(near).to(similar.device), -torch.inf)


def spread(scores: np.ndarray, starts: np.ndarray, rows: int, patch: int) -> tuple[np.ndarray, np.ndarray]:
    """Point scores float64 [rows] and coverage int64 [rows]: the mean over the patches with the point.

    Linear in rows: sums and counts are running totals of what starts and what ends. A NaN patch score is no
    score; a point in no scored patch is NaN with coverage 0.
    """
    there = ~np.isnan(scores)
    starts = starts[there]
    total = np.zeros(rows + 1)
    count = np.zeros(rows + 1, dtype=np.int64)
    total[starts], count[starts] = scores[there], 1
    total[starts + patch] -= scores[there]
    count[starts + patch] -= 1
    total, count = np.cumsum(total)[:rows], np.cumsum(count)[:rows]
    points = np.full(rows, np.nan)
    np.divide(np.maximum(total, 0), count, out=points, where=count > 0)
    return points, count


def strided(starts: np.ndarray, stride: int, origin: int = 0) -> np.ndarray:
    """Every `stride`-th of the `starts`, counted from row −origin, and the first and last of each run.

    `origin` is the number of the series' first row in a longer one: with it, a window scores the same patches
    as the whole. The ends of a run stay so that no point that can be covered is left out.
    """
    if stride == 1 or len(starts) == 0:
        return starts
    ends = np.flatnonzero(np.diff(starts) > 1)
    keep = (starts + origin) % stride == 0
    keep[[0, -1]] = True
    keep[ends] = True
    keep[ends + 1] = True
    kept: np.ndarray = starts[keep]
    return kept
