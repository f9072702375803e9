"""Patches to embeddings at scoring on a CPU, as one call that does not hold Python's lock.

A convolution of a few patches takes a third of a millisecond, and after each of them Python code waits for
the lock that threads share: beside a thread that reads from a store or writes rows, an encoder written in
Python stands still for most of its time. So all layers over all patches are one function of torch's own
interpreter (TorchScript). It calls the same operations in the same order: the numbers are the same to the
last bit. Where a torch has no such interpreter any more, the function runs as it reads here.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from paano.patches import standardise


def encode_patches(
    values: Tensor,
    starts: Tensor,
    patch: int,
    unit: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    chunk: int,
) -> Tensor:
    """float32 [n, D]: embeddings of the patches of `values` float64 [N, C] at `starts` [n], by chunks.

    The zeros that a convolution needs before and after a patch are laid down once: one that has to pad takes
    up to a quarter longer.
    """
    steps = torch.arange(patch)
    out = torch.empty([starts.size(0), weights[-1].size(0)], dtype=torch.float32)
    for first in range(0, starts.size(0), chunk):
        rows = starts[first : first + chunk].unsqueeze(1) + steps  # [m, w]
        x = standardise(values[rows], unit).float()  # [m, w, C]
        for i in range(len(weights)):
            pad = weights[i].size(3) // 2
            room = torch.empty([x.size(0), patch + 2 * pad, x.size(2)], dtype=torch.float32)
            room[:, :pad] = 0
            room[:, pad + patch :] = 0
            inner = room[:, pad : pad + patch]
            if i == 0:
                inner.copy_(x)
            else:
                torch.clamp_min(x, 0, out=inner)  # the ReLU of the layer before
            image = room.permute(0, 2, 1).unsqueeze(2)  # [m, in, 1, w + 2 pad]: the same memory
            x = torch.conv2d(image, weights[i], biases[i]).squeeze(2).permute(0, 2, 1)  # [m, w, out]
        out[first : first + chunk] = x.relu_().mean(dim=1)
    return out


@functools.cache
def unlocked() -> Callable[..., Tensor]:
    """`encode_patches`, outside Python's lock where this torch can."""
    if not hasattr(torch, "jit"):
        return encode_patches
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it has no heir that needs no compiler
        function: Callable[..., Tensor] = torch.jit.script(encode_patches)
    return function
