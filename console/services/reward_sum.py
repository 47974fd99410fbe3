"""Why a response got its reward, and its advantage, each as one line of arithmetic.

The sum is made of what was kept of the parts and is held against the total that was kept. How an advantage came about
is found the same way: what the algorithms do with a group is tried on its rewards, and said only where it gives the
number that was kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from console.services.formats import number_text
from mmrl.runs.records import GroupRecord, ResponseRecord
from mmrl.types import RewardPart

_NEAR = 2e-4
_NO_SPREAD = 1e-6
_MINUS, _TIMES, _OVER = "−", "×", "÷"


@dataclass(frozen=True)
class Told:
    """line: the arithmetic. note: what else a reader must know, empty where nothing."""

    line: str
    note: str = ""


def sum_of(response: ResponseRecord) -> Told:
    """The reward as the sum of its parts, each its value times its weight."""
    if not response.parts:
        return Told(f"reward {signed(response.reward)}", "No parts were kept of it.")
    failed = [part.name for part in response.parts if part.value is None]
    if response.reward is None:
        told = f"{', '.join(failed)} gave no value" if failed else "A part gave no value"
        return Told("no reward", f"{told}, so that the whole is missing: it is not 0, and counts in nothing.")
    vetoes = [part.name for part in response.parts if part.vetoes]
    if vetoes:
        told = f"{', '.join(vetoes)} overruled the sum of the parts, {signed(_sum(response.parts))}."
        return Told(f"reward {signed(response.reward)}, set by {', '.join(vetoes)}", told)
    counted = [part for part in response.parts if part.worth is not None]
    line = f"{' + '.join(map(_term, counted))} = {signed(response.reward)}"
    if math.isclose(_sum(counted), response.reward, rel_tol=_NEAR, abs_tol=_NEAR):
        return Told(line, _scaled_note(counted))
    told = f"The parts add up to {signed(_sum(counted))}, and the run kept {signed(response.reward)}"
    return Told(f"reward {signed(response.reward)}", f"{told}: something of the run's own changed the total.")


def advantage_of(response: ResponseRecord, group: GroupRecord, *, shaping: Sequence[str] = ()) -> Told:
    """shaping: names of the parts that an outcome gate leaves out of a group in which every response failed."""
    if response.advantage is None:
        return Told("no advantage", _why_none(response, group))
    about = f"advantage {signed(response.advantage, plus=True)}"
    for rewards, note in _readings(group, shaping):
        own = rewards.get(response.sample_idx)
        if own is None:
            continue
        for told in _ways(own, list(rewards.values()), group):
            if math.isclose(told[0], response.advantage, rel_tol=1e-3, abs_tol=_NEAR):
                return Told(
                    f"{told[1]} = {signed(response.advantage, plus=True)}", " ".join(filter(None, (told[2], note)))
                )
    return Told(
        about, "The algorithm computes it from more than this group's rewards; its mean over the tokens is shown."
    )


def spread_of(group: GroupRecord) -> str:
    """Mean and deviation (over n − 1, as the algorithms take it) of the group's rewards, in words."""
    scored = [response.reward for response in group.responses if response.reward is not None]
    if not scored:
        return "no response of the group has a reward"
    if len(scored) == 1:
        return f"one response has a reward, {signed(scored[0])}"
    if _has_no_spread(scored):
        return f"all {len(scored)} rewards are {signed(scored[0])}: a group without spread teaches nothing"
    return f"mean {signed(fmean(scored))}, sample standard deviation {signed(stdev(scored))}, of {len(scored)} rewards"


def signed(value: float | None, *, plus: bool = False) -> str:
    return "none" if value is None else number_text(value, plus=plus)


def _ways(own: float, rewards: Sequence[float], group: GroupRecord) -> list[tuple[float, str, str]]:
    """What algorithms make of a group's rewards: the value, its arithmetic, and what that is."""
    mean, num = fmean(rewards), len(rewards)
    less = f"{signed(own)} {_MINUS} {_bracketed(mean)}"
    if num > 1 and _has_no_spread(rewards):
        return [(0.0, less, "The group has no spread.")]
    found = []
    if num > 1:
        std = stdev(rewards)
        found.append(
            (
                (own - mean) / (std + 1e-6),
                f"({less}) {_OVER} {signed(std)}",
                "Reward less the group's mean, over its standard deviation.",
            )
        )
    found.append((own - mean, less, "Reward less the group's mean."))
    if num > 1:
        others = (sum(rewards) - own) / (num - 1)
        found.append(
            (
                own - others,
                f"{signed(own)} {_MINUS} {_bracketed(others)}",
                "Reward less the mean of the others.",
            )
        )
    if group.greedy is not None and group.greedy.reward is not None:
        greedy = group.greedy.reward
        found.append(
            (own - greedy, f"{signed(own)} {_MINUS} {_bracketed(greedy)}", "Reward less the greedy response's.")
        )
    return [*found, (own, signed(own), "The reward itself.")]


def _readings(group: GroupRecord, shaping: Sequence[str]) -> list[tuple[Mapping[int, float], str]]:
    """The group's rewards as they are, and as the gate leaves them."""
    as_kept = {each.sample_idx: each.reward for each in group.responses if each.reward is not None}
    readings: list[tuple[Mapping[int, float], str]] = [(as_kept, "")]
    names = [name for name in shaping if any(part.name == name for each in group.responses for part in each.parts)]
    if names:
        without = _each(group, lambda part: part.name not in names)
        note = f"Every response failed, so the outcome gate left {', '.join(names)} out."
        readings.append((without, note))
    return readings


def _each(group: GroupRecord, counts: Callable[[RewardPart], bool]) -> Mapping[int, float]:
    return {
        each.sample_idx: _sum([part for part in each.parts if counts(part)])
        for each in group.responses
        if each.reward is not None
    }


def _why_none(response: ResponseRecord, group: GroupRecord) -> str:
    if group.split != "train":
        return "Nothing is learned from an evaluation."
    if response.reward is None:
        return "A response without a reward is left out of the update."
    scored = [each.reward for each in group.responses if each.reward is not None]
    if len(scored) > 1 and _has_no_spread(scored):
        return "All rewards of the group are equal, and the run leaves such groups out."
    return "The update left this response, or its group, out."


def _has_no_spread(rewards: Sequence[float]) -> bool:
    return max(rewards) - min(rewards) <= _NO_SPREAD * max(1.0, max(map(abs, rewards)))


def _sum(parts: Sequence[RewardPart]) -> float:
    return math.fsum(part.worth for part in parts if part.worth is not None)


def _term(part: RewardPart) -> str:
    counted = part.value if part.scaled is None else part.scaled
    return f"{_bracketed(counted)} {_TIMES} {_bracketed(part.weight)}"


def _bracketed(value: float | None) -> str:
    text = signed(value)
    return f"({text})" if text.startswith(_MINUS) else text


def _scaled_note(parts: Sequence[RewardPart]) -> str:
    scaled = [part.name for part in parts if part.scaled is not None]
    return f"{', '.join(scaled)} {'is' if len(scaled) == 1 else 'are'} normalised before the weight." if scaled else ""
