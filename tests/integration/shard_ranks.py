"""Actor, critic and reference, whole and divided among the ranks of this run, on the same recorded rollouts.

    shard_ranks.py SETTINGS.json

with RANK, WORLD_SIZE and the address of the group in the environment. SETTINGS: `models`, folder of each family;
`scratch`, a folder; `cases`, what to compare (chunk_elements: most logits at once); `device`, cpu or cuda. Rank 0
writes what differs into `scratch`/report-WORLD_SIZE.json.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from shard_case import (
    TEMPERATURE,
    Case,
    World,
    gradients,
    metrics_gap,
    objective,
    parameters,
    relative_gap,
    rows_gap,
    second_of,
)
from shard_checkpoints import check_disk, resume, save
from torch import distributed

from mmrl.algorithms.value_loss import ValueObjective
from mmrl.config.critic import CriticConfig
from mmrl.engines.critic import HfCritic
from mmrl.engines.finite import NotFiniteError
from mmrl.engines.reference import Reference
from mmrl.engines.sharding import init_ranks
from mmrl.models import head
from mmrl.models.head import CHUNK_ELEMENTS
from mmrl.models.policy import named_weights
from mmrl.models.value_model import ValueModel


def compare_actor(world: World, case: Case) -> dict[str, Any]:
    """Gradient, its norm and metrics, logprobs, and the weights after two updates."""
    expected, actor = world.expected(case), world.actor(world.sharded_policy(case), case)
    batch, rows = world.batch(case), world.rows(world.batch(case), case)
    share = world.share(batch, case)
    actor.logprobs(batch.select_prompts(0, 0))  # nobody has anything to forward
    report: dict[str, Any] = {"logprobs": rows_gap(actor.logprobs(share).logprobs, expected.logprobs, rows)}
    pass_logprobs = actor.compute_gradients(share, objective(batch))
    assert pass_logprobs is not None
    report["pass_logprobs"] = rows_gap(pass_logprobs, expected.pass_logprobs, rows)
    report["gradient"] = relative_gap(gradients(actor.policy), expected.gradient)
    report["metrics"] = metrics_gap(actor.apply_gradients(), expected.metrics)
    second = second_of(batch)
    actor.train_step(world.share(second, case), objective(second))
    report["weights"] = relative_gap(dict(actor.weights()), expected.weights)
    return report


def compare_critic(world: World, case: Case) -> dict[str, Any]:
    models = [ValueModel(world.whole_policy(case)), world.sharded_value_model(case)]
    expected, found = (
        HfCritic(model, CriticConfig(optim=case.optim_config), case.train_config, total_steps=9) for model in models
    )
    batch = world.batch(case)
    share, rows = world.share(batch, case), world.rows(batch, case)
    metrics = []
    for _ in range(2):
        goal = ValueObjective(batch, value_clip=0.5)
        metrics.append(metrics_gap(found.train_step(share, goal), expected.train_step(batch, goal)))
    report = {"metrics": max(metrics), "values": rows_gap(found.values(share), expected.values(batch), rows)}
    report["weights"] = relative_gap(parameters(found.model), parameters(expected.model))
    return report


def compare_reference(world: World, case: Case) -> dict[str, Any]:
    policies = (world.whole_policy(case, trainable=False), world.sharded_policy(case, trainable=False))
    batch = world.batch(case)
    expected, found = (Reference(policy, case.train_config, temperature=TEMPERATURE) for policy in policies)
    rows = world.rows(batch, case)
    gaps = [rows_gap(found.logprobs(world.share(batch, case)), expected.logprobs(batch), rows) for _ in range(2)]
    return {"logprobs": max(gaps)}


def compare_weights(world: World, case: Case) -> dict[str, Any]:
    """Every weight, by the name of a checkpoint, each once."""
    expected = dict(named_weights(world.whole_policy(case)))
    found = dict(named_weights(world.sharded_policy(case)))
    return {"names": float(list(found) != list(expected)), "weights": relative_gap(found, expected)}


def compare_faults(world: World, case: Case) -> dict[str, Any]:
    """A number that is not finite on the last rank only: every rank raises the same, and no weight moves."""
    actor = world.actor(world.sharded_policy(case), case)
    batch = world.batch(case)
    before = {name: weight.clone() for name, weight in actor.weights()}
    report: dict[str, Any] = {}
    for name, poison in {"loss": float("nan"), "gradient": 1e38}.items():
        advantages = batch.advantages
        assert advantages is not None
        of_last = (batch.prompt_of_row == batch.prompt_of_row[-1])[:, None] & (batch.response_mask > 0)
        poisoned = batch.with_(advantages=advantages.masked_fill(of_last, poison))
        try:
            actor.train_step(world.share(poisoned, case), objective(poisoned))
            messages = ["no error"]
        except NotFiniteError as error:
            messages = [str(error)]
        told = [one for rank in world.ranks.gather(messages) for one in rank]
        report[f"{name}_message"] = told[0]
        report[f"{name}_differ"] = float(len(set(told)) != 1)
    report["moved"] = relative_gap(dict(actor.weights()), before)
    actor.train_step(world.share(batch, case), objective(batch))
    report["stuck"] = float(relative_gap(dict(actor.weights()), before) == 0)
    return report


COMPARISONS: dict[str, Callable[[World, Case], dict[str, Any]]] = {
    "actor": compare_actor,
    "critic": compare_critic,
    "reference": compare_reference,
    "weights": compare_weights,
    "faults": compare_faults,
    "save": save,
    "resume": resume,
    "disk": check_disk,
}


def worst(reports: Iterable[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for report in reports:
        for name, value in report.items():
            merged[name] = value if isinstance(value, str) else max(value, merged.get(name, value))
    return merged


def main(settings_file: str) -> None:
    settings = json.loads(Path(settings_file).read_text())
    ranks = init_ranks(settings.get("device", "cpu"), timeout_s=60)
    world = World(settings, ranks)
    report: dict[str, Any] = {}
    for entry in settings["cases"]:
        kind = entry.pop("kind", "actor")
        head.CHUNK_ELEMENTS = entry.pop("chunk_elements", CHUNK_ELEMENTS)
        case = Case(**{name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()})
        try:
            report[case.name] = worst(ranks.gather(COMPARISONS[kind](world, case)))
        except Exception:
            traceback.print_exc()
            raise SystemExit(1) from None
    if ranks.rank == 0:
        (world.scratch / f"report-{ranks.world_size}.json").write_text(json.dumps(report, indent=1))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
