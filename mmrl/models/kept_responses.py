"""What linear maps and attention made of responses while they were sampled, kept for the update of the same weights.

Decoding and the first update after it forward the same tokens under the same weights. A `Recording` writes down the
outputs of the language model's linear maps and attention token by token; the update's forward pass takes them
(`KeptRows`) and is left with what goes element by element. It also needs them for its backward pass, so what is kept is
memory of the whole batch where it would have been memory of a micro-batch: at most `max_bytes`, whole groups until they
are full.

The last group of what is sampled together is never kept, so that the canary always has responses that the update has
forwarded by itself. What was kept is worth nothing once a weight was written to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.batch import GroupBatch, PreparedPrompt
from mmrl.models.fast.functions import can_use_onednn
from mmrl.models.fast.modules import FastLanguageAttention, FastLinear
from mmrl.models.fast.outputs import Part, with_pass_outputs
from mmrl.models.kept_prompts import PromptKey, prompt_key
from mmrl.models.weight_writes import write_counts

_Key = tuple[PromptKey, tuple[int, ...]]
_Buffers = dict[tuple[nn.Module, Part], Tensor]

FLOAT32_BYTES = 4


class Recording:
    """The outputs of linear maps and attention for the first rows of a batch that is decoded.

    buffers: of each (rows, positions, features), position p holding what the token of position p became.
    """

    def __init__(self, buffers: _Buffers) -> None:
        self.buffers = buffers
        self._position = 0
        self._rows: Tensor | slice = slice(None)
        self._num_rows = self.num_rows
        self._num_noted = 0
        self.num_positions = 0

    @property
    def num_rows(self) -> int:
        return next(iter(self.buffers.values())).shape[0]

    @property
    def is_whole(self) -> bool:
        """Whether every module wrote down every position."""
        return self._num_noted == len(self.buffers) * self.num_positions

    @contextmanager
    def at(self, position: int, rows: Tensor) -> Iterator[None]:
        """Within the block the tokens of `position` are forwarded, one for each of `rows` (batch,) int64 ascending."""
        whole = len(rows) >= self.num_rows and int(rows[self.num_rows - 1]) == self.num_rows - 1
        self._num_rows = self.num_rows if whole else int(torch.searchsorted(rows, self.num_rows))
        self._rows = slice(None) if whole else rows[: self._num_rows]
        self._position, self.num_positions = position, position + 1
        with with_pass_outputs(self):
            yield

    def known(self, module: nn.Module, part: Part = "output") -> Tensor | None:
        return None

    def note(self, module: nn.Module, tensor: Tensor, part: Part = "output") -> None:
        self.buffers[module, part][self._rows, self._position] = tensor[: self._num_rows, 0]
        self._num_noted += 1

    def end(self, num_inputs: Sequence[int]) -> None:
        """No number may be left behind each row's first `num_inputs` tokens that was never written, since padding is
        multiplied by zero. There outputs are zero and sums are infinite, so that weights of attention are zero."""
        for row, length in enumerate(num_inputs[: self.num_rows]):
            if length < self.num_positions:
                for (_, part), buffer in self.buffers.items():
                    buffer[row, length : self.num_positions] = torch.inf if part == "log_sums" else 0

    def of(self, module: nn.Module, part: Part, rows: Tensor | slice, length: int) -> Tensor | None:
        buffer = self.buffers.get((module, part))
        return None if buffer is None else buffer[rows, :length]


@dataclass(frozen=True)
class KeptRows:
    """Rows of a batch that a recording has.

    rows: (rows,) int64 of the batch. length: tokens of the longest of them that were forwarded.
    """

    rows: Tensor
    length: int
    recording: Recording
    recorded_rows: Tensor | slice

    def known(self, module: nn.Module, part: Part = "output") -> Tensor | None:
        return self.recording.of(module, part, self.recorded_rows, self.length)

    def note(self, module: nn.Module, tensor: Tensor, part: Part = "output") -> None:
        """Nothing: it is known."""


class KeptResponses:
    """max_bytes: most memory that is kept, 0 for none.

    layers: of the model's language part, whose linear maps and attention count.
    """

    def __init__(self, model: nn.Module, layers: Sequence[nn.Module] = ()) -> None:
        self.max_bytes = 0
        self._model = model
        self._layers = layers
        self._recordings: list[Recording] = []
        self._places: dict[_Key, tuple[int, int]] = {}
        self._num_bytes = 0
        self._writes: list[tuple[int, int]] = []
        self._spare: _Buffers = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> KeptResponses:
        """For a copy of the model, whose weights are others: nothing kept."""
        return KeptResponses(deepcopy(self._model, memo), [deepcopy(layer, memo) for layer in self._layers])

    def start(self, prompt_of_row: Tensor, num_inputs: int) -> Recording | None:
        """For decoding rows of the prompts `prompt_of_row` (rows,) int64 ascending, up to `num_inputs` tokens of each;
        None where nothing is to be kept."""
        self._drop_if_written()
        if not self.max_bytes:
            return None
        parts = [part for layer in self._layers for part in layer.modules()]
        maps = [part for part in parts if isinstance(part, FastLinear)]
        attentions = [part for part in parts if isinstance(part, FastLanguageAttention)]
        if len(attentions) < len(self._layers) or not all(can_use_onednn(part.weight, part.weight) for part in maps):
            return None
        widths = _widths(maps, attentions)
        row_bytes = num_inputs * sum(widths.values()) * FLOAT32_BYTES
        if not row_bytes:
            return None
        ends = torch.nonzero(prompt_of_row.diff())[:, 0] + 1
        ends = ends[ends * row_bytes <= self.max_bytes - self._num_bytes]
        if not len(ends):
            return None
        return Recording(self._buffers(widths, int(ends[-1]), num_inputs))

    def keep(self, recording: Recording, prompts: Sequence[PreparedPrompt], token_ids: Sequence[Sequence[int]]) -> None:
        """prompts, token_ids: of each of the recording's rows, or of more."""
        if not recording.is_whole:
            return
        self._writes = write_counts([self._model])
        recording.end([len(ids) - 1 for ids in token_ids])
        for row in range(recording.num_rows):
            self._places[prompt_key(prompts[row]), tuple(token_ids[row])] = (len(self._recordings), row)
        self._recordings.append(recording)
        self._num_bytes += sum(buffer.nbytes for buffer in recording.buffers.values())

    def find(self, batch: GroupBatch) -> list[KeptRows]:
        """The rows of `batch` that are kept, in ascending order within each recording."""
        self._drop_if_written()
        if not self._places:
            return []
        keys = [prompt_key(prompt) for prompt in batch.prompts]
        lengths = batch.response_lengths.tolist()
        found: dict[int, list[tuple[int, int]]] = {}
        rows = zip(batch.prompt_of_row.tolist(), batch.response_ids.tolist(), lengths, strict=True)
        for row, (prompt, ids, length) in enumerate(rows):
            place = self._places.get((keys[prompt], tuple(ids[:length])))
            if place is not None:
                found.setdefault(place[0], []).append((row, place[1]))
        return [
            KeptRows(
                torch.tensor([row for row, _ in pairs]),
                max(lengths[row] - 1 for row, _ in pairs),
                self._recordings[index],
                _as_slice([recorded for _, recorded in pairs]),
            )
            for index, pairs in found.items()
        ]

    def drop(self) -> None:
        if self._recordings:
            self._spare = self._recordings[-1].buffers
        self._recordings.clear()
        self._places.clear()
        self._num_bytes = 0

    def _buffers(self, widths: dict[tuple[nn.Module, Part], int], num_rows: int, num_inputs: int) -> _Buffers:
        """Those of the step before where they are large enough: fresh memory costs as much as writing to it."""
        spare, self._spare = self._spare, {}
        if spare.keys() == widths.keys():
            one = next(iter(spare.values()))
            if one.shape[0] >= num_rows and one.shape[1] == num_inputs:
                return {key: buffer[:num_rows] for key, buffer in spare.items()}
        return {key: torch.empty(num_rows, num_inputs, width) for key, width in widths.items()}

    def _drop_if_written(self) -> None:
        if self._recordings and self._writes != write_counts([self._model]):
            self.drop()


def _widths(maps: Sequence[Any], attentions: Sequence[Any]) -> dict[tuple[nn.Module, Part], int]:
    """Features of what each module writes down for one token."""
    widths: dict[tuple[nn.Module, Part], int] = {(part, "output"): part.weight.shape[0] for part in maps}
    for attention in attentions:
        heads = attention.q_proj.weight.shape[0] // attention.head_dim
        widths[attention, "output"] = heads * attention.head_dim
        widths[attention, "log_sums"] = heads
    return widths


def _as_slice(rows: list[int]) -> Tensor | slice:
    """Rows that follow each other as a slice, which takes them without copying."""
    if rows == list(range(rows[0], rows[0] + len(rows))):
        return slice(rows[0], rows[0] + len(rows))
    return torch.tensor(rows)
