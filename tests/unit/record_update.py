"""Records `recorded/update.json`: the tensors of one real update, for tests that need no model.

A tiny model learns sums for eight steps of PPO with a critic. Of the responses of the last step it keeps the rewards'
parts and, for every token, the log-probabilities under the weights at the start of the step (old), four steps before
(sampler) and at the start of the run (reference), the entropy, and the critic's value. Every third response gets a
tool's answer of two tokens in its middle, by masking them. From the root: `python tests/unit/record_update.py`.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TARGET = Path(__file__).parent / "recorded" / "update.json"
LIMIT = 9
KL = {"coef": 0.01, "where": "loss", "estimator": "k3"}
KEEP = '''
import pickle


class Keep:
    """Writes the update of the last step."""

    def __init__(self, path):
        self.path = path

    def __call__(self, update, context):
        with open(self.path, "wb") as file:
            pickle.dump((update.groups, update.batch), file)
        return update
'''
NEAR = """
import re


def near(response, answer):
    found = re.findall(r"boxed.([0-9]+)", response)
    distance = abs(int(found[-1]) - int(answer)) if found else 99
    return 1 / (1 + distance) if distance < 9 else 0.0


def length(response):
    return -len(response) / 400
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ |= {"MMRL_HOME": name, "WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
        sys.path.insert(0, str(ROOT / "tests" / "integration"))
        from learning import warm_model

        model = warm_model(home, "arithmetic", steps=60)
        (home / "keep.py").write_text(KEEP)
        (home / "near.py").write_text(NEAR)
        recorded = next(filter(_is_telling, (_record(home, model, seed) for seed in range(10))))
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps({"response_limit": LIMIT, "groups": recorded}) + "\n")


def _record(home: Path, model: Path, seed: int) -> list[list[dict[str, Any]]]:
    from learning import run, run_config

    kept = home / f"update-{seed}"
    function = {"type": "function", "path": str(home / "near.py")}
    config = run_config(
        model,
        "arithmetic@train",
        steps=8,
        lr=5e-4,
        seed=seed,
        algorithm={"type": "ppo", "group_size": 4, "kl": KL, "entropy_top_share": 0.5},
        reward=[
            {**function, "name": "near"},
            {"type": "format", "pattern": r"\\boxed\{\d+\}", "weight": 0.1},
            {**function, "name": "length", "shaping": True},
        ],
        rollout={"prompts_per_step": 6, "max_response_tokens": LIMIT},
        stages=[
            {
                "after": "advantages",
                "path": str(home / "keep.py"),
                "name": "Keep",
                "arguments": {"path": str(kept)},
            }
        ],
        checkpoint={"every": 4, "keep": 3},
    )
    result = run(config, home / f"run-{seed}")
    groups, batch = pickle.loads(kept.read_bytes())
    sampler = _logprobs_of(config, result.run_dir / "checkpoints" / "step-000004" / "model", batch)
    return _groups(groups, batch, sampler)


def _is_telling(groups: list[list[dict[str, Any]]]) -> bool:
    """Whether there is something for every part to act on: groups that fail, that differ and that do not, and
    responses that were cut and that were not."""
    outcomes = [[row["parts"][0][1] for row in group] for group in groups]
    cut = [row["truncated"] for group in groups for row in group]
    failing = sum(not any(values) for values in outcomes)
    print(f"{failing} of {len(groups)} groups fail, {sum(cut)} of {len(cut)} responses were cut", flush=True)
    return 0 < failing < len(groups) - 1 and 0 < sum(cut) < len(cut)


def _logprobs_of(config: Any, folder: Path, batch: Any) -> Any:
    from mmrl.data.images import ImageStore
    from mmrl.engines.passes import logprobs_without_gradient
    from mmrl.models.policy import load_policy

    model = config.model.model_copy(update={"path": str(folder)})
    policy = load_policy(model, config.data.image, store=ImageStore(), trainable=False)
    return logprobs_without_gradient(policy, batch, config.train, temperature=1.0).logprobs


def _groups(groups: Any, batch: Any, sampler: Any) -> list[list[dict[str, Any]]]:
    tensors = {
        "sampler": sampler,
        "old": batch.old_logprobs,
        "reference": batch.reference_logprobs,
        "entropy": batch.old_entropy,
        "values": batch.values,
    }
    recorded, row = [], 0
    for group in groups:
        responses = []
        for rollout, reward in zip(group.group.rollouts, group.rewards, strict=True):
            length = len(rollout.token_ids)
            mask = [0 if row % 3 == 0 and position in (1, 2) else 1 for position in range(length)]
            columns = {
                name: [round(float(value) * bit, 5) for value, bit in zip(tensor[row, :length], mask, strict=True)]
                for name, tensor in tensors.items()
            }
            parts = [[part.name, round(part.value, 5), part.weight] for part in reward.parts]
            responses.append({"parts": parts, "truncated": rollout.is_truncated, "mask": mask, **columns})
            row += 1
        recorded.append(responses)
    return recorded


if __name__ == "__main__":
    main()
