"""Prompt and target of a sample: RL and evaluation take the prompt, SFT both."""

from __future__ import annotations

from dataclasses import replace

from mmrl.errors import DataError
from mmrl.types import Sample


def prompt_only(sample: Sample) -> Sample:
    """The sample without an assistant turn at its end: what the policy is asked to answer."""
    if sample.messages[-1].role == "assistant":
        return replace(sample, messages=sample.messages[:-1])
    return sample


def target_text(sample: Sample) -> str:
    """The text to learn: the last assistant turn if the messages end with one, else the answer."""
    last = sample.messages[-1]
    if last.role == "assistant":
        return last.text
    if sample.answer is None:
        raise DataError(
            f"sample {sample.id}: kind 'sft' needs a text to learn, but its messages end with a {last.role} turn "
            "and it has no answer; add an assistant turn or an answer"
        )
    return sample.answer
