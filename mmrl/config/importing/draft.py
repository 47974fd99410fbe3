"""Our config in the making: what a peer's table has put in, and what it had to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from mmrl.config.algorithm import AlgorithmConfig
from mmrl.config.importing.peer_tree import PeerTree
from mmrl.config.schema import models_of, tag_of
from mmrl.config.secrets import redact_under

HARDWARE = "how work is placed on devices; the placement here follows from the config's own settings"
SPEED = "a setting of the peer's engine that changes speed or memory and no result"
REASONS: dict[str, str] = {
    "trainer.nnodes": HARDWARE,
    "trainer.n_gpus_per_node": HARDWARE,
    "global_profiler": "profiling of the peer",
    "ray_kwargs": HARDWARE,
    "ray_init": HARDWARE,
}
_FIELD_REASONS = {
    "fsdp": HARDWARE,
    "fsdp_config": HARDWARE,
    "megatron": HARDWARE,
    "offload": HARDWARE,
    "tensor_parallel_size": HARDWARE,
    "tensor_model_parallel_size": HARDWARE,
    "ulysses_size": HARDWARE,
    "ulysses_sequence_parallel_size": HARDWARE,
    "gpu_memory_utilization": SPEED,
    "enforce_eager": SPEED,
    "enable_chunked_prefill": SPEED,
    "free_cache_engine": SPEED,
    "disable_log_stats": SPEED,
    "disable_tqdm": SPEED,
    "max_num_batched_tokens": SPEED,
    "max_num_seqs": SPEED,
    "use_remove_padding": SPEED,
    "padding_free": SPEED,
    "dynamic_batching": SPEED,
    "use_dynamic_bsz": SPEED,
    "use_torch_compile": SPEED,
    "enable_gradient_checkpointing": SPEED,
    "micro_batch_size_per_device_for_update": "micro-batches are counted in tokens: train.micro_batch_tokens",
    "micro_batch_size_per_device_for_experience": "micro-batches are counted in tokens: train.micro_batch_tokens",
    "ppo_micro_batch_size_per_gpu": "micro-batches are counted in tokens: train.micro_batch_tokens",
    "ppo_micro_batch_size": "micro-batches are counted in tokens: train.micro_batch_tokens",
    "log_prob_micro_batch_size_per_gpu": "micro-batches are counted in tokens: train.micro_batch_tokens",
    "log_prob_micro_batch_size": "micro-batches are counted in tokens: train.micro_batch_tokens",
    "log_prob_max_token_len_per_gpu": "micro-batches are counted in tokens: train.micro_batch_tokens",
    "trust_remote_code": "code of a model's folder is never run here",
    "project_name": "a run has one name",
}
_NO_EQUAL = "mmrl has no such setting"


@dataclass(frozen=True)
class Note:
    """What became of one of the peer's settings, where that is not simply ours. key: the peer's, or ours to set."""

    key: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}" if self.value is None else f"{self.key}={self.value}: {self.reason}"


class Draft:
    """`take` from the peer, `put` into ours, `note` what does not go over as it is.

    to_set: what the user must set before the run means what the peer's did, a line each.
    """

    def __init__(self, tree: PeerTree, count_rows: Callable[[str], int | None] | None = None) -> None:
        self._tree = tree
        self._count_rows = count_rows
        self._ours: dict[str, Any] = {}
        self.notes: list[Note] = []
        self.to_set: list[str] = []
        self.take = tree.take

    def put(self, key: str, value: Any) -> None:
        """Sets one of our dotted keys; None leaves it at our default."""
        if value is not None:
            self._ours[key] = value

    def move(self, theirs: str, ours: str, default: Any = None) -> None:
        """The setting as it is. default: the peer's own, where its config leaves the setting out."""
        self.put(ours, self.take(theirs, default))

    def get(self, key: str) -> Any:
        """What was put under one of our keys, or None."""
        return self._ours.get(key)

    def num_train_rows(self) -> int | None:
        """The rows of the training set, where they can be counted."""
        train = self._ours.get("data.train")
        return self._count_rows(train) if isinstance(train, str) and self._count_rows is not None else None

    def note(self, key: str, value: Any, reason: str) -> None:
        self.notes.append(Note(key, redact_under(key.rpartition(".")[2], value), reason))

    def note_what_is_left(self) -> None:
        """A note for each setting that no table asked for."""
        for key, value in self._tree.left().items():
            parts = key.split(".")
            reason = REASONS.get(key) or next((_FIELD_REASONS[part] for part in parts if part in _FIELD_REASONS), None)
            self.note(key, value, reason or REASONS.get(parts[0]) or _NO_EQUAL)

    def data(self) -> dict[str, Any]:
        """Ours as nested plain data, without algorithm settings that the chosen algorithm does not have."""
        known = _fields_of_algorithm(self._ours.get("algorithm.type", "grpo"))
        nested: dict[str, Any] = {}
        for key, value in self._ours.items():
            first, _, rest = key.partition(".")
            if first == "algorithm" and rest.partition(".")[0] not in known:
                self.note(key, value, f"the algorithm {self._ours['algorithm.type']!r} has no such setting here")
                continue
            *groups, name = key.split(".")
            place = nested
            for group in groups:
                place = place.setdefault(group, {})
            place[name] = value
        return nested


def algorithm_types() -> Mapping[str, Any]:
    """The classes of our algorithms by type."""
    return {str(tag_of(model)): model for model in models_of(get_args(AlgorithmConfig)[0])}


def _fields_of_algorithm(name: str) -> set[str]:
    return set(algorithm_types()[name].model_fields)
