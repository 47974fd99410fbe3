"""verl's settings in ours. Where a config leaves one out, verl's own default is put, since ours may differ."""

from __future__ import annotations

from mmrl.config.importing import shared
from mmrl.config.importing.draft import Draft

ACTOR, ROLLOUT, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
DTYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp32": "float32", "float32": "float32"}
POLICY_LOSSES = {"vanilla": None, "gspo": "gspo", "cispo": "cispo", "sapo": "sapo"}


def convert(draft: Draft) -> None:
    _data(draft)
    _algorithm(draft)
    _actor(draft)
    _optimiser(draft)
    _rollout(draft)
    _trainer(draft)
    _reward(draft)


def _data(draft: Draft) -> None:
    shared.put_data(draft)
    for key in ("data.reward_fn_key", "data.return_raw_chat", "data.return_raw_input_ids"):
        draft.take(key)
    draft.take(f"{ROLLOUT}.prompt_length")
    draft.take(f"{ROLLOUT}.response_length")
    truncation = draft.take("data.truncation", "error")
    drops = draft.take("data.filter_overlong_prompts", False)
    if not drops and truncation != "error":
        draft.note("data.truncation", truncation, "prompts are never cut; those that are too long are left out")
    draft.put("data.on_overlong", "error" if truncation == "error" and not drops else "drop")
    draft.move("data.seed", "seed")


def _algorithm(draft: Draft) -> None:
    name = shared.put_algorithm(draft, "algorithm.adv_estimator", "gae")
    by_std = draft.take("algorithm.norm_adv_by_std_in_grpo", True)
    if name == "grpo" and not by_std:
        draft.put("algorithm.type", "dr_grpo")
    in_loss = draft.take(f"{ACTOR}.use_kl_loss", False)
    coef, kind = draft.take(f"{ACTOR}.kl_loss_coef", 0.001), draft.take(f"{ACTOR}.kl_loss_type", "low_var_kl")
    in_reward = draft.take("algorithm.use_kl_in_reward", False)
    reward_coef, penalty = draft.take("algorithm.kl_ctrl.kl_coef", 0.001), draft.take("algorithm.kl_penalty", "kl")
    control = draft.take("algorithm.kl_ctrl.type", "fixed")
    horizon, target = draft.take("algorithm.kl_ctrl.horizon"), draft.take("algorithm.kl_ctrl.target_kl")
    if in_loss and coef:
        shared.put_kl(draft, coef=coef, kind=kind, where="loss", key=f"{ACTOR}.kl_loss_type")
        if in_reward:
            draft.note("algorithm.use_kl_in_reward", True, "there is one penalty; the one in the loss is taken")
    elif in_reward and reward_coef:
        shared.put_kl(draft, coef=reward_coef, kind=penalty, where="reward", key="algorithm.kl_penalty")
        if control == "adaptive":
            draft.put("algorithm.kl.target", target)
            draft.put("algorithm.kl.horizon", horizon)
    draft.move("algorithm.gamma", "algorithm.gamma")
    draft.move("algorithm.lam", "algorithm.lam")
    if draft.take("algorithm.filter_groups.enable", False):
        draft.put("algorithm.drop_groups_without_spread", True)
        rounds = draft.take("algorithm.filter_groups.max_num_gen_batches", 0)
        draft.put("algorithm.sampling_rounds", rounds if rounds > 0 else 10)
    draft.take("algorithm.filter_groups.max_num_gen_batches")
    metric = draft.take("algorithm.filter_groups.metric")
    if metric not in (None, "seq_reward", "seq_final_reward", "score"):
        draft.note("algorithm.filter_groups.metric", metric, "a group is dropped when its total rewards are all equal")


def _actor(draft: Draft) -> None:
    batch = draft.take("data.train_batch_size", 1024)
    mini_batch = draft.take(f"{ACTOR}.ppo_mini_batch_size", 256)
    shared.put_mini_batches(draft, batch=batch, mini_batch=mini_batch, key=f"{ACTOR}.ppo_mini_batch_size")
    shared.put_required(draft, "model.path", draft.take(f"{MODEL}.path"), f"{MODEL}.path")
    if draft.take(f"{ACTOR}.freeze_vision_tower", False):
        draft.put("model.freeze", ["vision"])
    clip = draft.take(f"{ACTOR}.clip_ratio", 0.2)
    draft.move(f"{ACTOR}.clip_ratio_low", "algorithm.clip_low", clip)
    draft.move(f"{ACTOR}.clip_ratio_high", "algorithm.clip_high", clip)
    draft.move(f"{ACTOR}.clip_ratio_c", "algorithm.dual_clip", 3.0)
    draft.move(f"{ACTOR}.entropy_coeff", "algorithm.entropy_coef", 0.0)
    draft.move(f"{ACTOR}.ppo_epochs", "train.epochs", 1)
    draft.move(f"{ACTOR}.ppo_max_token_len_per_gpu", "train.micro_batch_tokens")
    mode = draft.take(f"{ACTOR}.loss_agg_mode", "token-mean")
    draft.put("algorithm.loss_aggregation", shared.AGGREGATIONS.get(mode))
    loss = draft.take(f"{ACTOR}.policy_loss.loss_mode", "vanilla")
    if POLICY_LOSSES.get(loss):
        draft.put("algorithm.policy_loss", {"type": POLICY_LOSSES[loss]})
    elif loss not in POLICY_LOSSES:
        draft.note(f"{ACTOR}.policy_loss.loss_mode", loss, "no such loss here; the algorithm's own is used")
    dtype = draft.take(f"{ACTOR}.fsdp_config.dtype")
    draft.put("model.dtype", DTYPES.get(str(dtype)))


def _optimiser(draft: Draft) -> None:
    optim = f"{ACTOR}.optim"
    draft.move(f"{optim}.lr", "optim.lr", 1e-6)
    draft.move(f"{optim}.weight_decay", "optim.weight_decay", 0.01)
    draft.move(f"{optim}.betas", "optim.betas")
    draft.put("optim.grad_clip", draft.take(f"{optim}.clip_grad", draft.take(f"{ACTOR}.grad_clip", 1.0)))
    schedule = draft.take(f"{optim}.lr_scheduler_type", draft.take(f"{optim}.warmup_style", "constant"))
    draft.put("optim.schedule", schedule)
    draft.put("optim.min_lr_ratio", draft.take(f"{optim}.min_lr_ratio"))
    if draft.take("algorithm.adv_estimator", "gae") == "gae":
        draft.move("critic.optim.lr", "critic.optim.lr", 1e-5)
        draft.move("critic.cliprange_value", "critic.value_clip", 0.5)
        draft.move("trainer.critic_warmup", "critic.warmup_steps", 0)


def _rollout(draft: Draft) -> None:
    engine = draft.take(f"{ROLLOUT}.name", "vllm")
    draft.note(f"{ROLLOUT}.name", engine, "the engine is rollout.engine; hf is the one that runs everywhere")
    draft.move(f"{ROLLOUT}.n", "algorithm.group_size", 1)
    draft.move(f"{ROLLOUT}.temperature", "rollout.temperature", 1.0)
    draft.move(f"{ROLLOUT}.top_p", "rollout.top_p")
    draft.put("rollout.top_k", max(0, draft.take(f"{ROLLOUT}.top_k", -1)))
    val = f"{ROLLOUT}.val_kwargs"
    temperature = draft.take(f"{val}.temperature", 0)
    draft.put("eval.temperature", temperature if draft.take(f"{val}.do_sample", False) else 0)
    draft.move(f"{val}.n", "eval.samples_per_prompt", 1)


def _trainer(draft: Draft) -> None:
    draft.move("trainer.experiment_name", "name")
    steps, epochs = draft.take("trainer.total_training_steps"), draft.take("trainer.total_epochs", 30)
    steps = shared.put_steps(draft, steps=steps, epochs=epochs, key="trainer.total_epochs")
    optim = f"{ACTOR}.optim"
    warmup, ratio = draft.take(f"{optim}.lr_warmup_steps"), draft.take(f"{optim}.lr_warmup_steps_ratio")
    shared.put_warmup(draft, warmup_steps=warmup, ratio=ratio, steps=steps, key=f"{optim}.lr_warmup_steps_ratio")
    shared.put_trackers(draft, "trainer.logger")
    shared.put_period(draft, "trainer.test_freq", "eval.every")
    shared.put_period(draft, "trainer.save_freq", "checkpoint.every")
    draft.move("trainer.val_before_train", "eval.at_start", True)
    keep = draft.take("trainer.max_actor_ckpt_to_keep")
    draft.put("checkpoint.keep", keep if isinstance(keep, int) and keep > 0 else None)


def _reward(draft: Draft) -> None:
    for group in ("reward.custom_reward_function", "custom_reward_function"):
        path, name = draft.take(f"{group}.path"), draft.take(f"{group}.name")
        if path:
            shared.put_reward_function(draft, path=path, name=name, key=f"{group}.path")
            return
    shared.put_reward_function(draft, path=None, name=None, key="custom_reward_function.path")
