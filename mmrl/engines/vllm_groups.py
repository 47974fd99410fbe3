"""A group whose responses are still being sampled by vLLM: its requests, and what has come of them.

vLLM decides nothing about the end of a response but its length and its end tokens. Stop strings follow mmrl's rule:
a response ends with the token that completes one in its text, and that token is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mmrl.batch import PreparedPrompt, build_group_batch
from mmrl.engines.base import SamplingParams
from mmrl.engines.finite import NotFiniteError
from mmrl.engines.stopping import StopStrings
from mmrl.errors import ModelError
from mmrl.models.processing import PromptProcessor
from mmrl.types import Rollout, RolloutGroup, Sample


class GrowingGroup:
    """prompt: at least a sketch. seeds: of its responses, in order. version: of the weights that sample it."""

    def __init__(
        self,
        sample: Sample,
        prompt: PreparedPrompt,
        seeds: Sequence[int],
        params: SamplingParams,
        prompts: PromptProcessor,
        version: int,
    ) -> None:
        self.sample = sample
        self.prompt = prompt
        self._seeds = seeds
        self._params = params
        self._prompts = prompts
        self._version = version
        self._stops = StopStrings(params.stop, prompts.decode)
        self._token_ids: list[list[int]] = [[] for _ in seeds]
        self._logprobs: list[list[float]] = [[] for _ in seeds]
        self._rollouts: dict[int, Rollout] = {}
        self._finished: RolloutGroup | None = None

    def requests(self) -> Iterator[Any]:
        """vLLM's sampling params of each response. What the draw of tokens needs goes along in `extra_args`; to vLLM
        itself it is a greedy request, with nothing of a checkpoint's own settings."""
        from vllm import SamplingParams as Request
        from vllm.sampling_params import RequestOutputKind

        from mmrl.engines.vllm_sampler import request_arguments

        kind = RequestOutputKind.DELTA if self._stops else RequestOutputKind.FINAL_ONLY
        for seed in self._seeds:
            yield Request(
                temperature=0.0,
                max_tokens=self._params.max_response_tokens,
                stop_token_ids=sorted(self._prompts.end_token_ids),
                ignore_eos=True,
                logprobs=0,
                flat_logprobs=True,
                detokenize=False,
                output_kind=kind,
                extra_args=request_arguments(self._params, seed),
            )

    def take(self, index: int, output: Any) -> bool:
        """vLLM's further tokens of a response; whether it has ended with them.

        Raises NotFiniteError for log-probabilities that are no numbers, ModelError for what must never be sampled.
        """
        token_ids, logprobs = self._token_ids[index], self._logprobs[index]
        token_ids += output.token_ids
        logprobs += output.logprobs.logprobs[-len(output.token_ids) :]
        self._check(index)
        if token_ids[-1] in self._prompts.end_token_ids or self._completes_stop(token_ids):
            self._finish(index, "stop")
        elif len(token_ids) == self._params.max_response_tokens:
            self._finish(index, "length")
        elif output.finish_reason is not None:
            raise ModelError(
                f"sample {self.sample.id}, response {index}: vllm ended it after {len(token_ids)} tokens with "
                f"{output.finish_reason!r}, neither at an end token nor at the limit of "
                f"{self._params.max_response_tokens}; see its log for why"
            )
        return index in self._rollouts

    @property
    def is_finished(self) -> bool:
        return len(self._rollouts) == len(self._seeds)

    @property
    def finished(self) -> RolloutGroup:
        """The group, always the same object; all of its responses must be there."""
        if self._finished is None:
            assert self.is_finished, "responses of the group are still sampled"
            rollouts = tuple(self._rollouts[index] for index in range(len(self._seeds)))
            self._finished = RolloutGroup(self.sample, rollouts)
        return self._finished

    def _completes_stop(self, token_ids: list[int]) -> bool:
        stops = self._stops
        return bool(stops) and stops.within(token_ids[-stops.num_last_tokens :]) and stops.within(token_ids)

    def _check(self, index: int) -> None:
        token_ids, logprobs = self._token_ids[index], self._logprobs[index]
        if not all(map(math.isfinite, logprobs)):
            raise NotFiniteError(
                f"sample {self.sample.id}, response {index}: the model's log-probabilities are not finite under policy "
                f"version {self._version}; its weights have diverged. Go on from an earlier checkpoint with a lower "
                "optim.lr",
                batch=build_group_batch([self.prompt], [(self._rollout(index, "length"),)]),
            )
        banned = set(token_ids).intersection(self._prompts.banned_token_ids)
        if banned:
            raise ModelError(
                f"sample {self.sample.id}, response {index}: vllm sampled the banned ids {sorted(banned)}, which no "
                "sampler of mmrl does; this version of vllm does not use mmrl's draw of tokens. Use one that mmrl was "
                "tested with (0.32, 0.33)"
            )

    def _finish(self, index: int, reason: Any) -> None:
        self._rollouts[index] = self._rollout(index, reason)

    def _rollout(self, index: int, reason: Any) -> Rollout:
        token_ids = self._token_ids[index]
        return Rollout(
            sample_id=self.sample.id,
            index=index,
            token_ids=tuple(token_ids),
            response_mask=(1,) * len(token_ids),
            logprobs=tuple(self._logprobs[index]),
            finish_reason=reason,
            text=self._prompts.decode(token_ids),
            policy_version=self._version,
            seed=self._seeds[index],
        )
