"""The sizes of the encoder's layers, known without torch: what a stored model must look like."""

from __future__ import annotations

from typing import NamedTuple

from paano.config import PaAnoConfig

# (channels, kernels) by depth. Four layers are written out in the paper; the other two are the ones that give
# its parameter counts with the heads (297K and 1126K) and keep the kernels of the layers they share.
LAYERS: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
    3: ((128, 256, 64), (7, 5, 3)),
    4: ((128, 256, 128, 64), (7, 5, 3, 3)),
    5: ((128, 256, 512, 128, 64), (7, 5, 5, 3, 3)),
}
NORM = ("weight", "bias", "running_mean", "running_var")


class LayerShape(NamedTuple):
    """One convolution."""

    inputs: int
    outputs: int
    kernel: int


def layer_shapes(config: PaAnoConfig, channels: int) -> list[LayerShape]:
    """The convolutions of the encoder for a series of `channels`; width multiplies all, the embedding too."""
    outputs, kernels = LAYERS[config.depth]
    sizes = [max(1, round(size * config.width)) for size in outputs]
    return [LayerShape(*shape) for shape in zip([channels, *sizes[:-1]], sizes, kernels, strict=True)]


def embedding_size(config: PaAnoConfig) -> int:
    """The length of an embedding."""
    return layer_shapes(config, 1)[-1].outputs


def multiply_adds(config: PaAnoConfig, channels: int) -> int:
    """Multiply-adds of one patch through the encoder."""
    return config.patch * sum(i * o * k for i, o, k in layer_shapes(config, channels))
