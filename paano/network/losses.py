"""The losses of the paper's section 3.2 and appendix D.2, each a plain function of embeddings.

G is the number of models that train side by side, usually 1; they share nothing, and every loss is [G].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def choose_negatives(h: Tensor, how: str, generators: Sequence[torch.Generator]) -> Tensor:
    """int64 [G, M]: for each anchor another patch of its minibatch, by cosine distance of `h` [G, M, D].

    `farthest` is the paper's; no gradient flows through the choice.
    """
    count = h.shape[1]
    if how == "random":
        return draw_others(count, 1, generators)[..., 0].to(h.device)
    unit = F.normalize(h.detach().float(), dim=-1)
    similar = unit @ unit.mT  # [G, M, M]
    itself = torch.eye(count, dtype=torch.bool, device=h.device)
    if how == "farthest":
        return similar.masked_fill_(itself, torch.inf).argmin(dim=-1)
    similar.masked_fill_(itself, -torch.inf)
    if how == "closest":
        return similar.argmax(dim=-1)
    # The median of the M − 1 others (of an even number the nearer one): the anchor itself comes last.
    return similar.argsort(dim=-1, descending=True, stable=True)[..., (count - 2) // 2]


def draw_others(count: int, each: int, generators: Sequence[torch.Generator]) -> Tensor:
    """int64 [G, M, each]: for each of `count` anchors random others of the minibatch, never itself."""
    drawn = [torch.randint(1, count, (count, each), generator=generator) for generator in generators]
    return (torch.arange(count)[:, None] + torch.stack(drawn)) % count


def triplet_loss(z: Tensor, positive: Tensor, negative: Tensor, margin: float, counts: Tensor) -> Tensor:
    """Mean of max(0, dist(z, z+) − dist(z, z−) + δ) over the anchors that count; [G, M, P], mask [G, M]."""
    apart = F.cosine_similarity(z, negative, dim=-1) - F.cosine_similarity(z, positive, dim=-1)
    return _mean((apart + margin).clamp_min(0), counts)


def infonce_loss(z: Tensor, positive: Tensor, temperature: float, counts: Tensor) -> Tensor:
    """InfoNCE over all non-self patches of the minibatch (appendix D.2); [G, M, P], mask [G, M]."""
    unit = F.normalize(z, dim=-1)
    itself = torch.eye(z.shape[1], dtype=torch.bool, device=z.device)
    other = (unit @ unit.mT).masked_fill(itself, -torch.inf)  # [G, M, M]
    match = (unit * F.normalize(positive, dim=-1)).sum(dim=-1, keepdim=True)  # [G, M, 1]
    logits = torch.cat([match, other], dim=-1) / temperature
    return _mean(torch.logsumexp(logits, dim=-1) - logits[..., 0], counts)


def pretext_loss(before: Tensor, has_before: Tensor, random: Tensor) -> Tensor:
    """Binary cross entropy of "is consecutive": logits of the patch before [G, M] and of U others [G, M, U].

    As in the paper the sum over anchors is divided by M; an anchor without a predecessor (mask [G, M]) adds
    no positive term.
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
