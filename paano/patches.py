"""Patches: windows of a series, each channel of each patch standardised on its own."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from paano.config import PaAnoConfig

EPS = 1e-5  # under the root, as published
# A channel of a patch is flat when its standard deviation is below the rounding of float64 at its own height.
FLAT = 8 * torch.finfo(torch.float64).eps
LEAST_SHARE = 0.01  # of a channel's deviation: the least that counts as the typical deviation of its patches
# Values gathered at once in float64 (64 MB): a thousand channels must not multiply the memory of a minibatch.
GATHER = 8_000_000


def take_patches(values: Tensor, starts: Tensor, patch: int, unit: Tensor | None = None) -> Tensor:
    """float32 [n, patch, C]: the standardised patches of `values` float64 [N, C] that start at `starts` [n].

    Only the rows of a patch decide its numbers, so they do not depend on where the series was cut. The first
    value is subtracted first, in float64, so that a small signal on an offset of 1e9 is kept. A flat channel
    of a patch (no more than rounding noise at its own height) becomes zeros.

    `unit` float64 [C] is the size that counts as 1 for the published eps; without it the numbers are taken as
    they are.
    """
    channels = values.shape[1]
    starts = starts.to(values.device)
    out = torch.empty(len(starts), patch, channels, dtype=torch.float32, device=values.device)
    steps = torch.arange(patch, device=values.device)
    size = max(1, GATHER // (patch * channels))
    for i in range(0, len(starts), size):
        rows = starts[i : i + size, None] + steps  # [m, w]
        out[i : i + size] = standardise(values[rows], unit)
    return out


def standardise(x: Tensor, unit: Tensor | None = None, eps: float = EPS, rounding: float = FLAT) -> Tensor:
    """Zero mean and unit (biased) variance over the rows of each patch: x float64 [m, w, C] → the same.

    The constants are arguments because it is also compiled (`paano.network.unlocked`), where globals are not
    known.
    """
    height = x.abs().amax(dim=1, keepdim=True)  # [m, 1, C]
    x = x - x[:, :1]  # exact where the signal is small beside its offset
    x -= x.mean(dim=1, keepdim=True)
    variance = x.square().mean(dim=1, keepdim=True)  # [m, 1, C]
    flat = variance <= (rounding * height) ** 2
    variance = variance + eps if unit is None else variance + eps * unit.square()
    return (x / variance.sqrt()).masked_fill(flat, 0.0)


def typical_deviation(values: Tensor, starts: np.ndarray, config: PaAnoConfig) -> Tensor:
    """float64 [C]: what counts as 1 for eps: 1 with `model.unit = "raw"`, else the median patch deviation.

    It is taken over about 1,000 evenly spaced patches; a channel that is flat in most of them takes the mean.
    A hundredth of the whole channel's deviation is the least: where most patches hold noise only, the noise
    is not what patches are measured by.
    """
    unit = torch.ones(values.shape[1], dtype=torch.float64, device=values.device)
    if config.unit == "raw":
        return unit
    step = max(1, len(starts) // 1000)
    some = [values[start : start + config.patch] for start in starts[::step]]
    deviation = torch.stack([(x - x[:1]).std(dim=0, correction=0) for x in some])  # [m, C]
    middle = torch.stack([(x - some[0][0]).mean(dim=0) for x in some])  # [m, C]
    median = deviation.median(dim=0).values
    whole = (deviation.square().mean(dim=0) + middle.var(dim=0, correction=0)).sqrt()
    unit = torch.where(median > 0, median, deviation.mean(dim=0)).maximum(LEAST_SHARE * whole)
    return torch.where(unit > 0, unit, 1.0)
