"""The decoding loop: rows over a prompt cache, one token a step, until every row has ended.

Nothing in a step goes row by row except the search for stop strings, and the only wait for the device is for the rows
that ended in it. Rows that ended stay in the batch as ballast until enough of it is ballast; then the rest moves on
alone, which copies its cache once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrl.engines.base import SamplingParams
from mmrl.engines.sampling import draw_tokens
from mmrl.engines.stopping import StopStrings
from mmrl.models.fast.packed import with_packed_weights
from mmrl.models.group_cache import GroupCache
from mmrl.models.kept_responses import Recording
from mmrl.models.policy import PolicyModel, Prefix

RESERVED_TOKENS = 128
"""Room made in the cache at a time, so that a high limit on responses does not take memory that they do not fill."""

COMPACT_BELOW = 0.85
"""Share of rows still going under which the others leave the batch. On geometric lengths with the 'small' model 0.85
was the fastest of values from 0 to 1, a tenth before 0.75 and 1."""


class ResponseRow(NamedTuple):
    token_ids: list[int]
    logprobs: list[float]
    has_stopped: bool


@dataclass(frozen=True, eq=False)
class Responses:
    """R responses on the CPU, in the order of their seeds.

    token_ids: (R, longest or more) int64. logprobs: the same shape, float32.
    lengths: (R,) int64, what lies behind means nothing.
    has_stopped: (R,) bool, ended by an end token or stop string. num_steps: forward passes; num_rows: rows in all of
    them.
    """

    token_ids: Tensor
    logprobs: Tensor
    lengths: Tensor
    has_stopped: Tensor
    num_steps: int
    num_rows: int

    def rows(self) -> Iterator[ResponseRow]:
        width = int(self.lengths.max())
        columns = (self.token_ids[:, :width], self.logprobs[:, :width], self.lengths, self.has_stopped)
        whole = zip(*(column.tolist() for column in columns), strict=True)
        for token_ids, logprobs, length, has_stopped in whole:
            yield ResponseRow(token_ids[:length], logprobs[:length], has_stopped)


def join(parts: Sequence[Responses]) -> Responses:
    """Responses part after part."""
    width = max(part.token_ids.shape[1] for part in parts)
    return Responses(
        token_ids=torch.cat([pad(part.token_ids, (0, width - part.token_ids.shape[1])) for part in parts]),
        logprobs=torch.cat([pad(part.logprobs, (0, width - part.logprobs.shape[1])) for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
        has_stopped=torch.cat([part.has_stopped for part in parts]),
        num_steps=sum(part.num_steps for part in parts),
        num_rows=sum(part.num_rows for part in parts),
    )


@torch.no_grad()
def decode(
    policy: PolicyModel,
    prompts: Sequence[Prefix],
    prompt_of_row: Tensor,
    seeds: Tensor,
    params: SamplingParams,
    recording: Recording | None = None,
) -> Responses:
    """One response for each row.

    prompts: prefilled, in one part or more. prompt_of_row: (R,) int64, non-decreasing index into all of them.
    seeds: (R,) int64. recording: of the first rows, for the update.
    """
    limit, num_steps, num_rows = params.max_response_tokens, 0, 0
    cache = GroupCache(prompts, prompt_of_row)
    hidden = torch.cat([prompt.last_hidden for prompt in prompts])[prompt_of_row.to(policy.device)]
    sheet = _Sheet(policy, seeds, params)
    with with_packed_weights(policy.linear_maps(), num_rows=cache.num_rows):
        for position in range(limit):
            log_probs = policy.log_probs_of(hidden, params.temperature)
            drawn, chosen = draw_tokens(log_probs, params, sheet.seeds, position)
            going = sheet.write(position, drawn, chosen)
            if not len(going) or position + 1 == limit:
                break
            if len(going) < COMPACT_BELOW * cache.num_rows:
                cache.select(going)
                sheet.select(going)
                drawn = drawn[going]
            if position % RESERVED_TOKENS == 0:
                cache.reserve(min(RESERVED_TOKENS, limit - 1 - position))
            with nullcontext() if recording is None else recording.at(position, sheet.rows):
                hidden = _forward(policy, cache, drawn)
            num_steps, num_rows = num_steps + 1, num_rows + cache.num_rows
    return sheet.responses(num_steps, num_rows)


def _forward(policy: PolicyModel, cache: GroupCache, token_ids: Tensor) -> Tensor:
    """One more token a row: (B, hidden), what its next one is predicted from."""
    embeds = policy.family.embed(policy.hf, token_ids[:, None])
    positions = cache.next_positions[:, None].expand(policy.family.num_position_axes, -1, -1)
    hidden = policy.family.run(policy.hf, embeds, positions, mask=None, cache=cache.cache)
    cache.next_positions = cache.next_positions + 1
    return hidden[:, 0]


class _Sheet:
    """All responses, and which of them the rows of the batch are. seeds: (B,) int64, of the rows."""

    def __init__(self, policy: PolicyModel, seeds: Tensor, params: SamplingParams) -> None:
        self._limit, device = params.max_response_tokens, policy.device
        shape = (len(seeds), min(self._limit, RESERVED_TOKENS))
        self._token_ids = torch.zeros(shape, dtype=torch.int64, device=device)
        self._logprobs = torch.zeros(shape, device=device)
        self._lengths = torch.full((len(seeds),), params.max_response_tokens, device=device)
        self._has_stopped = torch.zeros(len(seeds), dtype=torch.bool, device=device)
        self._end_ids = torch.tensor(sorted(policy.end_token_ids), dtype=torch.int64, device=device)
        self._stops = StopStrings(params.stop, policy.prompts.decode)
        self._response_of_row = torch.arange(len(seeds), device=device)
        self.seeds = seeds.to(device)

    @property
    def rows(self) -> Tensor:
        """(B,) int64 ascending: which of the responses each row of the batch is."""
        return self._response_of_row

    def write(self, position: int, token_ids: Tensor, logprobs: Tensor) -> Tensor:
        """The token of each row at `position`: (rows still going,) int64, the rows that have not ended with it."""
        rows = self._response_of_row
        if position == self._token_ids.shape[1]:
            self._widen()
        self._token_ids[rows, position], self._logprobs[rows, position] = token_ids, logprobs.float()
        ended = torch.isin(token_ids, self._end_ids)
        if self._stops:
            ended |= self._completes_stop(position)
        self._lengths[rows[ended & ~self._has_stopped[rows]]] = position + 1
        self._has_stopped[rows] |= ended
        return torch.nonzero(~self._has_stopped[rows])[:, 0]

    def select(self, rows: Tensor) -> None:
        """Keeps the given rows in the batch."""
        self._response_of_row, self.seeds = self._response_of_row[rows], self.seeds[rows]

    def responses(self, num_steps: int, num_rows: int) -> Responses:
        return Responses(
            token_ids=self._token_ids.cpu(),
            logprobs=self._logprobs.cpu(),
            lengths=self._lengths.cpu(),
            has_stopped=self._has_stopped.cpu(),
            num_steps=num_steps,
            num_rows=num_rows,
        )

    def _widen(self) -> None:
        """Twice the columns, as far as the limit: a high limit takes no memory that responses do not fill."""
        width = self._token_ids.shape[1]
        missing = min(width, self._limit - width)
        self._token_ids = pad(self._token_ids, (0, missing))
        self._logprobs = pad(self._logprobs, (0, missing))

    def _completes_stop(self, position: int) -> Tensor:
        """(B,) bool: rows still going whose token at `position` completes a stop string."""
        rows, stops = self._response_of_row, self._stops
        first = max(0, position + 1 - stops.num_last_tokens)
        going = torch.nonzero(~self._has_stopped[rows])[:, 0]
        last_ids = self._token_ids[rows[going], first : position + 1].tolist()
        candidates = going[[index for index, ids in enumerate(last_ids) if stops.within(ids)]]
        whole_ids = self._token_ids[rows[candidates], : position + 1].tolist()
        completes = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        completes[candidates] = torch.tensor([stops.within(ids) for ids in whole_ids], dtype=torch.bool).to(completes)
        return completes
