"""How good the preferences of a reward model are on held-out pairs: how often it is right, and how well it knows."""

from __future__ import annotations

from torch import Tensor

NUM_BINS = 10


def preference_metrics(differences: Tensor) -> dict[str, float]:
    """Of (pairs,) differences, score of the chosen answer less that of the rejected one, at least one pair.

    accuracy: share above zero, a tie counting half. margin: their mean. With p = sigma(difference) the probability
    that the model gives to people's choice: brier, the mean of (1 - p)^2 (Brier 1950), and ece, the expected
    calibration error (arXiv 1706.04599, equation 3) of the answer that it prefers, over 10 bins of its confidence
    max(p, 1 - p).
    """
    differences = differences.double()
    is_right = (differences > 0).double() + 0.5 * (differences == 0).double()
    chance = differences.sigmoid()
    return {
        "accuracy": float(is_right.mean()),
        "margin": float(differences.mean()),
        "brier": float((1 - chance).square().mean()),
        "ece": expected_calibration_error(chance.maximum(1 - chance), is_right),
    }


def expected_calibration_error(confidence: Tensor, is_right: Tensor) -> float:
    """Sum over bins of (share of answers in it) · |share that is right - mean confidence|; bins half-open from 0 to 1,
    the last one closed."""
    bins = (confidence * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    total = 0.0
    for number in range(NUM_BINS):
        inside = bins == number
        if inside.any():
            gap = is_right[inside].mean() - confidence[inside].mean()
            total += float(inside.double().mean() * gap.abs())
    return total
