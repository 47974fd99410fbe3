"""What the machine's matrix products reach at most, measured between other work, in float32."""

from __future__ import annotations

import time

import torch

SIZE = 1536


class MatrixPeak:
    """The fastest large product seen so far; call `measure` often, since shared machines change their speed."""

    def __init__(self) -> None:
        self._left = torch.randn(SIZE, SIZE)
        self._right = torch.randn(SIZE, SIZE)
        self.seen: list[float] = []

    def measure(self) -> None:
        """FLOP/s of the faster of PyTorch's two libraries, MKL and oneDNN, added to `seen`."""
        products = [lambda: self._left @ self._right, lambda: _onednn(self._left, self._right)]
        self.seen.append(max(self._rate(product) for product in products))

    def _rate(self, product: object, times: int = 6) -> float:
        assert callable(product)
        product()
        best = float("inf")
        for _ in range(times):
            start = time.perf_counter()
            product()
            best = min(best, time.perf_counter() - start)
        return 2.0 * SIZE**3 / best


def _onednn(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    from mmrl.models.fast.functions import can_use_onednn, linear

    return linear(left, right, None) if can_use_onednn(left, right) else left @ right
