"""The encoder's training pass on a CPU, a block of patches at a time.

Batch norm needs the whole batch before it can go on, but a convolution does not. So each layer runs over
blocks small enough for the cache and keeps one tensor per block, its output before batch norm; all else is
made again from it when needed. The plain modules of `paano.encoder` give the same numbers at two thirds of
the speed, because at 1,024 patches each of their passes goes through main memory.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 64  # patches: the widest layer of 64 patches is 6 MB at the paper's width
WIDEST = 8_000_000  # values of an unfolded block: fewer patches at a time with very many channels


class BlockedEncoder(torch.autograd.Function):
    """patches [n, w, C], eps, then weight [out, in, 1, k], gain [out], bias [out] of each layer →
    embeddings [n, D] and, without gradient, the mean [out] and biased variance [out] of each layer."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor, eps: float, *parameters: Tensor) -> tuple[Tensor, ...]:
        weights, gains, biases = parameters[0::3], parameters[1::3], parameters[2::3]
        n, w, _ = patches.shape
        widest = max(weight.shape[1] * weight.shape[3] for weight in weights)
        blocks = patches.split(max(1, min(BLOCK, WIDEST // (w * widest))))
        layers: list[tuple[list[Tensor], Tensor, Tensor]] = []  # outputs before batch norm, scale, shift
        means, variances = [], []
        below: tuple = (blocks, None, None)
        for weight, gain, bias in zip(weights, gains, biases, strict=True):
            outs, parts = [], []
            for block in range(len(blocks)):
                y = _conv(_activation(below, block), weight)  # [b, w, out]
                mean = y.mean(dim=(0, 1))  # two passes: ten times as fast here as torch.var_mean
                parts.append((len(y), mean, (y - mean).square_().mean(dim=(0, 1))))
                outs.append(y)
            mean = sum(b * m for b, m, _ in parts) / n
            variance = sum(b * (v + (m - mean).square()) for b, m, v in parts) / n
            scale = gain * torch.rsqrt(variance + eps)
            below = (outs, scale, bias - mean * scale)
            layers.append(below)
            means.append(mean)
            variances.append(variance)
        h = torch.cat([_activation(below, block).mean(dim=1) for block in range(len(blocks))])

        ctx.save_for_backward(*weights, *means, *variances)
        ctx.blocks, ctx.layers, ctx.eps = blocks, layers, eps
        ctx.mark_non_differentiable(*means, *variances)
        return h, *means, *variances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        layers, depth, blocks = ctx.layers, len(ctx.layers), range(len(ctx.blocks))
        saved = ctx.saved_tensors
        weights, means, variances = (saved[i * depth : (i + 1) * depth] for i in range(3))
        w = ctx.blocks[0].shape[1]
        rows = len(grad) * w
        grads: list[Tensor] = []

        # `behind`: the gradient behind the ReLU of the layer, by block, with the two sums over all rows that
        # the gradient of batch norm needs.
        behind = _Behind(means[-1])
        grad_blocks = (grad / w).split([len(block) for block in ctx.blocks])
        for block in blocks:
            x = _activation(layers[-1], block)
            behind.add(_through_relu(grad_blocks[block][:, None].expand_as(x), x), layers[-1][0][block])

        for layer in reversed(range(depth)):
            (outs, scale, _), weight, mean = layers[layer], weights[layer], means[layer]
            inverse = torch.rsqrt(variances[layer] + ctx.eps)
            along = (behind.weighted - mean * behind.total) * inverse  # Σ gradient · normalised output
            slope = -scale * inverse * along / rows
            offset = -scale * behind.total / rows - mean * slope
            turned = weight.flip(3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
            weight_grad = torch.zeros_like(weight, memory_format=torch.channels_last)
            below = layers[layer - 1] if layer else (ctx.blocks, None, None)
            further = _Behind(means[layer - 1]) if layer else None
            for block in blocks:
                x = _activation(below, block)  # [b, w, in]
                dy = torch.addcmul(offset, outs[block], slope).addcmul_(
                    behind.grads[block], scale
                )  # [b, w, out]
                behind.grads[block] = outs[block] = None  # no longer needed: the next block takes the memory
                _add_weight_grad(weight_grad, dy, x)
                if layer:
                    further.add(_through_relu(_conv(dy, turned), x), below[0][block])
            grads = [weight_grad, along, behind.total, *grads]
            behind = further
        return None, None, *grads


class _Behind:
    """Gradients of a layer by block, their sum [out], and their sum times the layer's output [out]."""

    def __init__(self, like: Tensor):
        self.grads: list[Tensor | None] = []
        self.total, self.weighted = torch.zeros_like(like), torch.zeros_like(like)

    def add(self, grad: Tensor, out: Tensor) -> None:
        self.grads.append(grad)
        self.total += grad.sum(dim=(0, 1))
        self.weighted += (grad * out).sum(dim=(0, 1))


def _activation(layer: tuple, block: int) -> Tensor:
    """ReLU of batch norm of a layer's output [b, w, out]; the patches themselves have neither."""
    outs, scale, shift = layer
    return outs[block] if scale is None else torch.addcmul(shift, outs[block], scale).relu_()


def _through_relu(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient where the ReLU's output `x` is positive, else 0."""
    return torch.ops.aten.threshold_backward(grad, x, 0)


def _conv(x: Tensor, weight: Tensor) -> Tensor:
    """[b, w, in] → [b, w, out], both contiguous: the channels-last image of height 1."""
    image = F.conv2d(x.permute(0, 2, 1).unsqueeze(2), weight, padding=(0, weight.shape[3] // 2))
    return image.squeeze(2).permute(0, 2, 1)


def _add_weight_grad(into: Tensor, dy: Tensor, x: Tensor) -> None:
    """Add the gradient of the weights for outputs dy [b, w, out] of inputs x [b, w, in] to `into`."""
    outputs, inputs, _, kernel = into.shape
    if inputs < 16:
        image, grad = (t.permute(0, 2, 1).unsqueeze(2) for t in (x, dy))
        into += torch.nn.grad.conv2d_weight(image, into.shape, grad, padding=(0, kernel // 2))
        return
    # One matrix product of the unfolded inputs is up to twice as fast as the library's gradient.
    b, w, _ = x.shape
    padded = F.pad(x, (0, 0, kernel // 2, kernel // 2))
    unfolded = padded.as_strided((b, w, kernel * inputs), (padded.stride(0), inputs, 1)).reshape(b * w, -1)
    into.permute(0, 2, 3, 1).view(outputs, -1).addmm_(dy.flatten(0, 1).T, unfolded)
