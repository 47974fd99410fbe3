"""Prompt and target of a sample: RL and evaluation take the prompt, SFT both."""

from __future__ import annotations

from dataclasses import replace

from mmrl.types import Sample


def prompt_only(sample: Sample) -> Sample:
    """The sample without an assistant turn at its end: what the policy is asked to answer."""
    if sample.messages[-1].role == "assistant":
        return replace(sample, messages=sample.messages[:-1])
    return sample


def has_target(sample: Sample) -> bool:
    """Whether there is a text to learn."""
    return sample.messages[-1].role == "assistant" or sample.answer is not None


def target_text(sample: Sample) -> str:
    """The text to learn: the last assistant turn if the messages end with one, else the answer."""
    last = sample.messages[-1]
    if last.role == "assistant":
        return last.text
    assert sample.answer is not None, "rows without a target are refused before the run"
    return sample.answer
