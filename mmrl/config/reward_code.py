"""Config of the reward that runs what the policy wrote."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from mmrl.config.reward_base import RewardBase

Isolation = Literal["auto", "namespaces"]


class CodeRewardConfig(RewardBase):
    """1 if the response's Python program passes all tests of the sample, else 0; it runs in a sandbox."""

    type: Literal["code"] = "code"
    """Which reward function this is."""
    tests: str = "tests"
    """The column (key of the sample's meta) that holds the tests: pairs of input and output, or asserts; where a sample
    has no such column, its answer holds them."""
    fenced: bool = True
    """Read the program from the last ``` block; otherwise the whole response is the program."""
    partial: bool = False
    """Pay the share of tests that pass; otherwise all must pass."""
    max_tests: int | None = Field(None, ge=1)
    """Only the first so many tests of a sample."""
    test_timeout_s: float = Field(5.0, gt=0)
    """Seconds for one test; a program that takes longer has not passed it."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds for a response; tests that are not reached in four fifths of them are not passed."""
    memory_mb: int = Field(512, ge=64)
    """Memory of a program and all its processes, in MiB."""
    processes: int = Field(16, ge=1)
    """Processes and threads that a program may have at once."""
    output_mb: float = Field(4.0, gt=0)
    """Longest output of a test, and longest file that a program may write, in MiB."""
    isolation: Isolation = "auto"
    """namespaces: refuse to run where the system allows none; auto: take a throwaway user and the limits there, if the
    run is root's."""

    @model_validator(mode="after")
    def _test_fits(self) -> CodeRewardConfig:
        if self.test_timeout_s > self.timeout_s:
            raise ValueError(
                f"test_timeout_s ({self.test_timeout_s:g}) is above timeout_s ({self.timeout_s:g}), which is for all "
                "tests of a response together"
            )
        return self
