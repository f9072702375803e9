"""The encoder's training pass on a CPU, a block of patches at a time.

Batch norm needs the whole batch before it can go on, but a convolution does not. So each layer runs over
blocks small enough for the cache and keeps one tensor per block, its output before batch norm; all else is
made again from it when needed. The plain modules of `paano.network.encoder` give the same numbers at two
thirds of the speed, because at 1,024 patches each of their passes goes through main memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 64  # patches: the widest layer of 64 patches is 6 MB at the paper's width
# Of each block the output before batch norm; batch norm's scale and shift [out], which the patches have not.
Layer = tuple[Sequence[Tensor], Tensor | None, Tensor | None]

WIDEST = 2_000_000  # values of a block's input: fewer patches at a time with very many channels


class BlockedEncoder(torch.autograd.Function):
    """patches [n, w, C], eps, then weight [out, in, 1, k], gain [out], bias [out] of each layer →
    embeddings [n, D] and, without gradient, the mean [out] and biased variance [out] of each layer."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor, eps: float, *parameters: Tensor) -> tuple[Tensor, ...]:
        weights, gains, biases = parameters[0::3], parameters[1::3], parameters[2::3]
        n, w, _ = patches.shape
        widest = max(weight.shape[1] for weight in weights)
        blocks = torch.split(patches, max(1, min(BLOCK, WIDEST // (w * widest))))
        layers: list[Layer] = []
        means, variances = [], []
        below: Layer = (blocks, None, None)
        order = _Turns(len(blocks))
        for weight, gain, bias in zip(weights, gains, biases, strict=True):
            room = Padded(below[0][0], weight)
            outs, parts = list(blocks), []  # every block's output takes the place of its input
            for block in order:
                y = convolve(room.activation(below, block), weight)  # [b, w, out]
                parts.append((len(y), *torch.ops.aten.batch_norm_update_stats(as_image(y), None, None, 0.0)))
                outs[block] = y
            mean = sum(b * m for b, m, _ in parts) / n
            variance = sum(b * (v + (m - mean).square()) for b, m, v in parts) / n
            scale = gain * torch.rsqrt(variance + eps)
            below = (outs, scale, bias - mean * scale)
            layers.append(below)
            means.append(mean)
            variances.append(variance)
        room = Padded(below[0][0])
        pooled = {block: room.activation(below, block).mean(dim=1) for block in order}
        h = torch.cat([pooled[block] for block in range(len(blocks))])

        ctx.save_for_backward(*weights, *means, *variances)
        ctx.blocks, ctx.layers, ctx.eps = blocks, layers, eps
        ctx.mark_non_differentiable(*means, *variances)
        return h, *means, *variances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        layers, depth, order = ctx.layers, len(ctx.layers), _Turns(len(ctx.blocks))
        saved = ctx.saved_tensors
        weights, means, variances = (saved[i * depth : (i + 1) * depth] for i in range(3))
        w = ctx.blocks[0].shape[1]
        rows = len(grad) * w
        grads: list[Tensor] = []

        gradients, room = _Gradients(means[-1], variances[-1], ctx.eps), Padded(layers[-1][0][0])
        grad_blocks = (grad / w).split([len(block) for block in ctx.blocks])
        for block in order:
            x = room.activation(layers[-1], block)
            gradients.add(block, grad_blocks[block][:, None].repeat(1, w, 1), x, layers[-1][0][block])

        for layer in reversed(range(depth)):
            (outs, scale, _), weight = layers[layer], weights[layer]
            slope = -scale * gradients.inverse * gradients.along / rows
            offset = -scale * gradients.total / rows - means[layer] * slope
            turned = weight.flip(3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
            taps = _room_for_taps(weight)
            below = layers[layer - 1] if layer else (ctx.blocks, None, None)
            further = _Gradients(means[layer - 1], variances[layer - 1], ctx.eps) if layer else None
            x_room, dy_room = Padded(below[0][0], weight), Padded(outs[0], weight)
            for block in order:
                x = x_room.activation(below, block)  # [b, w + 2 pad, in]
                dy = dy_room.of(len(outs[block]))  # [b, w + 2 pad, out]
                torch.addcmul(offset, outs[block], slope, out=dy_room.inner(dy)).addcmul_(
                    gradients.grads.pop(block), scale
                )
                outs[block] = None  # no longer needed: the next layer takes the memory
                _add_weight_grad(taps, dy, x)
                if further is not None:
                    further.add(block, convolve(dy, turned), x_room.inner(x), below[0][block])
            grads = [taps.permute(2, 1, 0).unsqueeze(2), gradients.along, gradients.total, *grads]
            if further is not None:
                gradients = further
        return None, None, *grads


class _Gradients:
    """The gradients of a layer's ReLU output by block, and what the gradient of batch norm needs to know of
    the whole batch: their sum [out], and their sum times the normalised output [out]."""

    def __init__(self, mean: Tensor, variance: Tensor, eps: float):
        self.mean, self.inverse, self.eps = mean, torch.rsqrt(variance + eps), eps
        self.grads: dict[int, Tensor] = {}
        self.total, self.along = torch.zeros_like(mean), torch.zeros_like(mean)

    def add(self, block: int, grad: Tensor, x: Tensor, out: Tensor) -> None:
        """Take over `grad` [b, w, out], as far as the ReLU's output `x` is positive."""
        torch.ops.aten.threshold_backward.grad_input(grad, x, 0, grad_input=grad)
        self.grads[block] = grad
        _, along, total = torch.ops.aten.native_batch_norm_backward(
            as_image(grad), as_image(out), None, None, None, self.mean, self.inverse, True, self.eps,
            [False, True, True],  # the two sums only
        )  # fmt: skip
        self.total += total
        self.along += along


class _Turns:
    """Blocks forwards, then backwards, and so on: what one pass touched last the next finds in the cache."""

    def __init__(self, blocks: int):
        self.blocks, self.step = range(blocks), -1

    def __iter__(self) -> Iterator[int]:
        self.step = -self.step
        return iter(self.blocks[:: self.step])


class Padded:
    """Room for one block [b, w, c] with rows of zeros before and after every patch, as a convolution by
    `weight` needs. Every block in turn takes the same room: it stays in the cache."""

    def __init__(self, like: Tensor, weight: Tensor | None = None):
        b, w, c = like.shape
        self.pad = 0 if weight is None else weight.shape[3] // 2
        self.room = like.new_empty(b, w + 2 * self.pad, c)
        self.room[:, : self.pad] = 0
        self.room[:, self.pad + w :] = 0

    def of(self, patches: int) -> Tensor:
        return self.room[:patches]

    def inner(self, padded: Tensor) -> Tensor:
        return padded[:, self.pad : padded.shape[1] - self.pad]

    def activation(self, layer: Layer, block: int) -> Tensor:
        """ReLU of batch norm of a layer's output [b, w + 2 pad, out]; the patches themselves have neither."""
        outs, scale, shift = layer
        x = self.of(len(outs[block]))
        if scale is None or shift is None:
            self.inner(x).copy_(outs[block])
        else:
            torch.addcmul(shift, outs[block], scale, out=self.inner(x)).relu_()
        return x


def encode_blocked(patches: Tensor, eps: float, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`BlockedEncoder` as a function with types."""
    apply: Callable[..., tuple[Tensor, ...]] = BlockedEncoder.apply
    return apply(patches, eps, *parameters)


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """[b, w + 2 pad, in] → [b, w, out], both contiguous."""
    return F.conv2d(as_image(x), weight).squeeze(2).permute(0, 2, 1)


def as_image(x: Tensor) -> Tensor:
    """[b, w, c] → [b, c, 1, w], the same memory: channels-last, of height 1."""
    return x.permute(0, 2, 1).unsqueeze(2)


def _add_weight_grad(taps: Tensor, dy: Tensor, x: Tensor) -> None:
    """Add the weights' gradient to `taps` [k, in, out]; dy is [b, w + 2 pad, out], x [b, w + 2 pad, in].

    The patches lie one after another and the zeros between them keep them apart: the gradient of a tap is one
    matrix product of dy with x moved by so many rows. The library's own gradient takes up to twice as long.
    """
    kernel, inputs, _ = taps.shape
    rows = dy.shape[0] * dy.shape[1] - kernel + 1
    dy, x = dy.flatten(0, 1)[kernel // 2 :][:rows], x.flatten(0, 1)
    if inputs < 16:  # too narrow for a product of its own: all taps in one
        unfolded = x.as_strided((rows, kernel * inputs), (inputs, 1)).contiguous()
        taps += (unfolded.T @ dy).view(taps.shape)
        return
    for tap in range(kernel):
        taps[tap].addmm_(x[tap : tap + rows].T, dy)


def _room_for_taps(weight: Tensor) -> Tensor:
    """Zeros [k, in, out]; in memory the smaller of in and out comes first: the products are faster so."""
    outputs, inputs, _, kernel = weight.shape
    if outputs < inputs:
        return weight.new_zeros(kernel, outputs, inputs).transpose(1, 2)
    return weight.new_zeros(kernel, inputs, outputs)
