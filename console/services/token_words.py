"""A response token by token: its text, and what sampler and trainer knew of each token.

Only the tokenizer's own file is read, by the `tokenizers` library: no model, no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mmrl.jobs.records import Job, local_path
from mmrl.runs.records import ResponseRecord

QUANTITIES = {
    "logprob": "The log-probability with which the sampler drew the token, in nats.",
    "entropy": "The entropy of the policy's next-token distribution there, in nats.",
    "ratio": "The trainer's probability of the token over the sampler's; 1 where both agree.",
    "kl": "log p − log p_ref: how much likelier the token is than under the reference, in nats.",
}
FULL_SHADE = {"logprob": 5.0, "entropy": 3.0, "ratio": 0.5, "kl": 2.0}
"""The value, without its sign and for the ratio its logarithm, at which a token has the darkest shade."""

_BROKEN = "\N{REPLACEMENT CHARACTER}"
_MAX_JOINED = 8
"""Tokens at most in a cell: a character has up to four bytes, and its first and last token may hold others' too."""


@dataclass(frozen=True)
class TokenCell:
    """A token, or those that spell one character together, as Chinese and emoji often need several.

    value: their mean, None where it was not computed. shade: 0 to 1. is_sampled: False for what the policy did not
    write, such as a tool's answer. num_tokens: how many share it.
    """

    text: str
    value: float | None
    shade: float
    is_sampled: bool
    num_tokens: int = 1


def quantities_of(response: ResponseRecord) -> list[str]:
    """Those that were kept of this response, in the order of QUANTITIES."""
    return [name for name in QUANTITIES if _values(response, name) is not None]


def cells(
    response: ResponseRecord, quantity: str, tokenizer: Any | None, *, limit: int | None = None
) -> list[TokenCell]:
    """Of the first `limit` tokens; without a tokenizer the tokens' numbers stand for their texts."""
    ids = (response.token_ids or ())[:limit]
    values = _values(response, quantity) or (None,) * len(ids)
    mask = response.response_mask or (1,) * len(ids)
    num = min(len(ids), len(values), len(mask))
    found, start = [], 0
    for text, size in _spelt(tokenizer, ids[:num], mask):
        known = [value for value in values[start : start + size] if value is not None]
        value = math.fsum(known) / len(known) if known else None
        found.append(TokenCell(text, value, _shade(value, quantity), bool(mask[start]), size))
        start += size
    return found


def tokenizer_of(job: Job) -> Any | None:
    """That of the run's last checkpoint, else of its model where that is a folder; None where neither has one."""
    for folder in model_folders(job):
        file = folder / "tokenizer.json"
        if file.is_file():
            return _load(str(file), file.stat().st_mtime_ns)
    return None


def model_folders(job: Job) -> list[Path]:
    run_dir = local_path(job.run_dir)
    checkpoints = [] if run_dir is None else sorted((run_dir / "checkpoints").glob("step-*/model"), reverse=True)
    path = (job.config.get("model") or {}).get("path")
    return [*checkpoints, *([Path(path).expanduser()] if isinstance(path, str) else [])]


@lru_cache(maxsize=8)
def _load(path: str, _changed_at: int) -> Any | None:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(path)
    except Exception:  # the library raises plain Exceptions for files that it cannot read
        return None


def _spelt(tokenizer: Any | None, ids: Sequence[int], mask: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The texts in order, each with how many tokens it takes: they are decoded together until their bytes are whole
    characters. Bytes that never become one stand as the sign for that."""
    if tokenizer is None:
        yield from ((f"[{token}]", 1) for token in ids)
        return
    start = 0
    while start < len(ids):
        stop = start + 1
        while _goes_on(tokenizer, ids, mask, start, stop):
            stop += 1
        yield _text(tokenizer, ids[start:stop]), stop - start
        start = stop


def _goes_on(tokenizer: Any, ids: Sequence[int], mask: Sequence[int], start: int, stop: int) -> bool:
    """Whether the token at `stop` goes on with a character that those from `start` begin: it begins none itself."""
    return (
        stop < len(ids)
        and stop - start < _MAX_JOINED
        and bool(mask[stop]) == bool(mask[start])
        and _text(tokenizer, ids[start:stop]).endswith(_BROKEN)
        and _text(tokenizer, ids[stop : stop + 1]).startswith(_BROKEN)
    )


def _text(tokenizer: Any, tokens: Sequence[int]) -> str:
    return str(tokenizer.decode(list(tokens), skip_special_tokens=False))


def _values(response: ResponseRecord, quantity: str) -> Sequence[float | None] | None:
    sampler, kept = response.logprobs, response.tokens
    if quantity == "logprob":
        return sampler
    if quantity == "entropy":
        return kept.entropy
    actor = kept.actor_logprobs
    if quantity == "ratio":
        return None if actor is None or sampler is None else [_ratio(a, s) for a, s in zip(actor, sampler, strict=True)]
    first, reference = actor or sampler, kept.reference_logprobs
    if first is None or reference is None:
        return None
    return [_less(one, other) for one, other in zip(first, reference, strict=True)]


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _ratio(actor: float | None, sampler: float | None) -> float | None:
    gap = _less(actor, sampler)
    return None if gap is None else math.exp(min(gap, 80.0))


def _shade(value: float | None, quantity: str) -> float:
    if value is None or not math.isfinite(value):
        return 0.0
    size = abs(math.log(max(value, 1e-30))) if quantity == "ratio" else abs(value)
    return min(1.0, size / FULL_SHADE[quantity])
