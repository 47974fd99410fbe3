"""What is to be known of pairs before they are learned from or compared: no error, and nothing that may stay unsaid."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.config import RunConfig
from mmrl.trainer.run_data import RunData
from mmrl.trainer.targets import judged_of, pair_of
from mmrl.types import Sample


def pair_notes(config: RunConfig, data: RunData) -> list[str]:
    """Pairs whose two answers are the same, and held-out rows that were never judged; nothing for other kinds."""
    if config.kind not in ("preference", "reward_model"):
        return []
    notes = [_same_answers(samples, what) for samples, what in _named(data)]
    is_compared = judged_of if config.kind == "preference" and config.preference.type == "kto" else pair_of
    lacking = [sample for sample in data.held_out if not is_compared(sample)]
    if lacking:
        what = "only answered and graded" if config.reward else "left out of evaluation"
        notes.append(
            f"data.eval: {len(lacking)} of {len(data.held_out)} samples were not judged (no chosen and rejected) and "
            f"are {what}; first: {lacking[0].place}"
        )
    return [note for note in notes if note]


def _named(data: RunData) -> Sequence[tuple[Sequence[Sample], str]]:
    return (data.train, "data.train"), (data.held_out, "data.eval")


def _same_answers(samples: Sequence[Sample], what: str) -> str:
    pairs = [(sample, pair) for sample in samples if (pair := pair_of(sample)) is not None]
    same = [sample for sample, (chosen, rejected) in pairs if chosen.turns == rejected.turns]
    if not same:
        return ""
    return (
        f"{what}: {len(same)} of {len(pairs)} pairs prefer an answer over the same one, which teaches no preference "
        f"and counts half in accuracy; mend these rows or leave them out; first: {same[0].place}"
    )
