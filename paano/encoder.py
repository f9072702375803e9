"""The networks: patch encoder f, projection head g, classification head c (section 3, appendix B.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paano.blocked import BlockedEncoder, Padded, as_image, convolve
from paano.config import PaAnoConfig

# (channels, kernels) by depth. Four layers are written out in the paper; the other two are the ones that give
# its parameter counts with the heads (297K and 1126K) and keep the kernels of the layers they share.
LAYERS: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
    3: ((128, 256, 64), (7, 5, 3)),
    4: ((128, 256, 128, 64), (7, 5, 3, 3)),
    5: ((128, 256, 512, 128, 64), (7, 5, 5, 3, 3)),
}
PROJECTION = 256
NORM = ("weight", "bias", "running_mean", "running_var")
NORM_EPS = 1e-5


class LayerShape(NamedTuple):
    inputs: int
    outputs: int
    kernel: int


def layer_shapes(config: PaAnoConfig, channels: int) -> list[LayerShape]:
    """The convolutions of the encoder for a series of `channels`; width multiplies all, the embedding too."""
    outputs, kernels = LAYERS[config.depth]
    outputs = [max(1, round(size * config.width)) for size in outputs]
    return [LayerShape(*shape) for shape in zip([channels, *outputs[:-1]], outputs, kernels, strict=True)]


def embedding_size(config: PaAnoConfig) -> int:
    return layer_shapes(config, 1)[-1].outputs


def multiply_adds(config: PaAnoConfig, channels: int) -> int:
    """Multiply-adds of one patch through the encoder."""
    return config.patch * sum(i * o * k for i, o, k in layer_shapes(config, channels))


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
            self.norms.append(nn.BatchNorm2d(outputs, eps=NORM_EPS))

    def forward(self, patches: Tensor) -> Tensor:
        if self.training and patches.device.type == "cpu":
            return self._train_blocked(patches)
        return self.plain(patches)

    def plain(self, patches: Tensor) -> Tensor:
        """The function as it reads in the paper."""
        x = as_image(patches)  # [n, C, 1, w]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)), inplace=True)
        return x.mean(dim=(2, 3))  # [n, D]

    def _train_blocked(self, patches: Tensor) -> Tensor:
        """The same in training mode, in blocks that fit the cache of a CPU."""
        pairs = list(zip(self.convs, self.norms, strict=True))
        parameters = [p for conv, norm in pairs for p in (conv.weight, norm.weight, norm.bias)]
        h, *statistics = BlockedEncoder.apply(patches, self.norms[0].eps, *parameters)
        means, variances = statistics[: len(pairs)], statistics[len(pairs) :]
        count = patches.shape[0] * patches.shape[1]
        for norm, mean, variance in zip(self.norms, means, variances, strict=True):
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(
                variance * (count / max(1, count - 1)), norm.momentum
            )  # unbiased, as torch
        return h

    def weights(self) -> dict[str, Tensor]:
        """What scoring needs and an artefact keeps: all but the counter of batch norm."""
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
        if patches.device.type == "cpu":
            return self._padded(patches)
        x = as_image(patches)  # [n, C, 1, w]
        for weight, bias in self.layers:
            x = F.conv2d(x, weight, bias, padding=(0, weight.shape[3] // 2)).relu_()
        return x.mean(dim=(2, 3)).float()  # [n, D]

    def _padded(self, patches: Tensor) -> Tensor:
        """The same on a CPU, where a convolution that has to pad takes up to a quarter longer."""
        x = patches  # [n, w, channels]
        for i, (weight, bias) in enumerate(self.layers):
            room = Padded(x, weight)
            if i == 0:
                room.inner(room.room).copy_(x)
            else:
                torch.clamp_min(x, 0, out=room.inner(room.room))  # the ReLU of the layer before
            x = convolve(room.room, weight, bias)
        return x.relu_().mean(dim=1)  # [n, D]


@torch.no_grad()
def fold(weights: Mapping[str, Tensor]) -> FoldedEncoder:
    """The encoder with these `Encoder.weights`, for scoring."""
    layers = []
    for i in range(sum(name.startswith("convs.") for name in weights)):
        norm = {name: weights[f"norms.{i}.{name}"].double() for name in NORM}  # [out] each
        gain = norm["weight"] / (norm["running_var"] + NORM_EPS).sqrt()
        weight = weights[f"convs.{i}.weight"].double() * gain[:, None, None, None]
        bias = norm["bias"] - norm["running_mean"] * gain
        layers.append((weight.float().contiguous(memory_format=torch.channels_last), bias.float()))
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
        return self.second(F.relu(self.first(h)))

    def classify(self, h: Tensor, other: Tensor) -> Tensor:
        """Logit that `other` [n, D] is the patch just before `h` [n, D] → [n]"""
        return self.classifier(torch.cat([h, other], dim=-1)).squeeze(-1)


def _drawn(tensor: Tensor, fan_in: int, generator: torch.Generator) -> Tensor:
    """Uniform within ±1/√fan_in, which is what torch's own layers start from."""
    bound = 1 / math.sqrt(fan_in)
    return tensor.uniform_(-bound, bound, generator=generator)
