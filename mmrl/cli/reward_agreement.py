"""`mmrl reward agreement`: whether a config's rewards prefer the answers that people preferred."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.evaluation.reward_agreement import OrderAgreement
    from mmrl.types import RewardResult, Sample

_SHOWN = 5
_AT_A_TIME = 250


@dataclass(frozen=True)
class ScoredPair:
    """A row with `chosen` and `rejected`, and how the rewards score both."""

    sample: Sample
    texts: tuple[str, str]
    results: tuple[RewardResult, RewardResult]


def compare_with_people(config: str, overrides: Sequence[str], *, marks: str, limit: int | None, json: bool) -> None:
    """marks: a data set of pairs. Raises DataError for one without, ConfigError for a config without rewards."""
    from mmrl.cli.output import print_json
    from mmrl.config.loading import load_config
    from mmrl.data import load_dataset
    from mmrl.errors import ConfigError

    run = load_config(config, overrides).run_config
    if not run.reward:
        raise ConfigError(f"{config} names no rewards; add some, such as `reward: [{{type: exact}}]`")
    pairs = _score(run, _pairs_of(load_dataset(marks, limit=limit), marks))
    found = _agreements(pairs)
    if json:
        against = [_row(pair) for pair in pairs if _is_against(pair)]
        print_json({"data": marks, "pairs": len(pairs), "agreement": [asdict(each) for each in found], "rows": against})
        return
    _print(marks, found, [pair for pair in pairs if _is_against(pair)])


def _pairs_of(samples: Sequence[Sample], marks: str) -> list[tuple[Sample, tuple[str, str]]]:
    from mmrl.data.preference import PAIR
    from mmrl.errors import DataError

    pairs = [
        (sample, (_text(sample.meta[PAIR[0]]), _text(sample.meta[PAIR[1]])))
        for sample in samples
        if all(name in sample.meta for name in PAIR)
    ]
    if not pairs:
        raise DataError(f"{marks} has no rows with `chosen` and `rejected`; name a data set of preferences")
    return pairs


def _score(run: Any, pairs: Sequence[tuple[Sample, tuple[str, str]]]) -> list[ScoredPair]:
    from mmrl.cli.output import note
    from mmrl.rewards.runner import RewardRunner

    texts = [(sample, text) for sample, both in pairs for text in both]
    results: list[RewardResult] = []
    with RewardRunner(run.reward, run.reward_runner) as runner:
        for start in range(0, len(texts), 2 * _AT_A_TIME):
            results += runner.score_texts(texts[start : start + 2 * _AT_A_TIME])
            note(f"scored {len(results):,} of {len(texts):,} answers")
    both = zip(results[::2], results[1::2], strict=True)
    return [ScoredPair(sample, answers, scored) for (sample, answers), scored in zip(pairs, both, strict=True)]


def _agreements(pairs: Sequence[ScoredPair]) -> list[OrderAgreement]:
    """Of the total, then of each part."""
    from mmrl.evaluation.reward_agreement import Judged, order_agreement

    names = dict.fromkeys(part.name for pair in pairs for result in pair.results for part in result.parts)
    prompts = [str(pair.sample.messages) for pair in pairs]
    both = list(zip(prompts, pairs, strict=True))
    totals = [Judged(prompt, "a", pair.results[0].total, pair.results[1].total) for prompt, pair in both]
    found = [order_agreement("total", totals)]
    for name in names:
        values = [Judged(prompt, "a", *(_value(each, name) for each in pair.results)) for prompt, pair in both]
        found.append(order_agreement(name, values))
    return found


def _value(result: RewardResult, name: str) -> float | None:
    return next((part.value for part in result.parts if part.name == name), None)


def _is_against(pair: ScoredPair) -> bool:
    chosen, rejected = (result.total for result in pair.results)
    return chosen is not None and rejected is not None and rejected > chosen


def _row(pair: ScoredPair) -> dict[str, Any]:
    return {
        "sample": pair.sample.id,
        "answer": pair.sample.answer,
        **{
            name: {"text": text, "total": result.total, "parts": [asdict(part) for part in result.parts]}
            for name, text, result in zip(("chosen", "rejected"), pair.texts, pair.results, strict=True)
        },
    }


def _print(marks: str, found: Sequence[OrderAgreement], against: Sequence[ScoredPair]) -> None:
    from mmrl.cli.output import note, print_table
    from mmrl.runs.inert import inert

    columns = ["reward", "agrees", "disagrees", "same value", "missing", "share", "95 %"]
    rows = [
        [each.reward, each.agrees, each.disagrees, each.reward_ties, each.missing, each.share, _interval(each)]
        for each in found
    ]
    print_table(rows, columns)
    if against:
        note(f"{len(against)} pairs of {marks} in which the rejected answer has the higher total, such as:")
    for pair in against[:_SHOWN]:
        totals = " < ".join(f"{result.total:.3f}" for result in pair.results)
        print(f"\n{pair.sample.id}: {totals}")
        for name, text in zip(("chosen", "rejected"), pair.texts, strict=True):
            print(f"  {name}: {inert(text, one_line=True)[:200] or '(empty)'}")


def _interval(found: OrderAgreement) -> str:
    return "" if found.low is None or found.high is None else f"{found.low:.3f} to {found.high:.3f}"


def _text(messages: Any) -> str:
    """An answer as the policy would have sampled it: the texts of its turns."""
    from mmrl.data.serialise import messages_from_json

    return "\n".join(message.text for message in messages_from_json(messages))
