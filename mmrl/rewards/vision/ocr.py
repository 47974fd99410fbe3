"""The reward `ocr`: how much of a text was read right."""

from __future__ import annotations

import unicodedata

from rapidfuzz.distance import Levenshtein

from mmrl.config.reward import OcrRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score
from mmrl.rewards.text import last_box, normalise_width


class OcrReward(Reward):
    """max(0, 1 - edits / length), edits and the reference's length counted in characters (CER) or words (WER).

    Edits are insertions, deletions and replacements. Both sides are compared after width normalisation, with runs of
    space as one.
    """

    def __init__(self, config: OcrRewardConfig) -> None:
        self._config = config

    def score(self, item: RewardItem) -> Score:
        reference = self._units(item.answer)
        text = last_box(item.response) if self._config.boxed else item.response.strip()
        if not text:
            return Score(0.0, None, r"no \boxed{...} with a text" if self._config.boxed else "the response is empty")
        edits = Levenshtein.distance(reference, self._units(text))
        rate = edits / len(reference) if reference else float(edits > 0)
        name = "CER" if self._config.unit == "character" else "WER"
        note = f"{name} {rate:.1%}: {edits} edits on {len(reference)} {self._config.unit}s"
        return Score(max(0.0, 1.0 - rate), text, note)

    def _units(self, text: str) -> str | list[str]:
        text = normalise_width(text)
        if self._config.ignore_case:
            text = text.casefold()
        if self._config.ignore_punctuation:
            text = "".join(c if c.isspace() or unicodedata.category(c)[0] in "LMN" else " " for c in text)
        words = text.split()
        return words if self._config.unit == "word" else " ".join(words)
