"""How far a reward orders answers as people do.

The unit is a pair of answers to one prompt. Where people prefer one and the reward gives the two different values, it
agrees or disagrees. Pairs of one prompt are no independent draws, and a ranking of six answers alone makes fifteen: the
share that agrees is over the pairs, its Wilson interval over their prompts. Equal values are counted apart, since they
say nothing of the pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mmrl.evaluation.intervals import wilson
from mmrl.evaluation.majority import Majority

_SAME = 1e-9


@dataclass(frozen=True)
class Judged:
    """prompt: what tells its prompt from others. people: the choice of most of them.

    a, b: what the reward gives; None where it has no value.
    """

    prompt: str
    people: Majority
    a: float | None
    b: float | None


@dataclass(frozen=True)
class OrderAgreement:
    """reward: its name. agrees, disagrees: pairs that people and the reward both order. reward_ties: people prefer one,
    the reward gives both the same. missing: people prefer one, and an answer has no value. people_ties: most of them
    prefer none, or they are divided.

    share: agrees / (agrees + disagrees), with low and high at 95 % over num_prompts, the prompts of these pairs; None
    where there is no such pair.
    """

    reward: str
    agrees: int
    disagrees: int
    reward_ties: int
    missing: int
    people_ties: int
    num_prompts: int
    share: float | None
    low: float | None
    high: float | None


def order_agreement(reward: str, pairs: Iterable[Judged]) -> OrderAgreement:
    kinds = [(pair.prompt, _kind(pair)) for pair in pairs]
    counts = Counter(kind for _, kind in kinds)
    agrees, disagrees = counts["agrees"], counts["disagrees"]
    num_prompts = len({prompt for prompt, kind in kinds if kind in ("agrees", "disagrees")})
    share = agrees / (agrees + disagrees) if num_prompts else None
    low, high = wilson(share * num_prompts, num_prompts) if share is not None else (None, None)
    return OrderAgreement(
        reward=reward,
        agrees=agrees,
        disagrees=disagrees,
        reward_ties=counts["reward_ties"],
        missing=counts["missing"],
        people_ties=counts["people_ties"],
        num_prompts=num_prompts,
        share=share,
        low=low,
        high=high,
    )


def _kind(pair: Judged) -> str:
    if pair.people not in ("a", "b"):
        return "people_ties"
    if pair.a is None or pair.b is None:
        return "missing"
    if abs(pair.a - pair.b) <= _SAME:
        return "reward_ties"
    return "agrees" if (pair.a > pair.b) == (pair.people == "a") else "disagrees"
