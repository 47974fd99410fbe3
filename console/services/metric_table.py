"""The metrics that the trainer writes: a pattern of names, and what they mean. `metric_words` reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class MetricWords:
    """unit: for an axis; empty where the number has none."""

    group: str
    sentence: str
    unit: str = ""


def _words(group: str, *rows: tuple[str, str] | tuple[str, str, str]) -> list[tuple[re.Pattern[str], MetricWords]]:
    return [(re.compile(row[0]), MetricWords(group, row[1], row[2] if len(row) == 3 else "")) for row in rows]


_STAGES = {
    "step": "The whole step, evaluation included.",
    "rollout": "Sampling the responses.",
    "reward": "Waiting for rewards; scoring begins while sampling goes on.",
    "filter": "Choosing the groups and responses to learn from.",
    "reference": "Log-probabilities under the reference model.",
    "old_logprobs": "Log-probabilities before the update.",
    "values": "What the critic expects.",
    "advantages": "Computing advantages.",
    "update_critic": "Updating the critic.",
    "update_actor": "Updating the policy.",
    "weight_sync": "Bringing the weights to the sampler.",
    "evaluation": "Answering and grading the held-out prompts.",
    "checkpoint": "How long the step waited for a checkpoint.",
    "checkpoint_write": "Writing a checkpoint, while the run goes on.",
    "checkpoint_wait": "Waiting for the checkpoint before to be written.",
}

TABLE: list[tuple[re.Pattern[str], MetricWords]] = [
    *_words(
        "Reward",
        (r"reward/mean", "Mean total reward of the sampled responses; responses without a score are left out."),
        (r"reward/std", "Spread of the total reward over all responses of the step (standard deviation)."),
        (r"reward/(?P<part>[^/]+)/mean", "Mean of the reward {part} before its weight."),
        (r"reward/(?!mean|std|missing|greedy_mean)(?P<part>[^/]+)", "Mean of the reward {part}."),
        (r"reward/greedy_mean", "Mean reward of the most likely response to each prompt."),
        (r"reward/missing", "Responses without a total, since a reward failed.", "responses"),
        (r"reward/(?P<part>[^/]+)/failures", "Responses on which the reward {part} failed.", "responses"),
        (r"reward/(?P<part>[^/]+)/vetoed", "Responses whose total the veto {part} overruled.", "responses"),
        (r"reward/(?P<part>[^/]+)/ms", "Mean time of the reward {part} for one response.", "ms"),
        (r"reward/(?P<part>[^/]+)/(?P<key>.+)/sum", "{key} of the reward {part}, added up over the step."),
        (
            r"reward/(?P<part>[^/]+)/(?P<key>.+)/missing",
            "Responses for which the reward {part} gave no {key}.",
            "responses",
        ),
        (
            r"reward/(?P<part>[^/]+)/(?P<key>.+)",
            "Mean of {key}, a number that the reward {part} gives besides its score.",
        ),
    ),
    *_words(
        "Evaluation",
        (r"eval/reward", "Mean total reward of the answers to held-out prompts."),
        (
            r"(?:eval/)?(?:greedy/)?accuracy",
            "Share of held-out prompts answered rightly, by the reward that decides.",
            "share",
        ),
        (
            r"(?:eval/)?(?:greedy/)?accuracy_(?P<side>low|high)",
            "The {side} end of the 95 % interval of the accuracy.",
            "share",
        ),
        (r"(?:eval/)?(?:greedy/)?pass@(?P<k>\d+)", "Chance that one of {k} responses is right.", "share"),
        (r"(?:eval/)?(?:greedy/)?maj@(?P<k>\d+)", "Chance that the majority of {k} responses is right.", "share"),
        (
            r"(?:eval/)?(?:greedy/)?source/(?P<source>.+)/(?P<name>accuracy|reward)",
            "The {name} on prompts of the source {source}.",
        ),
        (r"eval/loss", "The loss on held-out rows."),
        (r"eval/margin", "How far the better answer of a held-out pair is ahead, on average."),
        (r"eval/brier", "Mean of (1 − p)² over held-out pairs, p the probability of the right order: 0 is perfect."),
        (r"eval/ece", "Expected calibration error over 10 bins: how far stated probabilities are from what happens."),
        (r"eval/length_mean", "Mean length of the answers to held-out prompts.", "tokens"),
        (r"eval/truncated_share", "Share of held-out answers that were cut at the limit.", "share"),
        (r"eval/missing", "Held-out answers that no reward could score.", "responses"),
        (r"eval/num_samples", "Held-out prompts that were asked.", "prompts"),
        (r"against/difference", "Difference in accuracy from the checkpoint that this one is compared with.", "share"),
        (r"against/p_value", "Chance of a difference at least as large if both were equally good."),
        (r"eval/greedy/(?P<name>.+)", "{name} of the most likely answer to each held-out prompt."),
        (r"eval/(?P<name>[^/]+)", "Mean of {name} over the answers to held-out prompts."),
    ),
    *_words(
        "Loss",
        (r"sft/loss", "Mean negative log-probability of the learned tokens.", "nats/token"),
        (r"preference/loss", "Mean loss of the step's pairs."),
        (r"reward_model/loss", "Mean loss of the step's pairs."),
        (r"actor/loss", "All terms of the loss together, of one optimiser step."),
        (
            r"actor/policy_loss",
            "The policy's term of the loss; it says little about progress, watch the reward instead.",
        ),
        (r"actor/kl_loss", "The weighted KL term of the loss."),
        (r"actor/imitation_loss", "Weighted −log π over the tokens of right responses."),
        (r"actor/grad_norm", "Norm of the gradient before it is clipped."),
        (r"actor/lr", "Learning rate of the policy."),
        (r"actor/num_micro_batches", "Passes that one optimiser step was divided into."),
        (r"actor/num_tokens", "Tokens of an optimiser step, each prompt once and the responses.", "tokens"),
        (r"actor/padding_share", "Share of the tokens forwarded that only fill rows up.", "share"),
        (r"actor/skipped_steps", "Optimiser steps left out, since no token was sampled."),
        (r"actor/flops", "Operations of the policy's updates in the step.", "FLOP"),
    ),
    *_words(
        "KL",
        (r"actor/kl_reference", "Mean distance of the policy from the reference model a token (k3).", "nats/token"),
        (
            r"actor/approx_kl",
            "How far the update has moved the policy from where it began (mean of r − 1 − log r).",
            "nats/token",
        ),
        (r"actor/kl_coef", "The weight of the KL term in this step."),
        (r"actor/ratio_mean", "Mean ratio of new to old probability of a sampled token: 1 where nothing moved."),
        (r"actor/ratio_max", "Largest ratio of new to old probability of a sampled token."),
        (
            r"kl/(?P<side>chosen|rejected)",
            "k3 of the {side} answers against the reference, summed over an answer.",
            "nats",
        ),
    ),
    *_words(
        "Entropy",
        (r"actor/entropy", "Mean entropy of the policy: near 0 it no longer explores.", "nats/token"),
        (
            r"actor/entropy_estimate",
            "Minus the mean log-probability of what was sampled: the entropy, estimated at no cost.",
            "nats/token",
        ),
        (r"actor/entropy_coef", "The weight of the entropy term in this step."),
    ),
    *_words(
        "Length",
        (r"response/length_mean", "Mean length of the sampled responses.", "tokens"),
        (r"response/length_(?P<side>min|max)", "The {side}imum length of a sampled response.", "tokens"),
        (r"response/truncated_share", "Share of responses that were cut at the limit.", "share"),
        (r"response/empty_share", "Share of responses that say nothing.", "share"),
        (r"response/num_sequences", "Responses of the step.", "responses"),
        (r"response/num_tokens", "Response tokens of the step.", "tokens"),
    ),
    *_words(
        "Sampler check",
        *(
            (
                rf"sync/{where}kl",
                f"Distance between sampler and policy on the tokens sampled{text}; it should be near 0.",
                "nats/token",
            )
            for where, text in (("", ""), ("text/", " for text prompts"), ("image/", " for prompts with images"))
        ),
        (
            r"sync/(?:(?P<where>text|image)/)?logprob_gap_(?P<kind>max|mean)",
            "The {kind} gap between the sampler's and the policy's log-probability of a token {where}.",
            "nats",
        ),
        (
            r"sync/(?:(?P<where>text|image)/)?share_beyond_gap",
            "Share of tokens whose gap is beyond the bound {where}.",
            "share",
        ),
        (
            r"sync/(?:(?P<where>text|image)/)?effective_sample_size",
            "How evenly the tokens would weigh if the gap were corrected: 1 is evenly {where}.",
            "share",
        ),
        (
            r"correction/effective_sample_size",
            "How evenly tokens weigh after correction of the sampler: 1 is evenly.",
            "share",
        ),
        (r"correction/weight_mean", "Mean weight by which tokens are corrected for the sampler."),
        (r"correction/bounded_share", "Share of tokens whose weight a bound changed.", "share"),
        (r"correction/dropped_responses", "Responses that the correction left out.", "responses"),
    ),
    *_words(
        "Clipping",
        (
            r"actor/clip_fraction_low",
            "Share of sampled tokens that the lower bound of the ratio keeps from moving further.",
            "share",
        ),
        (
            r"actor/clip_fraction_high",
            "Share of sampled tokens that the upper bound of the ratio keeps from moving further.",
            "share",
        ),
        (
            r"actor/dual_clip_fraction",
            "Share of sampled tokens that the second bound, for negative advantages, holds.",
            "share",
        ),
        (r"actor/cap_fraction", "Share of sampled tokens whose weight is capped.", "share"),
        (r"actor/(?P<name>\w*(?:fraction|share))", "Share of sampled tokens: {name}.", "share"),
    ),
    *_words(
        "Groups",
        (
            r"groups/share_without_spread",
            "Share of groups whose responses all score the same: they teach nothing.",
            "share",
        ),
        (
            r"groups/share_all_fail_with_spread",
            "Share of groups that failed as a whole and yet differ in score.",
            "share",
        ),
        (r"groups/kept", "Groups that the update learns from.", "groups"),
        (r"groups/dropped", "Groups that the update leaves out.", "groups"),
        (r"groups/missing_rewards", "Responses without a score.", "responses"),
        (r"groups/masked_truncated", "Responses left out since they were cut.", "responses"),
        (r"groups/empty_responses", "Responses without a sampled token.", "responses"),
        (r"groups/extra_prompts", "Prompts sampled in place of dropped groups.", "prompts"),
        (r"groups/sampling_rounds", "Rounds of sampling in the step.", "rounds"),
        (r"groups/pairs", "Pairs that the step's groups gave.", "pairs"),
        (r"update/learning_share", "Share of sampled tokens that learn.", "share"),
        (r"update/skipped", "1 where no group was left and the weights stayed as they were."),
    ),
    *_words(
        "Critic",
        (r"critic/loss", "Loss of the critic."),
        (
            r"critic/explained_variance",
            "How much of the returns the critic foresees: 1 all, 0 nothing, below 0 worse than a constant.",
        ),
        (r"critic/clip_fraction", "Share of tokens where the clipped value decides the critic's loss.", "share"),
        (r"critic/value_mean", "Mean value that the critic expects."),
        (r"critic/return_mean", "Mean return that followed."),
        (r"critic/grad_norm", "Norm of the critic's gradient before it is clipped."),
        (r"critic/lr", "Learning rate of the critic."),
        (r"critic/(?P<name>\w+)", "{name} of the critic's updates, as for the policy."),
    ),
    *_words(
        "Preference",
        (r"rewards/accuracies", "Share of pairs that the policy orders rightly; a tie counts half.", "share"),
        (r"rewards/margins", "Implicit reward of the better answer minus that of the other."),
        (r"rewards/(?P<side>chosen|rejected)", "Implicit reward of the {side} answers."),
        (
            r"logps/(?P<side>chosen|rejected)",
            "Log-probability of the {side} answers, summed over their tokens.",
            "nats",
        ),
        (r"preference/delta", "The running mean reward that the loss is shifted by."),
        (r"reward_model/accuracy", "Share of pairs that the reward model orders rightly.", "share"),
        (r"reward_model/margin", "Score of the better answer minus that of the other."),
        (r"reward_model/score_(?P<side>chosen|rejected)", "Mean score of the {side} answers."),
        (r"mark/(?P<name>\w+)", "{name} of the marked pairs."),
    ),
    *_words(
        "Throughput",
        (r"perf/tokens_per_s", "Prompt and response tokens over the whole step.", "tokens/s"),
        (r"perf/rollout_tokens_per_s", "Response tokens over the time of sampling.", "tokens/s"),
        (r"perf/rollout_mfu", "Share of the device's matrix speed that sampling reaches.", "share"),
        (r"perf/update_mfu", "Share of the device's matrix speed that the policy's updates reach.", "share"),
        (r"perf/critic_mfu", "Share of the device's matrix speed that the critic's updates reach.", "share"),
    ),
    *_words(
        "Time",
        *((rf"timing_s/{stage}", sentence, "s") for stage, sentence in _STAGES.items()),
        (r"timing_s/(?P<stage>.+)", "Seconds of the stage {stage}.", "s"),
    ),
    *_words(
        "Storage",
        (r"checkpoint/copied_bytes", "State copied in memory for a checkpoint.", "bytes"),
        (r"checkpoint/written_bytes", "Bytes of a checkpoint written to the disk.", "bytes"),
        (r"checkpoint/num_failed", "Checkpoints that could not be written so far.", "checkpoints"),
        (r"export/bytes", "Size of the exported model.", "bytes"),
    ),
    *_words(
        "Data",
        (r"data/epoch", "Passes over the data so far.", "passes"),
        (r"data/epoch/(?P<name>.+)", "Passes over {name} so far.", "passes"),
        (r"data/mix/(?P<name>.+)", "Share of {name} in what was drawn.", "share"),
    ),
    *_words("Other", (r"noop/value(?:_\d+)?", "A number that a run without training makes up from its seed and step.")),
]
