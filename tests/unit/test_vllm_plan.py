"""The room that vLLM makes: from the data where the config says nothing, refused with both numbers where too small."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mmrl.config.rollout import RolloutConfig
from mmrl.engines.rollout_needs import RolloutNeeds, needs_of
from mmrl.engines.vllm_build import launcher_arguments
from mmrl.engines.vllm_plan import EnginePlan, plan_engine
from mmrl.errors import ConfigError
from mmrl.models.policy import PolicyModel
from mmrl.types import ImagePart, Message, Sample, TextPart

NEEDS = RolloutNeeds(
    max_prompt_tokens=700, max_images=2, max_image_tokens=300, max_image_pixels=300 * 784, max_response_tokens=100
)


def hf_config(limit: int = 32768) -> Any:
    """2 layers of 2 key-value heads of 32: a token takes 2 · 2 · 2 · 32 · 4 = 1,024 bytes in float32."""
    text = SimpleNamespace(
        max_position_embeddings=limit,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=128,
    )
    return SimpleNamespace(get_text_config=lambda: text)


def plan(needs: RolloutNeeds = NEEDS, *, limit: int = 32768, on_cpu: bool = True, **settings: Any) -> EnginePlan:
    config = RolloutConfig.model_validate({"engine": "vllm", "max_batch_rows": 8, **settings})
    return plan_engine(config, needs, hf_config(limit), dtype="float32", on_cpu=on_cpu, sees_images=True)


def test_sizes_come_from_the_data_where_the_config_says_nothing() -> None:
    assert plan() == EnginePlan(
        max_model_len=800,
        max_rows=8,
        max_batch_tokens=8192,
        max_images=2,
        max_image_pixels=300 * 784,
        # 800 tokens are 25 blocks of 32, and one spare: 26 · 32 KiB a row, for 8 rows.
        kv_cache_bytes=8 * 26 * 32 * 1024,
    )


def test_a_gpu_gives_the_cache_what_its_share_leaves() -> None:
    assert plan(on_cpu=False).kv_cache_bytes is None
    assert plan(on_cpu=False, kv_cache_gib=2).kv_cache_bytes == 2 << 30


def test_a_model_that_sees_images_keeps_its_tower_for_data_without_any() -> None:
    without = RolloutNeeds(700, 0, 0, 0, 100)
    assert plan(without).max_images == 1


def test_o16_the_cap_on_images_is_the_datas() -> None:
    assert plan(RolloutNeeds(700, 7, 300, 300 * 784, 100)).max_images == 7


def test_o17_an_image_beyond_the_encoder_cache_is_refused_with_both_numbers() -> None:
    large = RolloutNeeds(7000, 1, 6042, 6042 * 784, 100)
    assert plan(large).max_batch_tokens == 8192
    assert plan(RolloutNeeds(9500, 1, 9000, 9000 * 784, 100)).max_batch_tokens == 9000
    with pytest.raises(
        ConfigError, match=r"takes 6042 tokens, and vllm's encoder cache would hold 4800.*at least 6042"
    ):
        plan(large, max_batch_tokens=4800)


def test_prompts_that_do_not_fit_are_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"longest prompt has 700 tokens.*800 in all, and it makes room for 750"):
        plan(max_model_len=750)
    with pytest.raises(ConfigError, match=r"800 in all, and the model reads at most 512"):
        plan(limit=512)
    with pytest.raises(ConfigError, match=r"4096 is more than the model reads, 1024.*the data needs 800"):
        plan(limit=1024, max_model_len=4096)


def test_a_cache_too_small_for_one_response_and_a_pass_too_small_for_the_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"0.0001 holds not even one prompt with its response .800 tokens take"):
        plan(kv_cache_gib=0.0001)
    with pytest.raises(ConfigError, match=r"400 is below rollout.max_batch_rows 500"):
        plan(max_batch_tokens=400, max_batch_rows=500)


def test_needs_are_the_largest_of_the_samples(tiny_policy, pictures) -> None:
    policy: PolicyModel = tiny_policy()
    small, medium, large = pictures
    samples = [
        Sample(
            "text", (Message("user", (TextPart("What is 12 + 34? Say it in words, and then once more in digits."),)),)
        ),
        Sample("two", (Message("user", (ImagePart(small), ImagePart(medium), TextPart("Which?"))),)),
        Sample("large", (Message("user", (ImagePart(large), TextPart("Which?"))),)),
    ]
    config = SimpleNamespace(rollout=RolloutConfig(max_response_tokens=50))
    needs = needs_of(samples, policy.prompts, config)  # type: ignore[arg-type]
    assert needs.max_prompt_tokens == max(len(policy.prompts.prepare(sample)) for sample in samples)
    assert needs.max_images == 2
    # 240 x 140 pixels become 252 x 140: 9 x 5 places of 28 x 28.
    assert (needs.max_image_tokens, needs.max_image_pixels) == (45, 252 * 140)
    assert needs.max_tokens == needs.max_prompt_tokens + 50
    assert needs_of([], policy.prompts, config).max_images == 0  # type: ignore[arg-type]


def test_ranks_that_share_an_engine_leave_out_the_all_reduce_that_knows_gpus_by_number() -> None:
    launcher = {"distributed_executor_backend": "external_launcher"}
    assert launcher_arguments(1) == launcher
    assert launcher_arguments(4) == {**launcher, "disable_custom_all_reduce": True}
