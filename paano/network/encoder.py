"""The networks: patch encoder f, projection head g, classification head c (section 3, appendix B.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paano.config import PaAnoConfig
from paano.network.blocked import as_image, encode_blocked
from paano.network.shapes import LAYERS, NORM, LayerShape, embedding_size, layer_shapes, multiply_adds
from paano.network.unlocked import unlocked

__all__ = [
    "LAYERS",
    "NORM",
    "Encoder",
    "FoldedEncoder",
    "Heads",
    "LayerShape",
    "embedding_size",
    "fold",
    "layer_shapes",
    "multiply_adds",
]

PROJECTION = 256
NORM_EPS = 1e-5


class Norm(nn.BatchNorm2d):
    """Batch norm that has all its parts: the types of torch's own allow for parts that are left out."""

    running_mean: Tensor
    running_var: Tensor
    momentum: float


class Encoder(nn.Module):
    """f: patches float32 [n, w, C] → embeddings [n, D].

    Convolutions run as conv2d of height 1 in channels-last memory, which is the layout patches come in and
    about twice as fast on a CPU as conv1d.
    """

    def __init__(self, config: PaAnoConfig, channels: int, generator: torch.Generator):
        super().__init__()
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        for inputs, outputs, kernel in layer_shapes(config, channels):
            self.convs.append(Conv(inputs, outputs, kernel, generator))
            self.norms.append(Norm(outputs, eps=NORM_EPS))

    def layers(self) -> list[tuple[Conv, Norm]]:
        """Convolution and batch norm of each layer, the first one first."""
        return [cast(tuple[Conv, Norm], pair) for pair in zip(self.convs, self.norms, strict=True)]

    def forward(self, patches: Tensor) -> Tensor:
        if self.training and patches.device.type == "cpu":
            return self._train_blocked(patches)
        return self.plain(patches)

    def plain(self, patches: Tensor) -> Tensor:
        """The function as it reads in the paper."""
        x = as_image(patches)  # [n, C, 1, w]
        for conv, norm in self.layers():
            x = F.relu(norm(conv(x)), inplace=True)
        return x.mean(dim=(2, 3))  # [n, D]

    def _train_blocked(self, patches: Tensor) -> Tensor:
        """The same in training mode, in blocks that fit the cache of a CPU."""
        pairs = self.layers()
        parameters = [p for conv, norm in pairs for p in (conv.weight, norm.weight, norm.bias)]
        h, *statistics = encode_blocked(patches, NORM_EPS, parameters)
        means, variances = statistics[: len(pairs)], statistics[len(pairs) :]
        count = patches.shape[0] * patches.shape[1]
        for (_, norm), mean, variance in zip(pairs, means, variances, strict=True):
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(
                variance * (count / max(1, count - 1)), norm.momentum
            )  # unbiased, as torch
        return h

    def weights(self) -> dict[str, Tensor]:
        """What scoring needs and an artifact keeps: all but the counter of batch norm."""
        state = self.state_dict()
        return {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}

    def folded(self) -> FoldedEncoder:
        """The same function with batch norm's running statistics folded into the convolutions."""
        return fold(self.weights())


class FoldedEncoder:
    """The encoder at scoring: convolution, bias, ReLU; no state that scoring could change."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]]):
        self.layers = layers

    @torch.inference_mode()
    def __call__(self, patches: Tensor) -> Tensor:
        x = as_image(patches)  # [n, C, 1, w]
        for weight, bias in self.layers:
            x = F.conv2d(x, weight, bias, padding=(0, weight.shape[3] // 2)).relu_()
        return x.mean(dim=(2, 3)).float()  # [n, D]

    @torch.inference_mode()
    def on_cpu(self, values: Tensor, starts: Tensor, patch: int, unit: Tensor, chunk: int) -> Tensor:
        """The same of the patches of `values` [N, C] at `starts` [n]: faster, and other threads go on."""
        weights, biases = [weight for weight, _ in self.layers], [bias for _, bias in self.layers]
        return unlocked()(values, starts, patch, unit, weights, biases, chunk)


@torch.no_grad()
def fold(weights: Mapping[str, Tensor]) -> FoldedEncoder:
    """The encoder with these `Encoder.weights`, for scoring."""
    layers = []
    for i in range(sum(name.startswith("convs.") for name in weights)):
        norm = {name: weights[f"norms.{i}.{name}"].double() for name in NORM}  # [out] each
        gain = norm["weight"] / (norm["running_var"] + NORM_EPS).sqrt()
        weight = weights[f"convs.{i}.weight"] * gain[:, None, None, None]  # in float64, as gain is
        bias = norm["bias"] - norm["running_mean"] * gain
        layers.append((weight.to(torch.float32, memory_format=torch.channels_last), bias.float()))
    return FoldedEncoder(layers)


class Conv(nn.Module):
    """[n, in, 1, w] → [n, out, 1, w], "same" padding, no bias. nn.Conv2d draws from the global generator."""

    def __init__(self, inputs: int, outputs: int, kernel: int, generator: torch.Generator):
        super().__init__()
        weight = torch.empty(outputs, inputs, 1, kernel, memory_format=torch.channels_last)
        self.weight = nn.Parameter(_drawn(weight, inputs * kernel, generator))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, padding=(0, self.weight.shape[3] // 2))


class Linear(nn.Module):
    """[…, in] → […, out]. nn.Linear draws from the global generator."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator):
        super().__init__()
        self.weight = nn.Parameter(_drawn(torch.empty(outputs, inputs), inputs, generator))
        self.bias = nn.Parameter(_drawn(torch.empty(outputs), inputs, generator))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Heads(nn.Module):
    """g and c; needed in training only and not kept (paper, section 3.1)."""

    def __init__(self, size: int, generator: torch.Generator):
        super().__init__()
        self.first = Linear(size, PROJECTION, generator)
        self.second = Linear(PROJECTION, PROJECTION, generator)
        self.classifier = Linear(2 * size, 1, generator)

    def project(self, h: Tensor) -> Tensor:
        """[n, D] → [n, 256]"""
        projected: Tensor = self.second(F.relu(self.first(h)))
        return projected

    def classify(self, h: Tensor, other: Tensor) -> Tensor:
        """Logit that `other` [n, D] is the patch just before `h` [n, D] → [n]"""
        logit: Tensor = self.classifier(torch.cat([h, other], dim=-1))
        return logit.squeeze(-1)


def _drawn(tensor: Tensor, fan_in: int, generator: torch.Generator) -> Tensor:
    """Uniform within ±1/√fan_in, which is what torch's own layers start from."""
    bound = 1 / math.sqrt(fan_in)
    return tensor.uniform_(-bound, bound, generator=generator)
