"""The rollout engine `vllm`: samples with vLLM in this process, under weights that come from the actor.

`generate` takes samples this way: ids and resized images (`vllm_prompts`) -> a request for each response, as many at a
time as keep vLLM busy -> vLLM's steps, driven from here, tokens drawn as in every other engine (`vllm_sampler`) ->
`Rollout`s, a group handed on once its last response is there. Weights come tensor by tensor (`vllm_weights`); between
steps the engine may sleep (`vllm_sleep`). With tensor parallelism all ranks of an engine make the same calls.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from mmrl.batch import PreparedPrompt
from mmrl.calls import logged_call
from mmrl.engines import vllm_process
from mmrl.engines.base import NamedWeights, OnGroup, RolloutStats, SamplingParams
from mmrl.engines.sampling import check_params, group_seeds
from mmrl.engines.vllm_adapter import VllmAdapter
from mmrl.engines.vllm_groups import GrowingGroup
from mmrl.engines.vllm_plan import EnginePlan
from mmrl.engines.vllm_run import VllmRun, find_draws
from mmrl.engines.vllm_sleep import Sleeper
from mmrl.engines.vllm_weights import update_engine
from mmrl.errors import ConfigError, MmrlError, ModelError
from mmrl.models.flops import forward_flops
from mmrl.models.policy import PolicyModel, checkpoint_names
from mmrl.types import RolloutGroup, Sample

logger = logging.getLogger(__name__)

_HEAD = "lm_head.weight"

NEUTRAL = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "min_p": 0.0, "min_tokens": 0}
"""What a checkpoint's generation_config.json may set otherwise, which never counts here."""


class VllmRollout:
    """Meets `engines.base.RolloutEngine` with a vLLM engine of this process; `build_vllm_rollout` makes one.

    llm: a `vllm.LLM` started with `vllm_arguments`. skeleton: the policy without its weights, with the prompts that
    the actor reads; it knows names, shapes and sizes. adapter: where updates bring an adapter and no other weight.
    """

    def __init__(
        self,
        llm: Any,
        skeleton: PolicyModel,
        plan: EnginePlan,
        sleeper: Sleeper,
        *,
        policy_version: int = 0,
        adapter: VllmAdapter | None = None,
    ) -> None:
        self._llm: Any | None = llm
        self._skeleton = skeleton
        self._prompts = skeleton.prompts
        self._plan = plan
        self._sleeper = sleeper
        self._policy_version = policy_version
        self._adapter = adapter
        self._last_stats: RolloutStats | None = None
        self._weights_are_whole = True
        self._draws = llm.collective_rpc(find_draws)[0]
        self._logged: set[SamplingParams] = set()
        self._shapes = _shapes_of_weights(skeleton, has_own_head=llm.collective_rpc(_has_own_head)[0])

    @property
    def policy_version(self) -> int:
        return self._policy_version

    @property
    def last_stats(self) -> RolloutStats | None:
        return self._last_stats

    @property
    def needs_weights(self) -> bool:
        return not self._weights_are_whole or self._sleeper.has_lost_weights

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
        """`num_responses` rollouts for each sample, in order; see `engines.base.RolloutEngine`. Each response is a
        request of its own with a seed of its own.

        Raises ConfigError for params that cannot be sampled with or prompts that are longer than the engine was built
        for, ModelError before the weights that the engine needs have come, NotFiniteError if log-probabilities are no
        numbers.
        """
        check_params(params)
        if num_responses < 1:
            raise ConfigError(f"num_responses must be at least 1 (got {num_responses})")
        llm = self._usable()
        self._sleeper.wake()
        self._log_once(params)
        started = time.perf_counter()
        seeds = group_seeds(seed, step, [sample.id for sample in samples], num_responses)
        waiting = deque(
            GrowingGroup(sample, self._prompt(sample, params), own, params, self._prompts, self._policy_version)
            for sample, own in zip(samples, seeds, strict=True)
        )
        groups = list(waiting)
        adapter = None if self._adapter is None else self._adapter.request
        run = VllmRun(llm, self._draws, self._prompts, params, on_group, adapter=adapter)
        try:
            while waiting or run.num_unfinished:
                while waiting and run.num_unfinished < 2 * self._plan.max_rows:
                    run.add(waiting.popleft())
                run.step()
        except BaseException:
            run.abort()
            raise
        finished = [group.finished for group in groups]
        self._last_stats = self._stats(groups, finished, run, total_s=time.perf_counter() - started)
        return finished

    @logged_call
    def update_weights(self, weights: NamedWeights, version: int) -> None:
        """Take every weight, drop every cache, and `version` for what is sampled from now on.

        Raises ModelError naming weights that are missing, unknown or of another shape; the engine then samples
        nothing until an update has gone through.
        """
        llm = self._open()
        self._sleeper.wake(weights_only=True)
        self._weights_are_whole = False
        if self._adapter is not None:
            self._adapter.update(llm, weights, version)
        else:
            update_engine(llm, weights, self._shapes, llm.llm_engine.model_config.dtype)
        self._weights_are_whole = True
        self._sleeper.weights_came()
        self._sleeper.wake()
        self._policy_version = version

    def sleep(self) -> None:
        """Gives device memory back; after a sleep that discards the weights nothing is sampled before an update."""
        self._open()
        self._sleeper.sleep()

    def wake(self) -> None:
        self._open()
        self._sleeper.wake()

    def close(self) -> None:
        """Frees all that the engine holds; another may be built in this process."""
        llm, self._llm, self._draws = self._llm, None, None
        if self._adapter is not None:
            self._adapter.close()
        if llm is not None:
            vllm_process.stop(llm)

    def _open(self) -> Any:
        if self._llm is None:
            raise MmrlError("rollout engine 'vllm' is closed; make a new one")
        return self._llm

    def _usable(self) -> Any:
        llm = self._open()
        if self._sleeper.has_lost_weights:
            raise ModelError(
                "rollout engine 'vllm' gave its weights away when it went to sleep, so nothing can be sampled yet; "
                "call update_weights first (or keep them with rollout.sleep: keep_weights)"
            )
        if not self._weights_are_whole:
            raise ModelError(
                "rollout engine 'vllm': its last weight update failed half-way, so its weights are of no single "
                "version; call update_weights again with all of them"
            )
        return llm

    def _prompt(self, sample: Sample, params: SamplingParams) -> PreparedPrompt:
        """Raises ConfigError, with both numbers, for a prompt that vLLM has no room for."""
        prompt, plan = self._prompts.sketch(sample), self._plan
        if len(prompt) + params.max_response_tokens > plan.max_model_len:
            raise ConfigError(
                f"sample {sample.id}: its prompt has {len(prompt)} tokens and a response up to "
                f"{params.max_response_tokens}, and the rollout engine was built for {plan.max_model_len} in all; "
                "raise rollout.max_model_len"
            )
        if len(prompt.images) > plan.max_images:
            raise ConfigError(
                f"sample {sample.id}: its prompt has {len(prompt.images)} images and the rollout engine was built for "
                f"{plan.max_images}; build it for data that has this sample"
            )
        return prompt

    def _log_once(self, params: SamplingParams) -> None:
        """The settings that really hold, the first time that each are used."""
        if params not in self._logged:
            self._logged.add(params)
            shown = asdict(params) | NEUTRAL | {"banned_token_ids": len(self._prompts.banned_token_ids)}
            logger.info("rollout engine vllm samples with %s", ", ".join(f"{key} {shown[key]}" for key in shown))

    def _stats(
        self, groups: Sequence[GrowingGroup], finished: Sequence[RolloutGroup], run: VllmRun, *, total_s: float
    ) -> RolloutStats:
        prompts = [group.prompt for group in groups]
        lengths = [len(rollout.token_ids) for group in finished for rollout in group.rollouts]
        prompt_of_row = [index for index, group in enumerate(finished) for _ in group.rollouts]
        return RolloutStats(
            prompt_tokens=sum(map(len, prompts)),
            response_tokens=sum(lengths),
            decode_steps=run.num_steps,
            decoded_rows=run.num_rows,
            prepare_s=total_s - run.prefill_s - run.decode_s,
            prefill_s=run.prefill_s,
            decode_s=run.decode_s,
            flops=forward_flops(self._skeleton, prompts, prompt_of_row, lengths).total,
        )


def _shapes_of_weights(skeleton: PolicyModel, *, has_own_head: bool) -> dict[str, torch.Size]:
    """Checkpoint names and shapes of the weights that an update must bring.

    A checkpoint may hold a head of its own although its configuration ties it to the embeddings. Then transformers and
    vLLM both take the head from the checkpoint, and only the skeleton, which has seen no weights, is tied.
    """
    names = checkpoint_names(skeleton.hf)
    shapes = {names[name]: weight.shape for name, weight in skeleton.hf.named_parameters()}
    if has_own_head:
        shapes.setdefault(_HEAD, skeleton.hf.get_output_embeddings().weight.shape)
    return shapes


def _has_own_head(worker: Any) -> bool:
    """Runs in vLLM's worker. A tied head is named once, as the embeddings."""
    return any(name.endswith(_HEAD) for name, _ in worker.model_runner.get_model().named_parameters())
