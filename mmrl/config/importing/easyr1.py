"""EasyR1's settings in ours. Where a config leaves one out, EasyR1's own default is put, since ours may differ."""

from __future__ import annotations

from typing import Any

from mmrl.config.importing import shared
from mmrl.config.importing.draft import Draft

POLICY_LOSSES = {"gspo": "gspo", "gspo_token": "gspo", "cispo": "cispo", "default": None}


def convert(draft: Draft) -> None:
    _data(draft)
    _algorithm(draft)
    _actor(draft)
    _rollout(draft)
    _trainer(draft)
    function = str(draft.take("worker.reward.reward_function") or "")
    path, _, name = function.rpartition(":") if ":" in function else (function, "", "main")
    draft.take("worker.reward.reward_type")
    shared.put_reward_function(draft, path=path, name=name, key="worker.reward.reward_function")


def _data(draft: Draft) -> None:
    shared.put_data(draft)
    shared.put_column(draft, "answer", draft.take("data.answer_key"), "data.answer_key")
    draft.move("data.image_dir", "data.image_root")
    draft.put("data.on_overlong", "drop" if draft.take("data.filter_overlong_prompts", True) else "error")
    draft.move("data.seed", "seed", 1)
    draft.move("data.min_pixels", "data.image.min_pixels", 262144)
    draft.move("data.max_pixels", "data.image.max_pixels", 4194304)
    template = draft.take("data.format_prompt")
    if template:
        draft.note(
            "data.format_prompt", template, "prompts are not wrapped in a template here: write its words into the rows"
        )


def _algorithm(draft: Draft) -> None:
    shared.put_algorithm(draft, "algorithm.adv_estimator", "grpo")
    use_loss, kind = draft.take("algorithm.use_kl_loss", False), draft.take("algorithm.kl_penalty", "kl")
    coef = draft.take("algorithm.kl_coef", 1e-3)
    if not draft.take("algorithm.disable_kl", False) and coef:
        where = "loss" if use_loss else "reward"
        shared.put_kl(draft, coef=coef, kind=kind, where=where, key="algorithm.kl_penalty")
    draft.move("algorithm.gamma", "algorithm.gamma")
    draft.move("algorithm.lam", "algorithm.lam")
    if draft.take("algorithm.online_filtering", False):
        draft.put("algorithm.drop_groups_without_spread", True)
        rounds = draft.take("trainer.max_try_make_batch", 20)
        draft.put("algorithm.sampling_rounds", rounds if rounds > 0 else 20)
        for name in ("filter_key", "filter_low", "filter_high"):
            value = draft.take(f"algorithm.{name}")
            if value is not None:
                draft.note(f"algorithm.{name}", value, "a group is dropped when its responses all score the same")
    else:
        for key in (
            "algorithm.filter_key",
            "algorithm.filter_low",
            "algorithm.filter_high",
            "trainer.max_try_make_batch",
        ):
            draft.take(key)


def _actor(draft: Draft) -> None:
    actor = "worker.actor"
    batch = draft.take("data.rollout_batch_size", 512)
    mini_batch = draft.take(f"{actor}.global_batch_size", 256)
    shared.put_mini_batches(draft, batch=batch, mini_batch=mini_batch, key=f"{actor}.global_batch_size")
    shared.put_required(draft, "model.path", draft.take(f"{actor}.model.model_path"), f"{actor}.model.model_path")
    if draft.take(f"{actor}.model.freeze_vision_tower", False):
        draft.put("model.freeze", ["vision"])
    draft.move(f"{actor}.clip_ratio_low", "algorithm.clip_low", 0.2)
    draft.move(f"{actor}.clip_ratio_high", "algorithm.clip_high", 0.3)
    draft.move(f"{actor}.clip_ratio_dual", "algorithm.dual_clip", 3.0)
    draft.move(f"{actor}.entropy_coeff", "algorithm.entropy_coef")
    draft.move(f"{actor}.ppo_epochs", "train.epochs", 1)
    draft.move(f"{actor}.max_grad_norm", "optim.grad_clip", 1.0)
    mode = draft.take(f"{actor}.loss_avg_mode", "token")
    draft.put("algorithm.loss_aggregation", shared.AGGREGATIONS.get(mode))
    _policy_loss(draft, draft.take(f"{actor}.loss_type", "default"))
    draft.move(f"{actor}.optim.lr", "optim.lr", 1e-6)
    draft.move(f"{actor}.optim.weight_decay", "optim.weight_decay", 1e-2)
    draft.move(f"{actor}.optim.betas", "optim.betas")
    strategy = draft.take(f"{actor}.optim.strategy", "adamw")
    if strategy != "adamw":
        draft.note(f"{actor}.optim.strategy", strategy, "the optimiser is AdamW")
    if draft.take("worker.critic.optim.lr") is not None and draft.take("algorithm.adv_estimator") == "gae":
        draft.move("worker.critic.optim.lr", "critic.optim.lr")


def _policy_loss(draft: Draft, theirs: Any) -> None:
    ours = POLICY_LOSSES.get(theirs)
    if ours is not None:
        draft.put("algorithm.policy_loss", {"type": ours})
    elif theirs not in POLICY_LOSSES:
        draft.note("worker.actor.loss_type", theirs, "no such loss here; the algorithm's own is used")


def _rollout(draft: Draft) -> None:
    rollout = "worker.rollout"
    draft.move(f"{rollout}.n", "algorithm.group_size", 1)
    draft.move(f"{rollout}.temperature", "rollout.temperature", 1.0)
    draft.move(f"{rollout}.top_p", "rollout.top_p")
    draft.put("rollout.top_k", max(0, draft.take(f"{rollout}.top_k", -1)))
    draft.put("data.max_images", draft.take(f"{rollout}.limit_images", 0) or None)
    override = f"{rollout}.val_override_config"
    draft.move(f"{override}.temperature", "eval.temperature")
    draft.move(f"{override}.n", "eval.samples_per_prompt")


def _trainer(draft: Draft) -> None:
    draft.move("trainer.experiment_name", "name")
    steps, epochs = draft.take("trainer.max_steps"), draft.take("trainer.total_epochs", 15)
    steps = shared.put_steps(draft, steps=steps, epochs=epochs, key="trainer.total_epochs")
    ratio, warmup = draft.take("worker.actor.optim.lr_warmup_ratio"), draft.take("worker.actor.optim.lr_warmup_steps")
    key = "worker.actor.optim.lr_warmup_ratio"
    shared.put_warmup(draft, warmup_steps=warmup, ratio=ratio, steps=steps, key=key)
    shared.put_trackers(draft, "trainer.logger")
    shared.put_period(draft, "trainer.val_freq", "eval.every")
    shared.put_period(draft, "trainer.save_freq", "checkpoint.every")
    draft.move("trainer.val_before_train", "eval.at_start", True)
    limit = draft.take("trainer.save_limit", -1)
    draft.put("checkpoint.keep", limit if limit > 0 else None)
