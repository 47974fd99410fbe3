"""The reward `caption`: overlap of a caption with reference captions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from rapidfuzz.distance import LCSseq

from mmrl.config.reward import CaptionRewardConfig
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score
from mmrl.rewards.text import last_box, normalise_width

_WITHOUT_SPACES = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNIT = re.compile(rf"[{_WITHOUT_SPACES}]|[^\W{_WITHOUT_SPACES}]+")


class CaptionReward(Reward):
    """One of three well-known measures, from 0 to 1, after width normalisation and with runs of space as one:

    chrf: chrF2 (Popović 2015, 2017), as sacrebleu computes it: F-score of character sequences of 1 to 6, recall twice
        as heavy, the best reference's.
    bleu: sentence BLEU-4 (Papineni 2002), as sacrebleu computes it, with exponential smoothing and effective order; all
        references together.
    rouge_l: ROUGE-L (Lin 2004): F1 of the longest common sequence of words, a Chinese or Japanese character counting
        as one; the best reference's.
    """

    def __init__(self, config: CaptionRewardConfig) -> None:
        self._config = config
        self._compare = _COMPARE[config.measure]

    @classmethod
    def preload(cls) -> None:
        import sacrebleu  # noqa: F401  (takes a while)

    def score(self, item: RewardItem) -> Score:
        references = [self._prepared(text) for text in self._references(item)]
        caption = last_box(item.response) if self._config.boxed else item.response.strip()
        if not caption:
            what = r"no \boxed{...} with a caption" if self._config.boxed else "the response is empty"
            return Score(0.0, None, what)
        value = min(1.0, max(0.0, self._compare(self._prepared(caption), references)))
        many = f"{len(references)} references" if len(references) > 1 else "the reference"
        return Score(value, caption, f"{self._config.measure} {value:.3f} against {many}")

    def _references(self, item: RewardItem) -> list[str]:
        kept = item.sample.meta.get(self._config.references)
        if kept is None:
            kept = _list_in(item.answer) or [item.answer]
        texts = [kept] if isinstance(kept, str) else kept
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) and text.strip() for text in texts):
            raise RewardFailure(f"its references must be texts that are not empty (got {str(kept)[:80]!r})")
        if not texts:
            raise RewardFailure("the sample has no reference caption")
        return list(texts)

    def _prepared(self, text: str) -> str:
        text = " ".join(normalise_width(text).split())
        return text.casefold() if self._config.ignore_case else text


def chrf(caption: str, references: Sequence[str]) -> float:
    from sacrebleu import sentence_chrf

    return float(sentence_chrf(caption, list(references)).score) / 100


def bleu(caption: str, references: Sequence[str]) -> float:
    from sacrebleu import sentence_bleu

    tokens = " ".join(_UNIT.findall(caption))
    given = [" ".join(_UNIT.findall(text)) for text in references]
    return float(sentence_bleu(tokens, given, tokenize="none", use_effective_order=True).score) / 100


def rouge_l(caption: str, references: Sequence[str]) -> float:
    given = _UNIT.findall(caption)
    return max(_f1(given, _UNIT.findall(reference)) for reference in references)


def _f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    total = len(given) + len(wanted)
    return 2 * LCSseq.similarity(given, wanted) / total if total else 0.0


def _list_in(answer: str) -> list[str] | None:
    """The texts of an answer that is a JSON list of them, None for any other."""
    if not answer.lstrip().startswith("["):
        return None
    try:
        parsed = json.loads(answer)
    except ValueError:
        return None
    return parsed if isinstance(parsed, list) and all(isinstance(text, str) for text in parsed) else None


_COMPARE: dict[str, Callable[[str, Sequence[str]], float]] = {"chrf": chrf, "bleu": bleu, "rouge_l": rouge_l}
