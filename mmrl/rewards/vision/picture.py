"""How much two pictures of one size look alike: 1 for equal ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image
from PIL.Image import new as new_image
from scipy import ndimage

Measure = Callable[[Image, Image], float]
Array = NDArray[np.float64]

_SIGMA = 1.5
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
_EDGE_BLUR = 1.0
_NO_EDGES = 1e-9


def ssim(picture: Image, target: Image) -> float:
    """The mean structural similarity (Wang et al. 2004, eq. 13) of the grey values, with a Gaussian window of standard
    deviation 1.5, K1 = 0.01, K2 = 0.03 and L = 255; negative values count 0."""
    x, y = _grey(picture), _grey(target)
    mean_x, mean_y = _window(x), _window(y)
    variance_x = _window(x * x) - mean_x**2
    variance_y = _window(y * y) - mean_y**2
    covariance = _window(x * y) - mean_x * mean_y
    above = (2 * mean_x * mean_y + _C1) * (2 * covariance + _C2)
    below = (mean_x**2 + mean_y**2 + _C1) * (variance_x + variance_y + _C2)
    return max(0.0, float((above / below).mean()))


def pixel(picture: Image, target: Image) -> float:
    """1 - the mean absolute difference of red, green and blue, as a share of 255."""
    difference = np.abs(np.asarray(picture, np.float64) - np.asarray(target, np.float64))
    return 1.0 - float(difference.mean()) / 255


def edge(picture: Image, target: Image) -> float:
    """2 Σ min(a, b) / Σ (a + b) over the strengths of edges a and b (Sobel, blurred by a pixel so that a near miss
    counts a little); 1 where neither has any."""
    a, b = _edges(picture), _edges(target)
    total = float((a + b).sum())
    return 2 * float(np.minimum(a, b).sum()) / total if total > _NO_EDGES else 1.0


def over_blank(value: float, measure: Measure, target: Image) -> float:
    """(value - blank) / (1 - blank), at least 0, where blank is what an empty white picture scores. A target that is
    blank itself leaves the value as it is."""
    blank = measure(new_image("RGB", target.size, "white"), target)
    return value if blank >= 1 - _NO_EDGES else max(0.0, (value - blank) / (1 - blank))


def _grey(picture: Image) -> Array:
    return np.asarray(picture.convert("L"), np.float64)


def _window(values: Array) -> Array:
    filtered: Array = ndimage.gaussian_filter(values, _SIGMA)
    return filtered


def _edges(picture: Image) -> Array:
    grey = _grey(picture)
    strength = np.hypot(ndimage.sobel(grey, 0), ndimage.sobel(grey, 1))
    blurred: Array = ndimage.gaussian_filter(strength, _EDGE_BLUR)
    return blurred


MEASURES: dict[str, Measure] = {"ssim": ssim, "pixel": pixel, "edge": edge}
