"""One `generate` of the engine `vllm`: its requests, and vLLM's steps, which are driven from here."""

from __future__ import annotations

import time
from typing import Any

from mmrl.engines import vllm_process
from mmrl.engines.base import OnGroup, SamplingParams
from mmrl.engines.vllm_groups import GrowingGroup
from mmrl.engines.vllm_prompts import render
from mmrl.models.processing import PromptProcessor


class VllmRun:
    """Requests that vLLM works on, and what has come of them. draws: of `find_draws`. adapter: vLLM's
    request of the adapter that all go through."""

    def __init__(
        self,
        llm: Any,
        draws: Any,
        prompts: PromptProcessor,
        params: SamplingParams,
        on_group: OnGroup | None,
        *,
        adapter: Any = None,
    ) -> None:
        self._llm = llm
        self._draws = draws
        self._prompts = prompts
        self._params = params
        self._on_group = on_group
        self._adapter = adapter
        self._places: dict[str, tuple[GrowingGroup, int]] = {}
        self._engine_ids: dict[str, str] = {}
        self._num_added = 0
        self.num_steps = self.num_rows = 0
        self.prefill_s = self.decode_s = 0.0
        draws.take_counts()

    @property
    def num_unfinished(self) -> int:
        return len(self._places)

    def add(self, group: GrowingGroup) -> None:
        """A request for each response of the group, which share the prompt as it was rendered once."""
        rendered = render(self._llm, self._prompts, group.sample, group.prompt)
        for index, request in enumerate(group.requests()):
            name = f"{self._num_added}-{index}"
            self._places[name] = (group, index)
            self._engine_ids[name] = self._llm.llm_engine.add_request(
                name, rendered, request, lora_request=self._adapter
            )
        self._num_added += 1

    def step(self) -> None:
        """One pass of vLLM, and the groups that are finished with it handed on."""
        started = time.perf_counter()
        with vllm_process.uncompiled():
            outputs = self._llm.llm_engine.step()
        seconds = time.perf_counter() - started
        counts = self._draws.take_counts()
        self.num_steps += counts.steps
        self.num_rows += counts.rows
        if counts.first_steps or not counts.steps:
            self.prefill_s += seconds
        else:
            self.decode_s += seconds
        for output in outputs:
            self._take(output)

    def abort(self) -> None:
        """Leaves no request behind for the next call to wait for."""
        self._llm.llm_engine.abort_request(list(self._engine_ids.values()), internal=True)

    def _take(self, output: Any) -> None:
        group, index = self._places[output.request_id]
        has_ended = group.take(index, output.outputs[0])
        if not has_ended:
            return
        if not output.finished:
            self._llm.llm_engine.abort_request([self._engine_ids[output.request_id]], internal=True)
        del self._places[output.request_id], self._engine_ids[output.request_id]
        if group.is_finished and self._on_group is not None:
            self._on_group(group.finished)


def find_draws(worker: Any) -> Any:
    """Runs in vLLM's worker: the processor that draws its tokens."""
    from mmrl.engines.vllm_sampler import DrawTokens

    processors = worker.model_runner.input_batch.logitsprocs.all
    return next(processor for processor in processors if isinstance(processor, DrawTokens))
