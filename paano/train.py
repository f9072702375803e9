"""Training: one loop, seen whole."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from paano.config import PaAnoConfig
from paano.device import mixed
from paano.encoder import Encoder, Heads, embedding_size
from paano.errors import SeriesTooShort
from paano.losses import choose_negatives, infonce_loss, pretext_loss, pretext_weight, triplet_loss
from paano.patches import take_patches


@dataclass(frozen=True)
class Minibatch:
    """Rows at which patches start, all int64 [M]. A patch that does not exist is replaced by the anchor."""

    anchor: Tensor
    positive: Tensor
    has_positive: Tensor  # float32 [M], 1 or 0
    before: Tensor
    has_before: Tensor  # float32 [M], 1 or 0


def draw_minibatches(
    starts: np.ndarray, config: PaAnoConfig, generator: torch.Generator
) -> Iterator[Minibatch]:
    """Minibatches for ever: anchors without replacement, reshuffled when fewer than M are left.

    A minibatch always has min(M, number of patches) anchors, so that a small last one never dominates the
    batch norm. Everything is drawn on the CPU: all devices see the same patches.
    """
    starts_t = torch.from_numpy(starts)
    is_start = torch.zeros(int(starts[-1]) + config.shift + 2, dtype=torch.bool)
    is_start[starts_t] = True
    size = min(config.minibatch, len(starts))
    shifts = torch.tensor([s for s in range(-config.shift, config.shift + 1) if s], dtype=torch.int64)  # [2r]
    while True:
        order = torch.randperm(len(starts), generator=generator)
        for i in range(0, len(starts) - size + 1, size):
            anchor = starts_t[order[i : i + size]]  # [M]

            # The positive: the anchor moved by 1 to r rows either way, to a patch that exists.
            moved = anchor[:, None] + shifts  # [M, 2r]
            exists = (moved >= 0) & is_start[moved.clamp_min(0)]
            choice = torch.rand(moved.shape, generator=generator).masked_fill(~exists, -1.0).argmax(dim=1)
            has_positive = exists.any(dim=1)
            positive = torch.where(has_positive, moved.gather(1, choice[:, None])[:, 0], anchor)

            # The predecessor: exactly w rows earlier.
            before = anchor - config.patch
            has_before = (before >= 0) & is_start[before.clamp_min(0)]
            before = torch.where(has_before, before, anchor)
            yield Minibatch(anchor, positive, has_positive.float(), before, has_before.float())


def train(
    values: Tensor,  # float64 [N, C] on the device
    starts: np.ndarray,  # int64 [n] rows at which a whole patch starts
    config: PaAnoConfig,
    generator: torch.Generator,
    unit: Tensor | None = None,
) -> tuple[Encoder, list[dict[str, float]]]:
    """Train an encoder on the patches; returns it with the losses of every iteration."""
    device = values.device

    # 1. the networks, drawn on the CPU so that every device starts from the same weights
    encoder = Encoder(config, values.shape[1], generator).to(device)
    if config.iterations == 0:
        return encoder.eval(), []
    check_enough_patches(starts)
    heads = Heads(embedding_size(config), generator).to(device)
    parameters = [*encoder.parameters(), *heads.parameters()]
    optimiser = torch.optim.AdamW(
        parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda" and config.precision == "mixed")
    history: list[dict[str, float]] = []
    encoder.train()

    for step, batch in zip(
        range(config.iterations), draw_minibatches(starts, config, generator), strict=False
    ):
        M = len(batch.anchor)

        # 2. the schedules: cosine to a tenth, and the weight of the pretext loss
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(config, step)
        weight = pretext_weight(
            step, config.iterations, config.pretext_weight, config.pretext_ratio, config.pretext_schedule
        )

        # 3. one forward pass: batch norm sees anchors, positives and predecessors together
        rows = [batch.anchor, batch.positive] + ([batch.before] if weight else [])
        patches = take_patches(values, torch.cat(rows).to(device), config.patch, unit)  # [2M or 3M, w, C]
        with mixed(device, config.precision):
            h = encoder(patches).float()  # [2M or 3M, D]
            z = heads.project(h[: 2 * M]).float()  # [2M, P]

        # 4. the losses
        loss = torch.zeros((), device=device)
        if config.contrast == "triplet":
            negative = choose_negatives(h[:M], config.negative, generator)  # [M]
            contrast = triplet_loss(z[:M], z[M:], z[negative], config.margin, batch.has_positive.to(device))
        elif config.contrast == "infonce":
            contrast = infonce_loss(z[:M], z[M:], config.temperature, batch.has_positive.to(device))
        else:
            contrast = torch.zeros((), device=device)
        loss = loss + config.contrast_weight * contrast
        pretext = torch.zeros((), device=device)
        if weight:
            other = torch.randint(
                1, M, (M, config.pretext_negatives), generator=generator
            )  # never the anchor
            other = ((torch.arange(M)[:, None] + other) % M).to(device)  # [M, U]
            anchors = h[:M, None].expand(-1, other.shape[1], -1)  # [M, U, D]
            pretext = pretext_loss(
                heads.classify(h[:M], h[2 * M :]),
                batch.has_before.to(device),
                heads.classify(anchors, h[other]),
            )
            loss = loss + weight * pretext

        # 5. one step
        optimiser.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        history.append(
            {"loss": loss.item(), "contrast": contrast.item(), "pretext": pretext.item(), "weight": weight}
        )

    # The last weights are kept: the loss is not comparable between steps while its weights change.
    return encoder.eval(), history


def learning_rate(config: PaAnoConfig, step: int) -> float:
    """Cosine annealing from the learning rate to a tenth of it."""
    fraction = step / max(1, config.iterations - 1)
    return config.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * fraction)))


def check_enough_patches(starts: np.ndarray) -> None:
    """Training needs an anchor, another patch as its negative, and a neighbour as its positive."""
    if len(starts) < 2:
        raise SeriesTooShort(
            f"{len(starts)} whole patch: training needs at least 2; use a longer history, "
            "a smaller model.patch, or model.iterations = 0 (preset untrained)"
        )
