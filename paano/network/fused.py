"""Several equal-shaped models trained at once: stacked weights and grouped convolutions.

One model uses a small part of a GPU. The models share a schedule and nothing else, so each comes out as if it
had been trained alone, but for the rounding of another kernel. One model uses a whole CPU, which keeps
the plain path (`python -m benchmarks.method` measures both).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paano.config import PaAnoConfig
from paano.errors import SeriesError
from paano.model import PaAno
from paano.network.encoder import Encoder, Heads, embedding_size
from paano.network.train import Material, minibatch_size, train


def fit_many(
    config: PaAnoConfig | Sequence[PaAnoConfig],
    series: Sequence[Any],
    device: str = "auto",
    fused: bool | None = None,
) -> list[PaAno]:
    """A fitted model for each of the `series`, equal to `PaAno(config).fit(X)` within 1e-4.

    `config` is one for all, or one each that differ in `seed` only. Series may differ in length but not in
    channels. `fused` is by default true on a GPU and false on a CPU.
    """
    configs = [config] * len(series) if isinstance(config, PaAnoConfig) else list(config)
    models = [PaAno(each, device) for each in configs]
    if not models:
        return []
    if len({each.replace(seed=0).digest for each in configs}) > 1:
        raise SeriesError("models that train together differ in seed only")
    if fused is None:
        fused = models[0].device.type != "cpu"
    if not fused or len(models) == 1 or configs[0].iterations == 0:
        return [model.fit(X) for model, X in zip(models, series, strict=True)]

    prepared = [model.prepare(X) for model, X in zip(models, series, strict=True)]
    materials = [material for _, material in prepared]
    shapes = {(m.values.shape[1], minibatch_size(m.starts, configs[0])) for m in materials}
    if len(shapes) > 1:
        raise SeriesError(
            f"models that train together need equal channels and minibatches, not {sorted(shapes)}"
        )
    began = time.perf_counter()
    trained = train(materials, configs[0], Stacked(configs[0], materials))
    seconds = (time.perf_counter() - began) / len(models)
    return [
        model.finish(read, material, encoder, losses, seconds)
        for model, (read, material), (encoder, losses) in zip(models, prepared, trained, strict=True)
    ]


class Stacked:
    """The networks of G models as one: channels side by side, every convolution in G groups."""

    def __init__(self, config: PaAnoConfig, materials: Sequence[Material]):
        device, channels = materials[0].device, materials[0].values.shape[1]
        self.models = []
        for material in materials:  # each draws its weights from its own generator, as it would alone
            encoder = Encoder(config, channels, material.generator)
            head = Heads(embedding_size(config), material.generator)
            self.models.append((encoder.to(device), head.to(device)))
        self.groups = len(self.models)
        encoders, heads = [e for e, _ in self.models], [h for _, h in self.models]
        layers = [encoder.layers() for encoder in encoders]  # of each model
        self.eps, self.momentum = layers[0][0][1].eps, layers[0][0][1].momentum
        self.layers = [
            [_join([each[i][0].weight for each in layers])]
            + [_join([getattr(each[i][1], name) for each in layers]) for name in ("weight", "bias")]
            for i in range(len(layers[0]))
        ]
        self.statistics = [
            [
                torch.cat([getattr(each[i][1], name) for each in layers])
                for name in ("running_mean", "running_var")
            ]
            for i in range(len(self.layers))
        ]
        self.linear = [
            (_stack([getattr(h, name).weight for h in heads]), _stack([getattr(h, name).bias for h in heads]))
            for name in ("first", "second", "classifier")
        ]

    def parameters(self) -> list[Tensor]:
        return [p for layer in self.layers for p in layer] + [p for pair in self.linear for p in pair]

    def encode(self, patches: Tensor) -> Tensor:
        G, n, w, C = patches.shape
        x = patches.permute(1, 0, 3, 2).reshape(n, G * C, 1, w).contiguous(memory_format=torch.channels_last)
        for (weight, gain, bias), (mean, variance) in zip(self.layers, self.statistics, strict=True):
            x = F.conv2d(x, weight, padding=(0, weight.shape[3] // 2), groups=G)
            x = F.batch_norm(x, mean, variance, gain, bias, True, self.momentum, self.eps)
            x = F.relu(x, inplace=True)
        return x.mean(dim=(2, 3)).view(n, G, -1).transpose(0, 1)  # [G, n, D]

    def project(self, h: Tensor) -> Tensor:
        return self._linear(F.relu(self._linear(h, 0)), 1)

    def classify(self, h: Tensor, other: Tensor) -> Tensor:
        pairs = torch.cat([h, other], dim=-1)  # [G, …, 2D]
        return self._linear(pairs.flatten(1, -2), 2).view(pairs.shape[:-1])

    def _linear(self, x: Tensor, which: int) -> Tensor:
        weight, bias = self.linear[which]
        return torch.baddbmm(bias[:, None].to(x.dtype), x, weight.mT.to(x.dtype))  # [G, n, in] → [G, n, out]

    @torch.no_grad()
    def encoders(self) -> list[Encoder]:
        """The trained encoders, one by one."""
        for i, ((weight, gain, bias), (mean, variance)) in enumerate(
            zip(self.layers, self.statistics, strict=True)
        ):
            for g, (encoder, _) in enumerate(self.models):
                conv, norm = encoder.layers()[i]
                conv.weight.copy_(weight.chunk(self.groups)[g])
                for kept, joined in (
                    (norm.weight, gain),
                    (norm.bias, bias),
                    (norm.running_mean, mean),
                    (norm.running_var, variance),
                ):
                    kept.copy_(joined.chunk(self.groups)[g])
        return [encoder for encoder, _ in self.models]


def _join(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.detach() for t in tensors]).requires_grad_()


def _stack(tensors: list[Tensor]) -> Tensor:
    return torch.stack([t.detach() for t in tensors]).requires_grad_()
