"""The losses of the paper's section 3.2 and appendix D.2, each a plain function of embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def choose_negatives(h: Tensor, how: str, generator: torch.Generator) -> Tensor:
    """int64 [M]: for each anchor another patch of the minibatch, chosen by cosine distance of `h` [M, D].

    `farthest` is the paper's; no gradient flows through the choice.
    """
    count = len(h)
    if how == "random":
        others = torch.randint(1, count, (count,), generator=generator)
        return ((torch.arange(count) + others) % count).to(h.device)
    unit = F.normalize(h.detach().float(), dim=1)
    similar = unit @ unit.T  # [M, M]
    if how == "farthest":
        return similar.fill_diagonal_(torch.inf).argmin(dim=1)
    if how == "closest":
        return similar.fill_diagonal_(-torch.inf).argmax(dim=1)
    # The median of the M − 1 others: the anchor itself is sorted last and left out.
    order = similar.fill_diagonal_(-torch.inf).argsort(dim=1, descending=True, stable=True)
    return order[:, (count - 1) // 2]


def triplet_loss(z: Tensor, positive: Tensor, negative: Tensor, margin: float, counts: Tensor) -> Tensor:
    """Mean of max(0, dist(z, z+) − dist(z, z−) + δ) over the anchors that count; [M, P] and mask [M]."""
    apart = F.cosine_similarity(z, negative) - F.cosine_similarity(z, positive)  # distances: the ones cancel
    return _mean((apart + margin).clamp_min(0), counts)


def infonce_loss(z: Tensor, positive: Tensor, temperature: float, counts: Tensor) -> Tensor:
    """InfoNCE over all non-self patches of the minibatch (appendix D.2); projections [M, P], mask [M]."""
    unit = F.normalize(z, dim=1)
    other = (unit @ unit.T).fill_diagonal_(-torch.inf)  # [M, M]
    match = (unit * F.normalize(positive, dim=1)).sum(dim=1, keepdim=True)  # [M, 1]
    logits = torch.cat([match, other], dim=1) / temperature
    return _mean(torch.logsumexp(logits, dim=1) - logits[:, 0], counts)


def pretext_loss(before: Tensor, has_before: Tensor, random: Tensor) -> Tensor:
    """Binary cross entropy of "is consecutive": logits of the patch w earlier [M] and of U random ones [M, U].

    As in the paper the sum over anchors is divided by M; an anchor without a predecessor adds no positive
    term.
    """
    consecutive = F.softplus(-before) * has_before  # −log sigmoid
    apart = F.softplus(random).mean(dim=-1)  # −log(1 − sigmoid), averaged over U
    return (consecutive + apart).mean(dim=-1)


def pretext_weight(step: int, iterations: int, start: float, ratio: float, schedule: str) -> float:
    """λ at `step`: over the first `ratio` of the iterations falling linearly to 0, or constant; then 0."""
    steps = round(ratio * iterations)
    if step >= steps:
        return 0.0
    return start if schedule == "constant" else start * (1 - step / steps)


def _mean(losses: Tensor, counts: Tensor) -> Tensor:
    return (losses * counts).sum(dim=-1) / counts.sum(dim=-1).clamp_min(1)
