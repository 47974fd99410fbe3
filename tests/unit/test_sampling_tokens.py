"""The draw of one token: noise, truncation, choice."""

from __future__ import annotations

import math

import pytest
import torch

from mmrl.engines.base import SamplingParams
from mmrl.engines.sampling import (
    check_params,
    draw_tokens,
    group_seeds,
    gumbel,
    random_bits,
    response_seed,
    sample_tokens,
    truncate,
)
from mmrl.errors import ConfigError

NEVER = -math.inf


def _log(*probs: float) -> torch.Tensor:
    return torch.tensor([probs]).log()


def test_random_bits_are_the_published_outputs_of_splitmix64() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    bits = random_bits(torch.tensor([1234567]), 0, 4)[0].tolist()
    assert [word % (1 << 64) for word in bits] == published


def test_a_later_place_of_a_stream_does_not_depend_on_where_reading_began() -> None:
    seeds = torch.tensor([5, 2**63 - 1])
    assert torch.equal(random_bits(seeds, 0, 10)[:, 7:], random_bits(seeds, 7, 3))


def test_gumbel_noise_is_finite_and_has_the_moments_of_its_distribution() -> None:
    noise = gumbel(torch.arange(100), 0, 2000).flatten()
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(0.57721566, abs=0.01)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, abs=0.03)


def test_response_seeds_are_the_same_on_every_machine_and_fit_in_63_bits() -> None:
    assert response_seed(0, 3, "abc", 2) == 6227097409073961565
    assert all(0 <= response_seed(0, 0, "abc", index) < 2**63 for index in range(200))


def test_response_seeds_differ_in_each_of_their_four_parts() -> None:
    seeds = {
        response_seed(*key) for key in [(0, 0, "a", 0), (1, 0, "a", 0), (0, 1, "a", 0), (0, 0, "b", 0), (0, 0, "a", 1)]
    }
    assert len(seeds) == 5
    assert response_seed(1, 11, "a", 0) != response_seed(11, 1, "a", 0)


def test_a_sample_that_comes_again_in_a_step_counts_its_index_on() -> None:
    first, other, again = group_seeds(0, 3, ["abc", "x", "abc"], 2)
    assert first == [response_seed(0, 3, "abc", 0), response_seed(0, 3, "abc", 1)]
    assert again == [response_seed(0, 3, "abc", 2), response_seed(0, 3, "abc", 3)]
    assert other == [response_seed(0, 3, "x", 0), response_seed(0, 3, "x", 1)]


@pytest.mark.parametrize("vocabulary", [2, 7, 64, 300])
def test_sampled_tokens_follow_the_distribution(vocabulary: int) -> None:
    """Chi-square of 20,000 draws at fixed seeds against the probabilities, bound at 5 standard deviations."""
    num_draws = 20_000
    log_probs = torch.randn(1, vocabulary, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    seeds = torch.tensor([response_seed(0, 0, "sample", index) for index in range(num_draws)])
    counts = sample_tokens(log_probs.expand(num_draws, -1), seeds, 3).bincount(minlength=vocabulary)
    expected = log_probs[0].double().exp() * num_draws
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    freedom = vocabulary - 1
    assert abs(chi_square - freedom) < 5 * math.sqrt(2 * freedom)


def test_successive_tokens_of_one_stream_follow_the_distribution_and_are_independent() -> None:
    log_probs, num_draws = _log(0.5, 0.3, 0.2), 3_000
    ids = torch.stack([sample_tokens(log_probs, torch.tensor([42]), position)[0] for position in range(num_draws)])
    pairs = (ids[:-1] * 3 + ids[1:]).bincount(minlength=9) / (num_draws - 1)
    expected = (log_probs[0].exp()[:, None] * log_probs[0].exp()).flatten()
    assert torch.allclose(pairs, expected, atol=0.03)


def test_a_row_draws_the_same_token_alone_and_among_others() -> None:
    log_probs = torch.randn(50, 300, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    seeds = torch.arange(50) * 7919
    together = sample_tokens(log_probs, seeds, 11)
    alone = [sample_tokens(log_probs[row : row + 1], seeds[row : row + 1], 11).item() for row in range(50)]
    assert together.tolist() == alone


def test_noise_in_the_seventh_digit_changes_no_token() -> None:
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(5000, 300, generator=generator).log_softmax(-1)
    nudged = log_probs + 1e-7 * torch.randn(log_probs.shape, generator=generator)
    seeds = torch.arange(5000)
    assert torch.equal(sample_tokens(log_probs, seeds, 0), sample_tokens(nudged, seeds, 0))


def test_a_token_without_probability_is_never_drawn() -> None:
    log_probs = torch.full((5000, 300), NEVER)
    log_probs[:, [17, 18, 299]] = 0.0
    drawn = sample_tokens(log_probs, torch.arange(5000), 0)
    assert set(drawn.tolist()) == {17, 18, 299}


def test_top_k_keeps_the_most_likely_tokens_as_they_are() -> None:
    kept = truncate(_log(0.1, 0.4, 0.2, 0.3), top_k=2)
    assert torch.equal(kept, _log(0.0, 0.4, 0.0, 0.3))


def test_top_p_keeps_the_smallest_set_that_holds_the_share() -> None:
    log_probs = _log(0.1, 0.4, 0.2, 0.3)
    assert torch.equal(truncate(log_probs, top_p=0.65), _log(0.0, 0.4, 0.0, 0.3))
    assert torch.equal(truncate(log_probs, top_p=0.75), _log(0.0, 0.4, 0.2, 0.3))
    assert torch.equal(truncate(log_probs, top_p=1e-6), _log(0.0, 0.4, 0.0, 0.0))


def test_top_p_counts_the_share_among_what_top_k_left() -> None:
    """Of 0.4, 0.3 and 0.2 (sum 0.9) the first two hold 0.78: enough for 0.75, though only 0.7 of the whole."""
    log_probs = _log(0.1, 0.4, 0.2, 0.3)
    assert torch.equal(truncate(log_probs, top_k=3, top_p=0.75), _log(0.0, 0.4, 0.0, 0.3))


def test_top_k_of_the_whole_vocabulary_and_top_p_1_change_nothing() -> None:
    log_probs = _log(0.1, 0.4, 0.2, 0.3)
    assert truncate(log_probs, top_k=4) is log_probs
    assert truncate(log_probs, top_k=0, top_p=1.0) is log_probs


def test_the_logprob_is_taken_before_the_support_is_cut() -> None:
    params = SamplingParams(max_response_tokens=1, top_k=1)
    ids, logprobs = draw_tokens(_log(0.1, 0.4, 0.2, 0.3), params, torch.tensor([0]), 0)
    assert ids.tolist() == [1]
    assert logprobs.item() == pytest.approx(math.log(0.4))


def test_temperature_0_takes_the_most_likely_token_whatever_the_seed() -> None:
    params = SamplingParams(max_response_tokens=1, temperature=0.0)
    ids, _ = draw_tokens(_log(0.1, 0.3, 0.4, 0.2).expand(64, -1), params, torch.arange(64), 0)
    assert ids.tolist() == [2] * 64


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"max_response_tokens": 0}, "max_response_tokens must be at least 1"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"stop": ("###", "")}, "empty string"),
    ],
)
def test_settings_that_cannot_be_sampled_with_are_refused(setting: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_params(SamplingParams(**({"max_response_tokens": 8} | setting)))
