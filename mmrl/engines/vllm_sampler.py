"""The draw of a token inside vLLM: a logits processor that takes the place of vLLM's own sampler.

vLLM's sampler would do for the plainest settings only. Its log-probabilities are taken after top_k and top_p have cut
the support, so that the actor's can never equal them; its noise comes from generators that advance with every pass; its
bans are a bias. So each row is drawn here as in every other engine (`engines.sampling`): bans and temperature,
log-softmax, noise from the response's own seed and place. What is handed back are logits that are -inf except at the
drawn token, where its log-probability stands: vLLM then 'samples' greedily, and in `processed_logits` mode the value it
reports for the token is that log-probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from mmrl.engines.base import SamplingParams
from mmrl.engines.sampling import draw_tokens

BANNED = "mmrl_banned_token_ids"
"""Key of vLLM's `additional_config`: ids that have no probability."""

REQUEST = "mmrl"
"""Key of a request's `extra_args`: its seed and settings, as `request_arguments` writes them."""


def request_arguments(params: SamplingParams, seed: int) -> dict[str, Any]:
    """What a request carries for the draw of its tokens."""
    settings = (params.max_response_tokens, params.temperature, params.top_p, params.top_k)
    return {REQUEST: {"seed": seed, "settings": settings}}


class _Row(NamedTuple):
    """output_ids: vLLM's own list of the request's tokens, which grows."""

    seed: int
    settings: tuple[int, float, float, int]
    output_ids: Sequence[int]


class DrawCounts(NamedTuple):
    """Passes since last asked, their rows, and the passes in which a response got its first token."""

    steps: int
    rows: int
    first_steps: int


class DrawTokens(LogitsProcessor):
    """Built by vLLM, once an engine and process."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        banned = vllm_config.additional_config[BANNED]
        self._banned = torch.tensor(banned, dtype=torch.int64, device=device)
        self._device = device
        self._rows: dict[int, _Row] = {}
        self._groups: list[tuple[SamplingParams, list[int], Tensor, Tensor]] | None = None
        self._counts = DrawCounts(0, 0, 0)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        if process_dict_updates(self._rows, batch_update, _row_of):
            self._groups = None

    def apply(self, logits: Tensor) -> Tensor:
        """logits: (B, V) float32. Rows of requests that are not mmrl's stay as they are."""
        positions = [0] * len(logits)
        for index, row in self._rows.items():
            positions[index] = len(row.output_ids)
        self._count(positions)
        for params, rows, row_index, seeds in self._by_settings():
            places = torch.tensor([positions[row] for row in rows], device=self._device)
            self._draw(logits, params, row_index, seeds, places)
        return logits

    def take_counts(self) -> DrawCounts:
        counts, self._counts = self._counts, DrawCounts(0, 0, 0)
        return counts

    def _draw(self, logits: Tensor, params: SamplingParams, rows: Tensor, seeds: Tensor, places: Tensor) -> None:
        whole = len(rows) == len(logits)
        scores = logits if whole else logits[rows]
        if params.temperature not in (0.0, 1.0):
            scores = scores.div_(params.temperature)
        log_probs = scores.index_fill_(-1, self._banned, -torch.inf).log_softmax(-1)
        token_ids, chosen = draw_tokens(log_probs, params, seeds, places)
        logits[rows] = -torch.inf
        logits[rows, token_ids] = chosen

    def _by_settings(self) -> list[tuple[SamplingParams, list[int], Tensor, Tensor]]:
        """Rows that share their settings, which all rows of one `generate` do."""
        if self._groups is None:
            rows_of: dict[tuple[int, float, float, int], list[int]] = {}
            for index in sorted(self._rows):
                rows_of.setdefault(tuple(self._rows[index].settings), []).append(index)  # type: ignore[arg-type]
            self._groups = [
                (
                    SamplingParams(*settings),
                    rows,
                    torch.tensor(rows, device=self._device),
                    torch.tensor([self._rows[row].seed for row in rows], device=self._device),
                )
                for settings, rows in rows_of.items()
            ]
        return self._groups

    def _count(self, positions: Sequence[int]) -> None:
        steps, rows, first_steps = self._counts
        self._counts = DrawCounts(steps + 1, rows + len(positions), first_steps + int(0 in positions))


def _row_of(params: Any, _: Sequence[int] | None, output_ids: Sequence[int]) -> _Row | None:
    own = (params.extra_args or {}).get(REQUEST)
    return None if own is None else _Row(own["seed"], tuple(own["settings"]), output_ids)
