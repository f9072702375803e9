"""The memory bank: K-means over the training embeddings; each cluster is stood for by its nearest member."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

ROUNDS = 10  # of Lloyd's algorithm, at most …
SETTLED = 0.01  # … until a round brings the rows less than this share nearer to their centres
SAMPLE = 32  # rows per cluster that are enough to place the centres
# Similarities held at once (8 MB): memory stays linear in the rows, never rows × bank.
BLOCK = 2_000_000


@dataclass(frozen=True)
class Bank:
    """Normal embeddings of unit length, the oldest first."""

    vectors: Tensor  # float32 [K, D]
    position: (
        np.ndarray
    )  # int64 [K]: the row at which the patch starts in the training series, −1 after update

    def __len__(self) -> int:
        return len(self.position)


def build_bank(embeddings: Tensor, starts: np.ndarray, size: int, generator: torch.Generator) -> Bank:
    """At most `size` of the `embeddings` [n, D] of the patches at `starts` [n] that stand for all of them.

    Two clusters may have the same nearest embedding (equal patches): it is kept once.
    """
    if size >= len(embeddings):
        chosen = torch.arange(len(embeddings))
    else:
        chosen = nearest_members(embeddings, kmeans(embeddings, size, generator))
    return Bank(F.normalize(embeddings[chosen], dim=1), starts[chosen.numpy()])


def bank_size(patches: int, share: float, cap: int) -> int:
    """How many vectors stand for `patches`: a share of them, at least 1, at most `cap`."""
    return max(1, min(cap, math.ceil(share * patches), patches))


def kmeans(x: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Centroids [size, D] of `x` [n, D] by Lloyd's algorithm from a random choice of rows.

    Memory is rows + size: distances exist for one block of rows at a time. With many more rows than clusters
    the centres move by a sample of the rows, so that a year costs little more than a month.
    """
    order = torch.randperm(len(x), generator=generator)
    centres = x[order[:size].sort().values.to(x.device)].clone()
    if len(x) > SAMPLE * size:
        x = x[order[: SAMPLE * size].sort().values.to(x.device)]
    before = torch.inf
    for _ in range(ROUNDS):
        assigned, distance = assign(x, centres)
        spread = distance.double().sum().item()
        if spread >= (1 - SETTLED) * before:
            break
        before = spread
        count = torch.bincount(assigned, minlength=size)
        total = torch.zeros_like(centres, dtype=torch.float64)
        for part, to in zip(torch.split(x, 100_000), torch.split(assigned, 100_000), strict=True):
            total.index_add_(0, to, part.double())
        mean = (total / count.clamp_min(1)[:, None]).to(x.dtype)
        centres = torch.where(count[:, None] > 0, mean, centres)  # an empty cluster stays where it is
    return centres


def assign(x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """int64 [n] and float32 [n]: the nearest of `centres` [K, D] for each row of `x` [n, D], and |x − c|²."""
    half = centres.square().sum(dim=1) / 2  # |x − c|² is smallest where x·c − |c|²/2 is largest
    nearest = torch.empty(len(x), dtype=torch.int64, device=x.device)
    distance = torch.empty(len(x), dtype=x.dtype, device=x.device)
    rows = max(1, BLOCK // len(centres))
    for i in range(0, len(x), rows):
        part = x[i : i + rows]
        nearest[i : i + rows] = torch.addmm(-half, part, centres.T).argmax(dim=1)
        distance[i : i + rows] = (part - centres[nearest[i : i + rows]]).square().sum(dim=1)
    return nearest, distance


def nearest_members(x: Tensor, centres: Tensor) -> Tensor:
    """int64 ascending: the rows of `x` that are nearest to a centre among that centre's own cluster."""
    assigned, distance = assign(x, centres)
    by_distance = distance.sort(stable=True).indices
    order = by_distance[assigned[by_distance].sort(stable=True).indices]  # by cluster, then distance
    cluster = assigned[order]
    first = torch.ones(len(order), dtype=torch.bool, device=x.device)
    first[1:] = cluster[1:] != cluster[:-1]
    return order[first].sort().values.cpu()


def push(bank: Bank, vectors: Tensor) -> Bank:
    """The paper's queue: `vectors` [m, D] of unit length go in, as many of the oldest leave."""
    vectors = vectors[-len(bank) :]
    joined = torch.cat([bank.vectors[len(vectors) :], vectors])
    position = np.concatenate([bank.position[len(vectors) :], np.full(len(vectors), -1, dtype=np.int64)])
    return Bank(joined, position)


def join_bank(bank: Bank, vectors: Tensor) -> Bank:
    """The bank with `vectors` [m, D] of unit length beside all that it has."""
    position = np.concatenate([bank.position, np.full(len(vectors), -1, dtype=np.int64)])
    return Bank(torch.cat([bank.vectors, vectors]), position)
