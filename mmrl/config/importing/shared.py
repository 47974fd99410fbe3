"""What the tables of verl and EasyR1 share: the same idea under two names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmrl.config.importing.draft import Draft, algorithm_types
from mmrl.config.run import TrainConfig
from mmrl.errors import ConfigError

ALGORITHMS = {"gae": "ppo", "grpo_passk": "pass_at_k", "rloo_vectorized": "rloo", "grpo_vectorized": "grpo"}
AGGREGATIONS = {
    "token-mean": "token_mean",
    "token": "token_mean",
    "seq-mean-token-sum": "sequence_mean_token_sum",
    "seq-mean-token-mean": "sequence_mean_token_mean",
    "seq": "sequence_mean_token_mean",
    "seq-mean-token-sum-norm": "constant",
}
ESTIMATORS = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}
TRACKERS = ("wandb", "tensorboard")
_RECOGNISED = {
    "prompt": ("messages", "prompt", "problem", "question"),
    "answer": ("answer",),
    "images": ("images", "image"),
}


def put_data(draft: Draft) -> None:
    """The data sets, the columns of prompt and images, and the limits of length, which both name alike."""
    train = data_reference(draft.take("data.train_files"), draft, "data.train_files")
    put_required(draft, "data.train", train, "data.train_files")
    draft.put("data.eval", data_reference(draft.take("data.val_files"), draft, "data.val_files"))
    put_column(draft, "prompt", draft.take("data.prompt_key"), "data.prompt_key")
    put_column(draft, "images", draft.take("data.image_key"), "data.image_key")
    draft.take("data.video_key")
    draft.move("data.max_prompt_length", "data.max_prompt_tokens", 512)
    draft.move("data.max_response_length", "rollout.max_response_tokens", 512)
    draft.move("data.shuffle", "data.shuffle", True)


def data_reference(value: Any, draft: Draft, key: str) -> str | None:
    """A path as it is; a name on the hub, as EasyR1 takes it, as hf://NAME@SPLIT. Of several files the first."""
    if isinstance(value, list):
        if len(value) > 1:
            draft.note(
                key, value[1:], "one data set is imported; put the files into one folder, or add them as one set"
            )
        value = value[0] if value else None
    if value is None:
        return None
    text = str(value)
    stem = text.partition("@")[0]
    is_path = stem.startswith((".", "/", "~", "$")) or bool(Path(stem).suffix) or Path(stem).exists()
    return text if is_path or stem.count("/") != 1 else f"hf://{text}"


def put_column(draft: Draft, field: str, column: Any, key: str) -> None:
    """A column of the peer's that is not recognised by its name goes into data.map."""
    if column is None or column in _RECOGNISED[field]:
        return
    if not str(column).isidentifier():
        draft.note(key, column, f"not the name of a column that data.map can hold; set data.map.{field}")
        return
    draft.put(f"data.map.{field}", str(column))


def put_algorithm(draft: Draft, key: str, default: str) -> str:
    """Sets algorithm.type. Raises ConfigError for one that there is none like."""
    theirs = str(draft.take(key, default))
    name = ALGORITHMS.get(theirs, theirs)
    if name not in algorithm_types():
        raise ConfigError(
            f"{key}: no algorithm like {theirs!r} here; those that there are: {', '.join(algorithm_types())}"
        )
    draft.put("algorithm.type", name)
    return name


def put_mini_batches(draft: Draft, *, batch: int, mini_batch: int, key: str) -> None:
    """Theirs is the size of a mini-batch in prompts, ours their number."""
    draft.put("rollout.prompts_per_step", batch)
    number = max(1, round(batch / mini_batch))
    if batch % number or batch != number * mini_batch:
        number = next(count for count in range(number, 0, -1) if batch % count == 0)
        draft.note(key, mini_batch, f"does not divide the {batch} prompts of a step; train.mini_batches is {number}")
    draft.put("train.mini_batches", number)


def put_kl(draft: Draft, *, coef: float, kind: str, where: str, key: str) -> None:
    """The penalty towards the reference, by the estimator that is right where it is taken."""
    estimator = ESTIMATORS.get(str(kind).removesuffix("+"), "")
    right = {"reward": ("k1",), "loss": ("k2", "k3")}[where]
    if estimator not in right:
        used = right[-1]
        draft.note(
            key, kind, f"in the {where} the estimator {used} is used: another has the wrong gradient there, or none"
        )
        estimator = used
    for name, value in (("coef", coef), ("estimator", estimator), ("where", where)):
        draft.put(f"algorithm.kl.{name}", value)


def put_steps(draft: Draft, *, steps: Any, epochs: Any, key: str) -> int | None:
    """The length of a run is counted in steps here: the peer's own number, or its epochs over rows that can be counted.

    Returns the steps; where they cannot be told, says that they must be set and returns None.
    """
    if isinstance(steps, int) and steps > 0:
        draft.put("train.steps", steps)
        return steps
    rows, batch = draft.num_train_rows(), draft.get("rollout.prompts_per_step")
    if rows and isinstance(epochs, int | float) and isinstance(batch, int) and rows >= batch:
        number = max(1, int(epochs * (rows // batch)))
        draft.put("train.steps", number)
        draft.note(
            key,
            epochs,
            f"train.steps is {number}: {epochs} epochs of {rows // batch} whole batches of {batch} in {rows} rows; "
            "fewer if long prompts are dropped",
        )
        return number
    default = TrainConfig.model_fields["steps"].default
    draft.note(key, epochs, "a run is counted in steps: set train.steps to epochs x rows / rollout.prompts_per_step")
    draft.to_set.append(
        f"train.steps: the peer's run has {epochs} epochs and the rows of its data set are not known here; set it to "
        f"{epochs} x rows / {batch}. Without it a run has {default} steps"
    )
    return None


def put_warmup(draft: Draft, *, warmup_steps: Any, ratio: Any, steps: Any, key: str) -> None:
    if isinstance(warmup_steps, int) and warmup_steps > 0:
        draft.put("optim.warmup_steps", warmup_steps)
    elif ratio and isinstance(steps, int) and steps > 0:
        draft.put("optim.warmup_steps", round(ratio * steps))
    elif ratio:
        draft.note(key, ratio, "warm-up is counted in steps: set optim.warmup_steps to this share of train.steps")


def put_period(draft: Draft, theirs: str, ours: str) -> None:
    """Theirs is -1 for never, ours 0 for only at the end."""
    every = draft.take(theirs, -1)
    draft.put(ours, max(0, int(every)))


def put_trackers(draft: Draft, key: str) -> None:
    names = draft.take(key, [])
    names = [names] if isinstance(names, str) else names
    draft.put("track", [name for name in names if name in TRACKERS] or None)
    others = [name for name in names if name not in (*TRACKERS, "console")]
    if others:
        draft.note(key, others, f"no such tracker; there are {' and '.join(TRACKERS)}")


def put_reward_function(draft: Draft, *, path: Any, name: Any, key: str) -> None:
    """A function keeps its place, but is called in another way; without one, answers are graded as mathematics."""
    if path:
        draft.put("reward", [{"type": "function", "path": str(path), "name": str(name or "compute_score")}])
        draft.note(
            key,
            f"{path}:{name}",
            "is called with arguments by name (response, answer, images, meta …) and returns a "
            "number: see the page on rewards, and change its parameters",
        )
        return
    draft.put("reward", [{"type": "math"}])
    draft.note("reward", "math", "the peer chose a grader by data_source; set the reward that fits the answers")


def put_required(draft: Draft, key: str, value: Any, theirs: str) -> None:
    """What no run can be without; a word in its place where the peer's config does not say it."""
    if value is None:
        value = "SET-" + key.replace(".", "-").upper()
        draft.to_set.append(f"{key}: the peer's config does not say it ({theirs})")
        draft.note(key, None, f"the peer's config does not say it ({theirs}); set it")
    draft.put(key, value)
