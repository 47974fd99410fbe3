"""What each metric of a run means: its group, its unit and one sentence, by the names that the trainer writes."""

from __future__ import annotations

from console.services.metric_table import TABLE, MetricWords

GROUPS = (
    "Reward",
    "Evaluation",
    "Loss",
    "KL",
    "Entropy",
    "Length",
    "Sampler check",
    "Clipping",
    "Groups",
    "Critic",
    "Preference",
    "Throughput",
    "Time",
    "Memory",
    "Storage",
    "Data",
    "Other",
)
"""In the order in which a run page shows them."""
_PROMPTS = {"text": "of text prompts", "image": "of prompts with images"}


def words_of(key: str) -> MetricWords:
    """The words for a metric; a name that no table knows, such as one of a user's own stage, is said to be that."""
    for pattern, words in TABLE:
        match = pattern.fullmatch(key)
        if match:
            parts = {name: _PROMPTS.get(text or "", text or "") for name, text in match.groupdict().items()}
            return MetricWords(words.group, words.sentence.format(**parts).replace(" .", "."), words.unit)
    return MetricWords(_group_of_unknown(key), f"{key} as the run wrote it; it is none of mmrl's own metrics.")


def in_groups(keys: list[str]) -> dict[str, list[str]]:
    """The metrics by group, groups in their order, metrics in the order of the table and then by name."""
    found: dict[str, list[str]] = {}
    for key in sorted(keys, key=_rank):
        found.setdefault(words_of(key).group, []).append(key)
    return {group: found[group] for group in GROUPS if group in found}


def _rank(key: str) -> tuple[int, str]:
    return next((number for number, (pattern, _) in enumerate(TABLE) if pattern.fullmatch(key)), len(TABLE)), key


def _group_of_unknown(key: str) -> str:
    first = key.split("/", 1)[0]
    return {"reward": "Reward", "eval": "Evaluation", "memory": "Memory", "perf": "Throughput"}.get(first, "Other")
