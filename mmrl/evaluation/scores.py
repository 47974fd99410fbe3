"""pass@k and maj@k of one prompt, from n responses of which c are right."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

MAX_SUBSETS = 2000
"""maj@k is the mean over all subsets of k responses, or over so many drawn ones where there are more."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """The probability that at least one of k responses is right, drawn without putting back from n of which c are.

    1 - C(n - c, k) / C(n, k), the unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, equation 1). k <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"c must lie between 0 and n (got c {c}, n {n})")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs at least {k} responses (got {n})")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def majority_at_k(answers: Sequence[str | None], correct: Sequence[bool | None], k: int) -> float:
    """The expected share of right answers when k of the responses vote (self-consistency, arXiv 2203.11171).

    Each response votes for its answer; one without an answer abstains, and k responses without any vote are wrong.
    Answers with equally many votes win with equal chance. Of an answer that was graded differently the share of right
    gradings counts. The mean is over all subsets of k responses, or over `MAX_SUBSETS` drawn ones.
    """
    n = len(answers)
    if not 1 <= k <= n:
        raise ValueError(f"maj@{k} needs at least {k} responses (got {n})")
    gradings: dict[str, list[float]] = defaultdict(list)
    for answer, right in zip(answers, correct, strict=True):
        if answer is not None and right is not None:
            gradings[answer].append(float(right))
    worth = {answer: fmean(values) for answer, values in gradings.items()}
    return fmean(_vote([answers[index] for index in subset], worth) for subset in _subsets(n, k))


def _vote(answers: Sequence[str | None], worth: dict[str, float]) -> float:
    votes: dict[str, int] = defaultdict(int)
    for answer in answers:
        if answer in worth:
            votes[str(answer)] += 1
    if not votes:
        return 0.0
    most = max(votes.values())
    return fmean(worth[answer] for answer, count in votes.items() if count == most)


def _subsets(n: int, k: int) -> list[tuple[int, ...]]:
    if math.comb(n, k) <= MAX_SUBSETS:
        return list(combinations(range(n), k))
    draw = random.Random(f"maj {n} {k}")
    return [tuple(draw.sample(range(n), k)) for _ in range(MAX_SUBSETS)]
