"""The reward `language`: the response is in the wanted language, told by its script."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

from mmrl.config.reward import LanguageRewardConfig
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score

_SCRIPTS = {
    "en": {"LATIN"},
    "zh": {"CJK"},
    "ja": {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"},
    "ko": {"HANGUL"},
    "ru": {"CYRILLIC"},
    "el": {"GREEK"},
    "ar": {"ARABIC"},
    "he": {"HEBREW"},
    "hi": {"DEVANAGARI"},
    "th": {"THAI"},
}
_SYMBOLS = {"MATHEMATICAL", "DOUBLE-STRUCK", "BLACK-LETTER", "SCRIPT", "MODIFIER", "MICRO", "FEMININE", "MASCULINE"}
_NOT_LANGUAGE = re.compile(
    r"```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|\\\[.*?\\\]|\\\(.*?\\\)|\\f?box(?:ed)?\s*\{[^{}]*\}|\\[a-zA-Z]+|</?[A-Za-z][\w:-]*(?:\s[^<>\n]*=[^<>\n]*)?\s*/?>"
    r"|https?://\S+",
    re.DOTALL,
)


_PROSE_FENCE = re.compile(r"```(?:text|txt|plain|plaintext|markdown|md)?[ \t]*\n(.*?)```", re.DOTALL)
"""A fence that names no programming language: where nothing else has letters, what stands in it is the response."""


class LanguageReward(Reward):
    """The share of the response's letters that are of the language's script, or 1 and 0 against a threshold.

    Formulas, boxes, code, tags and addresses are left out on both sides. A response without letters scores 1 if it has
    anything in it (a bare number is in no language), 0 if it is empty.
    """

    def __init__(self, config: LanguageRewardConfig) -> None:
        self._language = config.language
        self._threshold = config.threshold

    def score(self, item: RewardItem) -> Score:
        wanted = self._language if self._language != "prompt" else _language_of_prompt(item)
        if not item.response.strip():
            return Score(0.0, None, "the response is empty")
        letters = count_scripts(item.response) or count_scripts(_PROSE_FENCE.sub(r"\1", item.response))
        if not letters:
            return Score(1.0, None, "no letters outside formulas and code")
        share = sum(count for script, count in letters.items() if script in _SCRIPTS[wanted]) / letters.total()
        value = share if self._threshold is None else float(share >= self._threshold)
        return Score(value, letters.most_common(1)[0][0].lower(), f"{share:.0%} of the letters are {wanted}")


def count_scripts(text: str) -> Counter[str]:
    """Script -> number of letters in the text, formulas and code left out."""
    plain = _NOT_LANGUAGE.sub(" ", text)
    return Counter(script for character in plain if character.isalpha() and (script := _script(character)))


def _language_of_prompt(item: RewardItem) -> str:
    users = [message.text for message in item.sample.messages if message.role == "user"]
    scripts = count_scripts("\n".join(users))
    if scripts["HIRAGANA"] + scripts["KATAKANA"]:
        return "ja"
    for script, _ in scripts.most_common():
        for language, names in _SCRIPTS.items():
            if script in names:
                return language
    raise RewardFailure("the prompt has no letters of a known script to tell its language by; set `language`")


@lru_cache(maxsize=4096)
def _script(character: str) -> str | None:
    """The first word of the character's Unicode name; None for letters that are symbols."""
    name = unicodedata.name(character, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")
    first = name.split(" ")[0]
    return first if first and first not in _SYMBOLS else None
