"""How one token is drawn: seeds, noise, truncation and choice. Pure functions over rows; no model, no loop.

B rows, V tokens of vocabulary.

A response must not depend on what it is batched with, so its noise comes from a counter: token t of a response reads
the outputs of its own SplitMix64 stream (Steele, Lea and Flood 2014, 'Fast splittable pseudorandom number generators')
at fixed places, whatever rows stand beside it. The draw itself is Gumbel-max in two levels, first a block of the
vocabulary and then a token in it: exactly the softmax distribution from about 2·sqrt(V) random numbers instead of V.
Batches of other shapes change log-probabilities in the seventh digit. A Gumbel-max draw changes only when its two best
scores lie closer than that, so about once in ten million tokens; the inverse of a cumulative sum would change at any
of V boundaries, each of which moves by the sum of all changes before it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrl.engines.base import SamplingParams
from mmrl.errors import ConfigError

_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def check_params(params: SamplingParams) -> None:
    """Raises ConfigError on a value that no engine can sample with."""
    if params.max_response_tokens < 1:
        raise ConfigError(f"max_response_tokens must be at least 1 (got {params.max_response_tokens})")
    if not (math.isfinite(params.temperature) and params.temperature >= 0):
        raise ConfigError(f"temperature must be 0 (greedy) or a positive number (got {params.temperature})")
    if not 0 < params.top_p <= 1:
        raise ConfigError(f"top_p must be above 0 and at most 1, which is off (got {params.top_p})")
    if params.top_k < 0:
        raise ConfigError(f"top_k must be 0, which is off, or more (got {params.top_k})")
    if "" in params.stop:
        raise ConfigError("stop: the empty string is part of every text, so each response would end at once; remove it")


def response_seed(seed: int, step: int, sample_id: str, index: int) -> int:
    """The seed of response `index` to a sample in one step of a run: 63 bits, the same on every machine."""
    key = f"{seed}:{step}:{index}:{sample_id}".encode()
    return int.from_bytes(blake2b(key, digest_size=8, person=b"mmrl-rollout").digest(), "big") >> 1


def group_seeds(seed: int, step: int, sample_ids: Sequence[str], num_responses: int) -> list[list[int]]:
    """The seeds of `num_responses` responses to each of the samples that one step asks for.

    Where a sample comes again its index counts on, so that it gets other responses than before.
    """
    seen: Counter[str] = Counter()
    seeds = []
    for sample_id in sample_ids:
        first = seen[sample_id] * num_responses
        seen[sample_id] += 1
        seeds.append([response_seed(seed, step, sample_id, first + index) for index in range(num_responses)])
    return seeds


def draw_tokens(
    log_probs: Tensor, params: SamplingParams, seeds: Tensor, position: int | Tensor
) -> tuple[Tensor, Tensor]:
    """Token `position` of each row: ids (B,) int64 and their log-probabilities (B,) float32.

    log_probs: (B, V) float32 after temperature and bans; seeds: (B,) int64. position: of all rows, or (B,) int64.
    The log-probabilities are those of `log_probs` itself, before top_k and top_p cut its support: the actor's.
    """
    if params.temperature == 0:
        token_ids = log_probs.argmax(-1)
    else:
        token_ids = sample_tokens(truncate(log_probs, top_k=params.top_k, top_p=params.top_p), seeds, position)
    return token_ids, log_probs.gather(-1, token_ids[:, None]).squeeze(-1)


def truncate(log_probs: Tensor, *, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """(B, V) with tokens outside the support at -inf; not normalised again.

    top_k keeps the most likely k. Of these, top_p keeps the smallest set, most likely first, that holds at least this
    share of their probability. Ties are kept in order of id.
    """
    vocabulary = log_probs.shape[-1]
    if top_p >= 1 and not 0 < top_k < vocabulary:
        return log_probs
    values, order = log_probs.sort(dim=-1, descending=True, stable=True)
    if 0 < top_k < vocabulary:
        values, order = values[:, :top_k], order[:, :top_k]
    if top_p < 1:
        probs = values.double().softmax(-1)
        mass_before = probs.cumsum(-1) - probs
        values = values.masked_fill(mass_before >= top_p, -torch.inf)
    return torch.full_like(log_probs, -torch.inf).scatter(-1, order, values)


def sample_tokens(log_probs: Tensor, seeds: Tensor, position: int | Tensor) -> Tensor:
    """(B,) int64: one token a row with probability proportional to exp(log_probs), which need not be normalised.

    argmax over blocks of log(sum of probabilities) + Gumbel, then argmax within the chosen block of
    log-probability + Gumbel: P(block) · P(token | block).
    """
    num_rows, vocabulary = log_probs.shape
    width = 1 << math.ceil(math.log2(max(vocabulary, 2)) / 2)
    num_blocks = -(-vocabulary // width)
    blocks = pad(log_probs, (0, num_blocks * width - vocabulary), value=-torch.inf).view(num_rows, num_blocks, width)
    noise = gumbel(seeds, position * (num_blocks + width), num_blocks + width)
    block = (blocks.logsumexp(-1) + noise[:, :num_blocks]).argmax(-1)
    inside = blocks[torch.arange(num_rows, device=log_probs.device), block]
    return block * width + (inside + noise[:, num_blocks:]).argmax(-1)


def gumbel(seeds: Tensor, first: int | Tensor, count: int) -> Tensor:
    """(B, count) float64 standard Gumbel noise from places first..first+count-1 of each row's stream."""
    bits = random_bits(seeds, first, count)
    uniforms = (_shift_right(bits, 12).double() + 0.5) * 2.0**-52
    return -torch.log(-torch.log(uniforms))


def random_bits(seeds: Tensor, first: int | Tensor, count: int) -> Tensor:
    """(B, count) int64: outputs first..first+count-1 (from 0) of SplitMix64 seeded with each of `seeds` (B,).

    first: of all rows, or (B,) int64.
    Products and sums wrap around, so int64 holds the bits of the algorithm's unsigned words.
    """
    places = torch.arange(1, count + 1, dtype=torch.int64, device=seeds.device)
    places = places + (first[:, None] if isinstance(first, Tensor) else first)
    words = seeds[:, None] + places * _signed(_GAMMA)
    words = (words ^ _shift_right(words, 30)) * _signed(_MIX_1)
    words = (words ^ _shift_right(words, 27)) * _signed(_MIX_2)
    return words ^ _shift_right(words, 31)


def _shift_right(words: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's own brings in copies of the sign bit."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 64)
