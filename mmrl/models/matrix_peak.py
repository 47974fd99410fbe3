"""What a device reaches in matrix products: the limit that utilisation is quoted against."""

from __future__ import annotations

import time
from functools import cache

import torch


@cache
def matrix_peak(device: str, dtype: torch.dtype) -> float:
    """FLOP/s of a large square matrix product on this device, the best of a few tries: what 100 % MFU means here."""
    size = 1024 if device == "cpu" else 8192
    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        product = left @ right
        product.flatten()[0].item()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
