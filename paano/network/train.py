"""Training: one loop, seen whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import numpy as np
import torch
from torch import Tensor

from paano.config import PaAnoConfig
from paano.device import mixed
from paano.errors import ArtifactError, SeriesTooShort
from paano.network.encoder import Encoder, Heads, embedding_size
from paano.network.losses import (
    choose_negatives,
    draw_others,
    infonce_loss,
    pretext_loss,
    pretext_weight,
    triplet_loss,
)
from paano.patches import take_patches


class Losses(TypedDict):
    """The losses of one iteration."""

    loss: float  # what was minimised: the two below by their weights
    contrast: float
    pretext: float
    weight: float  # of the pretext loss


def read_losses(stored: Any) -> list[Losses]:
    """The losses of every iteration as `model.json` keeps them; an ArtifactError for anything else."""
    if not isinstance(stored, list):
        raise ArtifactError("losses is not a list")
    names = Losses.__required_keys__
    for number, step in enumerate(stored):
        if not isinstance(step, dict) or step.keys() != names:
            raise ArtifactError(f"losses[{number}] has not exactly the entries {', '.join(sorted(names))}")
        for name, value in step.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
                raise ArtifactError(f"losses[{number}].{name} = {value!r:.80} is not a finite number")
    return [
        Losses(loss=s["loss"], contrast=s["contrast"], pretext=s["pretext"], weight=s["weight"])
        for s in stored
    ]


@dataclass(frozen=True)
class Material:
    """What one model is trained on."""

    values: Tensor  # float64 [N, C]
    starts: np.ndarray  # int64 [n]: rows at which a whole patch starts, ascending
    unit: Tensor  # float64 [C]
    generator: torch.Generator  # on the CPU: every device draws the same
    device: torch.device  # where the networks run


@dataclass(frozen=True)
class Minibatch:
    """Rows at which patches start, all [M]. A patch that does not exist is replaced by the anchor."""

    anchor: Tensor
    positive: Tensor
    has_positive: Tensor  # float32, 1 or 0
    before: Tensor
    has_before: Tensor  # float32, 1 or 0


class Networks(Protocol):
    """f, g and c of G models side by side."""

    def parameters(self) -> list[Tensor]: ...
    def encode(self, patches: Tensor) -> Tensor: ...  # [G, n, w, C] → [G, n, D]
    def project(self, h: Tensor) -> Tensor: ...  # [G, n, D] → [G, n, P]
    def classify(self, h: Tensor, other: Tensor) -> Tensor: ...  # [G, …, D] twice → logit [G, …]
    def encoders(self) -> list[Encoder]: ...


def train(
    materials: Sequence[Material], config: PaAnoConfig, networks: Networks | None = None
) -> list[tuple[Encoder, list[Losses]]]:
    """Train an encoder for each material, usually one; returns them with the losses of every iteration.

    Several train side by side in one `networks` (see `paano.network.fused`); they share only the schedule.
    """
    device = materials[0].device
    generators = [m.generator for m in materials]

    # 1. the networks, drawn on the CPU so that every device starts from the same weights
    networks = networks or OneModel(config, materials[0])
    histories: list[list[Losses]] = [[] for _ in materials]
    parameters = networks.parameters()
    optimiser = AdamW(parameters, config.weight_decay)
    # float16 gradients would round to 0
    scale = 1024.0 if device.type == "cuda" and config.precision == "mixed" else 1.0

    minibatches = [draw_minibatches(m.starts, config, m.generator) for m in materials]
    for step in range(config.iterations):
        # 2. the schedules: cosine to a tenth, and the weight of the pretext loss
        rate = learning_rate(config, step)
        weight = pretext_weight(
            step, config.iterations, config.pretext_weight, config.pretext_ratio, config.pretext_schedule
        )
        if config.contrast == "none" and not weight:
            break  # nothing is left to learn from

        # 3. one forward pass: batch norm sees anchors, positives and predecessors together
        batches = [next(batch) for batch in minibatches]
        patches = torch.stack(
            [
                take_patches(m.values, _rows(batch, with_before=weight > 0), config.patch, m.unit)
                for m, batch in zip(materials, batches, strict=True)
            ]
        ).to(device)  # [G, 2M or 3M, w, C]
        M = len(batches[0].anchor)
        with mixed(device, config.precision):
            h = networks.encode(patches).float()  # [G, 2M or 3M, D]
            z = networks.project(h[:, : 2 * M]).float()  # [G, 2M, P]

        # 4. the losses, all [G]
        has_positive = torch.stack([batch.has_positive for batch in batches]).to(device)  # [G, M]
        if config.contrast == "triplet":
            negative = choose_negatives(h[:, :M], config.negative, generators)  # [G, M]
            contrast = triplet_loss(z[:, :M], z[:, M:], pick(z, negative), config.margin, has_positive)
        elif config.contrast == "infonce":
            contrast = infonce_loss(z[:, :M], z[:, M:], config.temperature, has_positive)
        else:
            contrast = h.new_zeros(len(materials))
        pretext = h.new_zeros(len(materials))
        if weight:
            has_before = torch.stack([batch.has_before for batch in batches]).to(device)  # [G, M]
            others = draw_others(M, config.pretext_negatives, generators).to(device)  # [G, M, U]
            consecutive = networks.classify(h[:, :M], h[:, 2 * M :])  # [G, M]
            anchors = h[:, :M, None].expand(-1, -1, others.shape[2], -1)  # [G, M, U, D]
            apart = networks.classify(anchors, pick(h, others))  # [G, M, U]
            pretext = pretext_loss(consecutive, has_before, apart)
        loss = config.contrast_weight * contrast + weight * pretext

        # 5. one step
        scaled = torch.autograd.grad(loss.sum() * scale, parameters, allow_unused=True)
        grads = [g if g is None else g / scale for g in scaled]
        if scale == 1.0 or all(g is None or bool(g.isfinite().all()) for g in grads):  # float16 may overflow
            optimiser.step(grads, rate)
        for history, total, contrasted, consecutive_ in zip(
            histories, loss.tolist(), contrast.tolist(), pretext.tolist(), strict=True
        ):
            history.append(Losses(loss=total, contrast=contrasted, pretext=consecutive_, weight=weight))

    # The last weights are kept: the loss is not comparable between steps while its weights change.
    return list(zip([encoder.eval() for encoder in networks.encoders()], histories, strict=True))


def draw_minibatches(
    starts: np.ndarray, config: PaAnoConfig, generator: torch.Generator
) -> Iterator[Minibatch]:
    """Minibatches for ever: anchors without replacement, reshuffled when fewer than M are left.

    A minibatch always has min(M, number of patches) anchors, so that a small last one never dominates the
    batch norm.
    """
    size = minibatch_size(starts, config)
    all_starts = torch.from_numpy(starts)
    is_start = torch.zeros(int(starts[-1]) + config.shift + 1, dtype=torch.bool)
    is_start[all_starts] = True
    shifts = torch.tensor([s for s in range(-config.shift, config.shift + 1) if s])  # [2r], never 0
    while True:
        order = torch.randperm(len(starts), generator=generator)
        for i in range(0, len(starts) - size + 1, size):
            anchor = all_starts[order[i : i + size]]  # [M]

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


def minibatch_size(starts: np.ndarray, config: PaAnoConfig) -> int:
    """min(M, number of patches), or an error where nothing can be learned: a negative is another patch."""
    if len(starts) < 2:
        raise SeriesTooShort(
            f"{len(starts)} whole patch: training needs at least 2; use a longer history, "
            "a smaller model.patch, or model.iterations = 0 (preset untrained)"
        )
    return min(config.minibatch, len(starts))


class OneModel:
    """The networks of a single model: G is 1."""

    def __init__(self, config: PaAnoConfig, material: Material):
        channels = material.values.shape[1]
        self.encoder = Encoder(config, channels, material.generator).to(material.device).train()
        self.heads = Heads(embedding_size(config), material.generator).to(material.device)

    def parameters(self) -> list[Tensor]:
        return [*self.encoder.parameters(), *self.heads.parameters()]

    def encode(self, patches: Tensor) -> Tensor:
        h: Tensor = self.encoder(patches[0])
        return h[None]

    def project(self, h: Tensor) -> Tensor:
        return self.heads.project(h)

    def classify(self, h: Tensor, other: Tensor) -> Tensor:
        return self.heads.classify(h, other)

    def encoders(self) -> list[Encoder]:
        return [self.encoder]


class AdamW:
    """AdamW with torch's defaults (β 0.9 and 0.999, ε 1e-8), step for step as torch.optim.AdamW.

    torch's own brings in its compiler, two seconds of imports in every worker process.
    """

    def __init__(self, parameters: list[Tensor], weight_decay: float):
        self.parameters, self.weight_decay, self.steps = parameters, weight_decay, 0
        self.first = [torch.zeros_like(p) for p in parameters]
        self.second = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self, grads: Sequence[Tensor | None], rate: float) -> None:
        """One step. A parameter that the loss did not use has no gradient and stays as it is."""
        self.steps += 1
        first_bias, second_bias = 1 - 0.9**self.steps, 1 - 0.999**self.steps
        for p, grad, first, second in zip(self.parameters, grads, self.first, self.second, strict=True):
            if grad is None:
                continue
            p.mul_(1 - rate * self.weight_decay)
            first.lerp_(grad, 0.1)
            second.mul_(0.999).addcmul_(grad, grad, value=0.001)
            root = (second.sqrt() / math.sqrt(second_bias)).add_(1e-8)
            p.addcdiv_(first, root, value=-rate / first_bias)


def learning_rate(config: PaAnoConfig, step: int) -> float:
    """Cosine annealing from the learning rate to a tenth of it."""
    fraction = step / max(1, config.iterations - 1)
    return config.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * fraction)))


def pick(vectors: Tensor, index: Tensor) -> Tensor:
    """vectors [G, n, D] at index [G, …] → [G, …, D]"""
    flat = index.flatten(1)  # [G, m]
    found = vectors.gather(1, flat[..., None].expand(-1, -1, vectors.shape[-1]))
    return found.view(*index.shape, vectors.shape[-1])


def _rows(batch: Minibatch, with_before: bool) -> Tensor:
    """The patches to encode, [2M] or [3M]."""
    return torch.cat([batch.anchor, batch.positive] + ([batch.before] if with_before else []))
