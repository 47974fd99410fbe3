"""The rollout engine `hf`: samples with the policy itself.

`generate` takes samples this way: templates and images (`PromptProcessor`) -> waves of prompts that are sampled
together -> each prompt prefilled once, its cache shared by its group -> tokens drawn one at a time (`decoding`,
`sampling`) -> `Rollout`s. Sampler and actor ask the same `PolicyModel` for the same distribution.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from mmrl.batch import PreparedPrompt, build_group_batch
from mmrl.calls import logged_call
from mmrl.config import RunConfig
from mmrl.config.rollout import RolloutConfig
from mmrl.engines.base import NamedWeights, OnGroup, RolloutStats, SamplingParams
from mmrl.engines.decoding import ResponseRow, Responses, decode, join
from mmrl.engines.finite import NotFiniteError
from mmrl.engines.load_weights import load_named_weights
from mmrl.engines.sampling import check_params, group_seeds
from mmrl.errors import ConfigError, MmrlError, ModelError
from mmrl.models.flops import forward_flops
from mmrl.models.policy import PolicyModel, Prefix
from mmrl.types import Rollout, RolloutGroup, Sample

MAX_PREFILL_TOKENS = 16384
"""Most prompt tokens, padding included, in one forward pass."""

Wave = tuple[Sequence[Sample], list[PreparedPrompt]]
"""Samples that are sampled together, and their prompts."""


class HfRollout:
    """Meets `engines.base.RolloutEngine` with a Hugging Face model on one device.

    policy: the actor's own model, or a copy. config: of it `max_batch_rows` counts.
    shares_weights: whether `policy` is the very model that is trained; `update_weights` then has nothing to copy.
    """

    def __init__(
        self,
        policy: PolicyModel,
        config: RolloutConfig,
        *,
        shares_weights: bool = True,
        policy_version: int = 0,
        max_prefill_tokens: int = MAX_PREFILL_TOKENS,
    ) -> None:
        self._policy: PolicyModel | None = policy
        self._shares_weights = shares_weights
        self._policy_version = policy_version
        self._max_batch_rows = config.max_batch_rows
        self._max_prefill_tokens = max_prefill_tokens
        self._last_stats: RolloutStats | None = None
        self._weights_are_whole = True

    @property
    def policy_version(self) -> int:
        return self._policy_version

    @property
    def last_stats(self) -> RolloutStats | None:
        return self._last_stats

    @torch.no_grad()
    @logged_call
    def generate(
        self,
        samples: Sequence[Sample],
        params: SamplingParams,
        *,
        num_responses: int,
        seed: int,
        step: int,
        on_group: OnGroup | None = None,
        for_update: bool = False,
    ) -> list[RolloutGroup]:
        """`num_responses` rollouts for each sample, in order; see `engines.base.RolloutEngine`. Groups are finished
        wave by wave.

        Raises ConfigError for params that cannot be sampled with, NotFiniteError if the model's log-probabilities are
        no numbers, and whatever preparing a prompt raises.
        """
        policy = self._usable_policy()
        check_params(params)
        if num_responses < 1:
            raise ConfigError(f"num_responses must be at least 1 (got {num_responses})")
        started = time.perf_counter()
        stats: list[RolloutStats] = []
        groups: list[RolloutGroup] = []
        with policy.precision():
            all_seeds = iter(group_seeds(seed, step, [sample.id for sample in samples], num_responses))
            for wave, prompts in self._waves(policy, samples, num_responses):
                seeds = list(islice(all_seeds, len(wave)))
                responses, wave_stats = self._sample(policy, prompts, seeds, params, for_update=for_update)
                finished = self._groups(policy, wave, seeds, responses)
                self._check_logprobs(finished, prompts)
                groups += finished
                stats.append(wave_stats)
                if on_group is not None:
                    for group in finished:
                        on_group(group)
        self._last_stats = _add_up(stats, total_s=time.perf_counter() - started)
        return groups

    @logged_call
    def update_weights(self, weights: NamedWeights, version: int) -> None:
        """Take every weight, and `version` for what is sampled from now on. No cache outlives a `generate`.

        With shared weights there is nothing to take: the iterator is not read.
        Raises ModelError naming weights that are missing, unknown or of another shape; the engine then samples
        nothing until an update has gone through.
        """
        policy = self._open_policy()
        if not self._shares_weights:
            self._weights_are_whole = False
            load_named_weights(policy, weights)
            self._weights_are_whole = True
        self._policy_version = version

    @property
    def needs_weights(self) -> bool:
        return not self._weights_are_whole

    def sleep(self) -> None:
        """Nothing: no cache outlives a `generate`, and the weights are the actor's or on its device by choice."""

    def wake(self) -> None:
        """Nothing: it never sleeps."""

    def close(self) -> None:
        """Lets the model go; one that is shared lives on with the actor."""
        self._policy = None

    def _open_policy(self) -> PolicyModel:
        if self._policy is None:
            raise MmrlError("rollout engine 'hf' is closed; make a new one")
        return self._policy

    def _usable_policy(self) -> PolicyModel:
        if not self._weights_are_whole:
            raise ModelError(
                "rollout engine 'hf': its last weight update failed half-way, so its weights are of no single version; "
                "call update_weights again with all of them"
            )
        return self._open_policy()

    def _waves(self, policy: PolicyModel, samples: Sequence[Sample], num_responses: int) -> Iterator[Wave]:
        """As many samples at a time as fill one batch of responses, at least one; prepared when their turn comes."""
        size = max(1, self._max_batch_rows // num_responses)
        for first in range(0, len(samples), size):
            wave = samples[first : first + size]
            yield wave, [policy.prompts.prepare(sample) for sample in wave]

    def _prefill(self, policy: PolicyModel, prompts: list[PreparedPrompt], *, for_update: bool) -> list[Prefix]:
        """The prompts in order, in as few passes as their tokens allow."""
        passes: list[list[PreparedPrompt]] = []
        longest = 0
        for prompt in prompts:
            longest = max(longest, len(prompt))
            if not passes or (len(passes[-1]) + 1) * longest > self._max_prefill_tokens:
                passes.append([])
                longest = len(prompt)
            passes[-1].append(prompt)
        prefill = policy.prefill_for_update if for_update and self._shares_weights else policy.prefill
        return [prefill(part) for part in passes]

    def _sample(
        self,
        policy: PolicyModel,
        prompts: list[PreparedPrompt],
        seeds: list[list[int]],
        params: SamplingParams,
        *,
        for_update: bool,
    ) -> tuple[Responses, RolloutStats]:
        """A response for each seed, in batches of at most `max_batch_rows` rows; the prompts are prefilled once."""
        started = _now(policy.device)
        prefixes = self._prefill(policy, prompts, for_update=for_update)
        prefilled = _now(policy.device)
        row_seeds = torch.tensor(seeds)
        prompt_of_row = torch.arange(len(prompts)).repeat_interleave(row_seeds.shape[1])
        batches = zip(
            prompt_of_row.split(self._max_batch_rows), row_seeds.flatten().split(self._max_batch_rows), strict=True
        )
        keeps = for_update and self._shares_weights
        responses = join([self._decode(policy, prompts, prefixes, *batch, params, keeps=keeps) for batch in batches])
        return responses, RolloutStats(
            prompt_tokens=sum(len(prompt) for prompt in prompts),
            response_tokens=int(responses.lengths.sum()),
            decode_steps=responses.num_steps,
            decoded_rows=responses.num_rows,
            prepare_s=0.0,
            prefill_s=prefilled - started,
            decode_s=_now(policy.device) - prefilled,
            flops=forward_flops(policy, prompts, prompt_of_row.tolist(), responses.lengths.tolist()).total,
        )

    def _decode(
        self,
        policy: PolicyModel,
        prompts: list[PreparedPrompt],
        prefixes: list[Prefix],
        prompt_of_row: Tensor,
        seeds: Tensor,
        params: SamplingParams,
        *,
        keeps: bool,
    ) -> Responses:
        """keeps: whether the update is to take what it can of this pass."""
        recording = policy.kept_responses.start(prompt_of_row, params.max_response_tokens - 1) if keeps else None
        responses = decode(policy, prefixes, prompt_of_row, seeds, params, recording)
        if recording is not None:
            own_prompts = [prompts[index] for index in prompt_of_row.tolist()]
            policy.kept_responses.keep(recording, own_prompts, [row.token_ids for row in responses.rows()])
        return responses

    def _groups(
        self, policy: PolicyModel, samples: Sequence[Sample], seeds: list[list[int]], responses: Responses
    ) -> list[RolloutGroup]:
        """`responses`, in the order of `seeds`, as groups of rollouts."""
        rows = responses.rows()
        groups = []
        for sample, own_seeds in zip(samples, seeds, strict=True):
            rollouts = [
                self._rollout(policy, sample, index, seed, row)
                for index, (seed, row) in enumerate(zip(own_seeds, islice(rows, len(own_seeds)), strict=True))
            ]
            groups.append(RolloutGroup(sample, tuple(rollouts)))
        return groups

    def _check_logprobs(self, groups: Sequence[RolloutGroup], prompts: Sequence[PreparedPrompt]) -> None:
        for group, prompt in zip(groups, prompts, strict=True):
            for rollout in group.rollouts:
                if not all(map(math.isfinite, rollout.logprobs)):
                    raise NotFiniteError(
                        f"sample {group.sample.id}, response {rollout.index}: the model's log-probabilities are not "
                        f"finite under policy version {self._policy_version}; its weights have diverged. Go on from an "
                        "earlier checkpoint with a lower optim.lr",
                        batch=build_group_batch([prompt], [group.rollouts]),
                    )

    def _rollout(self, policy: PolicyModel, sample: Sample, index: int, seed: int, row: ResponseRow) -> Rollout:
        return Rollout(
            sample_id=sample.id,
            index=index,
            token_ids=tuple(row.token_ids),
            response_mask=(1,) * len(row.token_ids),
            logprobs=tuple(row.logprobs),
            finish_reason="stop" if row.has_stopped else "length",
            text=policy.prompts.decode(row.token_ids),
            policy_version=self._policy_version,
            seed=seed,
        )


def build(config: RunConfig, policy: PolicyModel, samples: Sequence[Sample], *, model_folder: str | Path) -> HfRollout:
    """For `engines.registry`: samples with the actor's own model, whatever the samples."""
    return HfRollout(policy, config.rollout)


def _now(device: torch.device) -> float:
    """Seconds, once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _add_up(stats: Sequence[RolloutStats], *, total_s: float) -> RolloutStats:
    """What is left of `total_s` was preparation."""
    sums = {part.name: sum(getattr(wave, part.name) for wave in stats) for part in fields(RolloutStats)}
    return RolloutStats(**sums | {"prepare_s": total_s - sums["prefill_s"] - sums["decode_s"]})
