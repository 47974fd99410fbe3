from __future__ import annotations

import math

import pytest
import torch

from mmrl.config.run import CanaryConfig
from mmrl.engines.canary import check, compare
from mmrl.errors import RunFailedError

CONFIG = CanaryConfig(max_kl=0.05, gap=0.2, max_share=0.05, max_gap_float32=1e-3)


def gap_of(sampler, actor, mask=None, has_image=None):
    sampler, actor = torch.tensor(sampler), torch.tensor(actor)
    mask = torch.ones_like(sampler) if mask is None else torch.tensor(mask)
    has_image = torch.zeros(len(sampler), dtype=torch.bool) if has_image is None else torch.tensor(has_image)
    return compare(sampler, actor, mask, has_image, gap=CONFIG.gap)


def test_figures_worked_by_hand():
    # gaps 0, log 2 (actor half as likely), log 2 (actor twice as likely)
    log2 = math.log(2)
    metrics = gap_of([[-1.0, -1.0, -2.0]], [[-1.0, -1.0 - log2, -2.0 + log2]]).metrics()
    assert metrics["sync/logprob_gap_max"] == pytest.approx(log2, rel=1e-6)
    assert metrics["sync/logprob_gap_mean"] == pytest.approx(2 * log2 / 3, rel=1e-6)
    # k3 with r = actor / sampler: r - 1 - log r = 0, 0.5 - 1 + log 2, 2 - 1 - log 2
    assert metrics["sync/kl"] == pytest.approx((0 + (-0.5 + log2) + (1 - log2)) / 3, rel=1e-6)
    assert metrics["sync/share_beyond_gap"] == pytest.approx(2 / 3)
    # weights 1, 0.5, 2: 3.5² / (3 · 5.25)
    assert metrics["sync/effective_sample_size"] == pytest.approx(3.5**2 / (3 * 5.25), rel=1e-6)


def test_kl_estimates_the_divergence_of_actor_from_sampler_not_the_reverse():
    sampler, actor = torch.tensor([0.5, 0.4, 0.1]), torch.tensor([0.2, 0.2, 0.6])
    drawn = torch.multinomial(sampler, 200_000, replacement=True, generator=torch.Generator().manual_seed(0))
    found = gap_of([sampler.log()[drawn].tolist()], [actor.log()[drawn].tolist()]).metrics()["sync/kl"]
    forward = (sampler * (sampler / actor).log()).sum().item()
    reverse = (actor * (actor / sampler).log()).sum().item()
    assert found == pytest.approx(forward, rel=0.02)
    assert abs(forward - reverse) > 0.1 * forward


def test_masked_tokens_do_not_count():
    metrics = gap_of([[-1.0, 0.0], [-1.0, -9.0]], [[-1.0, 0.0], [-1.0, -1.0]], mask=[[1.0, 0.0], [1.0, 0.0]]).metrics()
    assert metrics["sync/logprob_gap_max"] == 0.0
    assert metrics["sync/effective_sample_size"] == 1.0


def test_text_and_image_prompts_are_told_apart():
    metrics = gap_of([[-1.0], [-1.0]], [[-1.0], [-1.5]], has_image=[False, True]).metrics()
    assert metrics["sync/text/logprob_gap_max"] == 0.0
    assert metrics["sync/image/logprob_gap_max"] == 0.5
    assert metrics["sync/logprob_gap_mean"] == 0.25


def test_a_part_without_tokens_leaves_no_metrics():
    metrics = gap_of([[-1.0]], [[-1.0]]).metrics()
    assert "sync/text/kl" in metrics
    assert not any(name.startswith("sync/image/") for name in metrics)
    empty = gap_of([[-1.0]], [[-1.0]], mask=[[0.0]])
    assert empty.metrics() == {}
    check(empty, CONFIG, "float32")


def test_flat_tokens_with_a_flag_each_give_the_same_figures():
    rows = gap_of([[-1.0, -2.0], [-1.0, -3.0]], [[-1.1, -2.0], [-1.5, -3.0]], has_image=[False, True])
    flat = gap_of([-1.0, -2.0, -1.0, -3.0], [-1.1, -2.0, -1.5, -3.0], has_image=[False, False, True, True])
    assert flat.metrics() == rows.metrics()


def test_agreement_within_rounding_passes():
    check(gap_of([[-1.0, -2.0]], [[-1.000001, -2.0]]), CONFIG, "float32")


def test_in_float32_a_single_small_gap_stops_the_run_and_in_bfloat16_not():
    gap = gap_of([[-1.0] * 100], [[-1.01] + [-1.0] * 99])
    check(gap, CONFIG, torch.bfloat16)
    with pytest.raises(
        RunFailedError, match=r"sync/logprob_gap_max is 0\.01 \(bound canary\.max_gap_float32 = 0\.001\)"
    ):
        check(gap, CONFIG, torch.float32)


def test_mean_kl_and_share_beyond_the_gap_stop_the_run_in_any_precision():
    gap = gap_of([[-1.0] * 10], [[-1.5] * 10])
    with pytest.raises(RunFailedError) as caught:
        check(gap, CONFIG, "bfloat16")
    message = str(caught.value)
    assert "sync/kl is 0.1065 (bound canary.max_kl = 0.05)" in message
    assert "sync/share_beyond_gap is 1 (bound canary.max_share = 0.05)" in message
    assert "logprob -1.0000 in the sampler and -1.5000 in the actor" in message
    assert "temperature" in message
    assert "cache" in message


def test_a_gap_on_image_prompts_alone_points_to_the_images():
    gap = gap_of([[-1.0], [-1.0]], [[-1.0], [-3.0]], has_image=[False, True])
    with pytest.raises(RunFailedError, match="pixel limits"):
        check(gap, CONFIG, "bfloat16")


@pytest.mark.parametrize("wrong", [math.nan, -math.inf])
def test_a_logprob_that_is_not_finite_stops_the_run(wrong):
    with pytest.raises(RunFailedError, match="sync/logprob_gap_max is inf"):
        check(gap_of([[-1.0, wrong]], [[-1.0, -1.0]]), CONFIG, "float32")
    with pytest.raises(RunFailedError, match="sync/kl"):
        check(gap_of([[-1.0, -1.0]], [[-1.0, wrong]]), CONFIG, "bfloat16")
