"""The states of sharded parts on disk: each rank writes what it keeps, and any number of ranks reads it again.

    shards/
        .metadata, __0_0.distcp, __1_0.distcp …   tensors that are divided among ranks (torch.distributed.checkpoint),
                                                 each under PART/KEY/PARAMETER[/MOMENT]
        states.pt                                what is left of each part's state, the same on every rank

The model itself is written as a whole (`shard_model_files`), since samplers and people read it too. Files are read
without running code that they may hold (`shard_reader`).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import torch
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.tensor import DTensor

from mmrl.checkpoint_files import SHARDS_FOLDER, TRAINER_FILE
from mmrl.engines.shard_reader import ShardReader
from mmrl.engines.shard_tensors import sharded_like
from mmrl.engines.sharding import Ranks
from mmrl.errors import CheckpointWriteError, DataError

STATES_FILE = "states.pt"


class Part(Protocol):
    """An actor or critic."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


def save_sharded_parts(folder: Path, parts: Mapping[str, Part], ranks: Ranks) -> None:
    """The states of `parts` (name -> actor or critic) into `folder`/shards, by all ranks.

    Raises CheckpointWriteError, on every rank, where the ranks do not see one disk, or a rank's file is missing at the
    end.
    """
    shards = folder / SHARDS_FOLDER
    check_shared_disk(shards, ranks)
    rest: dict[str, Any] = {}
    divided: dict[str, Tensor] = {}
    for name, part in parts.items():
        rest[name] = _take_out(part.state_dict(), (name,), divided)
    if divided:
        writer = checkpoint.FileSystemWriter(shards, single_file_per_rank=True, sync_files=True)
        try:
            checkpoint.save(divided, storage_writer=writer, process_group=ranks.control)
        except checkpoint.CheckpointException as error:
            raise CheckpointWriteError(f"checkpoint {shards} could not be written: {_failures(error)}") from error
    fault: str | None = None
    if ranks.rank == 0:
        try:
            torch.save(rest, shards / STATES_FILE)
        except (OSError, RuntimeError) as error:
            fault = str(error)
    _check_files(shards, ranks, fault)


def load_sharded_parts(folder: Path, parts: Mapping[str, Part], models: Mapping[str, nn.Module], ranks: Ranks) -> None:
    """Gives each of `parts` the state that it had in the checkpoint `folder`, which any number of ranks, or a run in
    one process, may have written.

    models: of each part, the module whose parameters its state is of.
    Raises KeyError for a part without a state there, ModelError for one of other parameters.
    """
    states = read_states(folder, models, ranks=ranks)
    for name, part in parts.items():
        part.load_state_dict(states[name])
    ranks.barrier()


def read_states(
    folder: Path,
    models: Mapping[str, nn.Module] | None = None,
    *,
    ranks: Ranks | None = None,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """State of each part in the checkpoint `folder`, by name.

    models: parts whose tensors come divided as the parameters of these are; all others come whole.
    ranks: who reads together; None for a single process. without: parts that are not read.
    """
    parameters = {name: dict(model.named_parameters()) for name, model in (models or {}).items()}
    whole = folder / TRAINER_FILE
    states: dict[str, Any] = {}
    if whole.is_file():
        read = torch.load(whole, map_location="cpu", weights_only=True, mmap=True)
        states = {name: _divide(state, (name,), parameters) for name, state in read.items() if name not in without}
    if (folder / SHARDS_FOLDER).is_dir():
        states |= _read_shards(folder / SHARDS_FOLDER, parameters, ranks, without)
    return states


def check_shared_disk(folder: Path, ranks: Ranks) -> None:
    """Makes `folder`. Raises CheckpointWriteError, on every rank, where one does not see what rank 0 wrote."""
    token = ranks.gather(f".seen-by-all-{uuid4().hex}")[0]
    fault: str | None = None
    if ranks.rank == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / token).touch()
        except OSError as error:
            fault = f"{error.strerror} ({error.filename})"
    faults = ranks.gather(fault)
    seen = ranks.gather((folder / token).is_file())
    if ranks.rank == 0 and fault is None:
        (folder / token).unlink()
    if faults[0] is not None:
        raise CheckpointWriteError(f"checkpoint {folder} cannot be written: {faults[0]}")
    blind = [str(rank) for rank, sees in enumerate(seen) if not sees]
    if blind:
        raise CheckpointWriteError(
            f"checkpoint {folder}: {len(blind)} of {ranks.world_size} ranks ({', '.join(blind)}) do not see what rank "
            "0 writes there, so their parts of the weights would be missing; put the run directory on a disk that all "
            "nodes share"
        )


def _check_files(shards: Path, ranks: Ranks, fault: str | None) -> None:
    """Every rank names the files that it wrote; rank 0 must see them all. fault: what kept rank 0 from writing."""
    if fault := ranks.gather(fault)[0]:
        raise CheckpointWriteError(f"checkpoint {shards} could not be written: {fault} (on rank 0)")
    told = ranks.gather(sorted(path.name for path in shards.glob(f"__{ranks.rank}_*.distcp")))
    missing = [
        f"{name} of rank {rank}" for rank, names in enumerate(told) for name in names if _is_missing(shards, name)
    ]
    found = ranks.gather(missing)[0]
    if found:
        raise CheckpointWriteError(
            f"checkpoint {shards}: of the files of {ranks.world_size} ranks {', '.join(found)} cannot be seen by rank "
            "0; put the run directory on a disk that all nodes share"
        )


def _failures(error: checkpoint.CheckpointException) -> str:
    """What went wrong on which ranks, the first of them."""
    rank, (cause, _) = next(iter(sorted(error.failures.items())))
    return f"{cause} (on rank {rank}, one of {len(error.failures)})"


def _is_missing(folder: Path, name: str) -> bool:
    return not (folder / name).is_file()


def _take_out(value: Any, path: tuple[str, ...], divided: dict[str, Tensor]) -> Any:
    """`value` without its divided tensors, which come into `divided` under their path."""
    if not isinstance(value, Mapping):
        return value
    kept: dict[Any, Any] = {}
    for key, entry in value.items():
        if isinstance(entry, DTensor):
            divided["/".join((*path, str(key)))] = entry
        else:
            kept[key] = _take_out(entry, (*path, str(key)), divided)
    return kept


def _divide(value: Any, path: tuple[str, ...], parameters: Mapping[str, Mapping[str, nn.Parameter]]) -> Any:
    """`value` with the tensors of divided parameters divided as these are."""
    if isinstance(value, Mapping):
        return {key: _divide(entry, (*path, str(key)), parameters) for key, entry in value.items()}
    like = _parameter_of(path, parameters)
    if isinstance(value, Tensor) and like is not None and like.shape == value.shape:
        return sharded_like(like, value)
    return value


def _read_shards(
    shards: Path,
    parameters: Mapping[str, Mapping[str, nn.Parameter]],
    ranks: Ranks | None,
    without: Collection[str],
) -> dict[str, Any]:
    read = torch.load(shards / STATES_FILE, map_location="cpu", weights_only=True)
    states = {name: state for name, state in read.items() if name not in without}
    if not (shards / ".metadata").is_file():
        return states
    reader = ShardReader(shards)
    divided: dict[str, Tensor] = {}
    for path, stored in reader.read_metadata().state_dict_metadata.items():
        if path.split("/")[0] in without:
            continue
        like = _parameter_of(tuple(path.split("/")), parameters)
        if like is not None and like.shape == stored.size:
            divided[path] = torch.empty_like(like, dtype=stored.properties.dtype, requires_grad=False)
        else:
            divided[path] = torch.empty(stored.size, dtype=stored.properties.dtype)
    if not divided:
        return states
    group = None if ranks is None else ranks.control
    try:
        with warnings.catch_warnings():
            # That a single process reads for itself is what is meant here.
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            checkpoint.load(divided, storage_reader=reader, process_group=group, no_dist=ranks is None)
    except checkpoint.CheckpointException as error:
        raise DataError(f"checkpoint {shards} cannot be read: {_failures(error)}; take an earlier one") from error
    for path, tensor in divided.items():
        _put(states, path.split("/"), tensor)
    return states


def _parameter_of(path: tuple[str, ...], parameters: Mapping[str, Mapping[str, nn.Parameter]]) -> nn.Parameter | None:
    """Of a path PART/KEY/PARAMETER[/MOMENT]."""
    return parameters.get(path[0], {}).get(path[2]) if len(path) > 2 else None


def _put(states: dict[str, Any], path: list[str], tensor: Tensor) -> None:
    *above, last = path
    place = states
    for key in above:
        place = place.setdefault(key, {})
    place[last] = tensor
