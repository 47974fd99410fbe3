"""`PolicyModel`: a Hugging Face model behind its family adapter, with one distribution for everyone who asks.

Training takes the prefix path: prompts (with their images) are forwarded once (`prefill`), their cache is repeated for
the rows of their groups (`Prefix.expand`), and the responses run as rows over it (`extend`), gradients flowing back
through the cache. Sampling takes the same three steps, one token at a time. The plain path forwards one row a response
with its prompt and images; it is slower and the oracle of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mmrl.batch import GroupBatch, PreparedImage, PreparedPrompt, TokenStats
from mmrl.models.checkpointing import checkpoint_layers
from mmrl.models.families import Family, ImageSlots
from mmrl.models.fast.modules import FastLinear
from mmrl.models.fast.outputs import with_pass_outputs
from mmrl.models.features import ImageEncoder
from mmrl.models.head import Predictions, chosen_stats, log_probs
from mmrl.models.kept_prompts import KeptPrompts
from mmrl.models.kept_responses import KeptResponses, KeptRows
from mmrl.models.lockstep import Lockstep
from mmrl.models.lora import adapters_off
from mmrl.models.prefix import Prefix, empty_cache, join_prefixes
from mmrl.models.processing import PromptProcessor
from mmrl.models.rows import Rows, build_rows

ForwardPath = Literal["prefix", "plain", "packed"]


@dataclass(frozen=True, eq=False)
class TokenStates:
    """What each sampled response token is predicted from, and its place in (B, T) as row and column."""

    predictions: Predictions
    place: tuple[Tensor, Tensor]

    def spread(self, values: Tensor, shape: torch.Size) -> Tensor:
        """One value for each token, (tokens,), in a tensor of this shape, zero elsewhere."""
        return values.new_zeros(shape).index_put(self.place, values)


class PolicyModel(nn.Module):
    """hf: the model, its weights in float32. family: its adapter. prompts: what makes its inputs.

    images: encodes the prompts' images, and keeps the features of a frozen tower.
    kept_prompts, kept_responses: what sampling has forwarded, for the update of the same weights.
    lockstep: how its passes are kept alike on the ranks among which its weights are divided; None where they are not.

    dtype: the precision in which passes are computed; bfloat16 is autocast over the float32 weights.
    device: where they are computed; where `hf` lies if not given.
    banned_token_ids: (K,) int64, ids that have no probability. end_token_ids: ids that end a response.
    """

    banned_token_ids: Tensor

    def __init__(
        self,
        hf: Any,
        family: Family,
        prompts: PromptProcessor,
        *,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.hf = hf
        self.family = family
        self.prompts = prompts
        self.images = ImageEncoder(family)
        self.kept_prompts = KeptPrompts(hf)
        self.kept_responses = KeptResponses(hf, family.language_model(hf).layers)
        self.lockstep: Lockstep | None = None
        self.dtype = dtype
        self.end_token_ids = prompts.end_token_ids
        banned = torch.tensor(prompts.banned_token_ids, dtype=torch.int64, device=device or hf.device)
        self.register_buffer("banned_token_ids", banned, persistent=False)
        self.eval()

    @property
    def device(self) -> torch.device:
        return self.banned_token_ids.device

    def train(self, mode: bool = True) -> PolicyModel:
        """Stays in evaluation mode: dropout would make the trained distribution another than the sampled one."""
        return super().train(False)

    def precision(self) -> AbstractContextManager[Any]:
        """The context in which passes are computed. Enter it around a loop of calls: casts of weights then last."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16)

    @contextmanager
    def adapter_off(self) -> Iterator[None]:
        """Within the block the policy is the one that it was before it got an adapter."""
        kept = self.kept_prompts, self.kept_responses
        self.kept_prompts, self.kept_responses = KeptPrompts(self.hf), KeptResponses(self.hf)
        try:
            with adapters_off(self.hf):
                yield
        finally:
            self.kept_prompts, self.kept_responses = kept

    def finish_backward(self) -> None:
        """Sends what has come back for kept prompts on to the weights; nothing is kept afterwards."""
        self.kept_responses.drop()
        self.kept_prompts.backward()

    def drop_kept(self) -> None:
        """Forgets what sampling has forwarded."""
        self.kept_responses.drop()
        self.kept_prompts.drop()

    def linear_maps(self) -> list[FastLinear]:
        """Those of the language model's layers."""
        layers = self.family.language_model(self.hf).layers
        return [part for layer in layers for part in layer.modules() if isinstance(part, FastLinear)]

    def checkpoint_gradients(self) -> None:
        """From now on layers and vision blocks keep only their inputs for the backward pass and then run again."""
        checkpoint_layers(self.family.wrap_points(self.hf))

    def forward(
        self, batch: GroupBatch, *, temperature: float = 1.0, path: ForwardPath = "prefix", with_entropy: bool = False
    ) -> TokenStats:
        """Log-probabilities, with gradients, of every response token: (B, T) float32, zero where response_mask is 0.

        path: `prefix` forwards each prompt once, `plain` with each of its responses, `packed` as well, but all of them
        as one row without padding.
        The batch is one pass: whoever calls chooses its size.
        """
        token_ids = batch.response_ids.to(self.device)
        wanted = batch.response_mask.to(self.device) > 0
        if self.lockstep is None and not wanted.any():
            zeros = torch.zeros(token_ids.shape, device=self.device)
            return TokenStats(zeros, zeros if with_entropy else None)
        with self.precision():
            chosen = self.states_before_tokens(batch, path=path)
            stats = chosen_stats(
                self.family.head(self.hf),
                chosen.predictions,
                token_ids[chosen.place],
                self.banned_token_ids,
                temperature,
                with_entropy=with_entropy,
            )

        entropy = None if stats.entropy is None else chosen.spread(stats.entropy, token_ids.shape)
        return TokenStats(chosen.spread(stats.logprobs, token_ids.shape), entropy)

    def states_before_tokens(self, batch: GroupBatch, *, path: ForwardPath = "prefix") -> TokenStates:
        """The last hidden state before each sampled token; call it within `precision()`.

        There must be such a token, except in lockstep, where every rank makes the same calls.
        """
        token_ids = batch.response_ids.to(self.device)
        wanted = batch.response_mask.to(self.device) > 0
        if path == "prefix":
            return self._choose_by_prefix(batch, token_ids, wanted)
        return self._choose_in_rows(batch, token_ids, wanted, is_packed=path == "packed")

    def states_of_last_tokens(self, batch: GroupBatch, *, path: ForwardPath = "prefix") -> Tensor:
        """(B, hidden): the last hidden state of each response's last token, at least one; call it within
        `precision()`."""
        lengths = batch.response_lengths.to(self.device)
        rows = torch.arange(batch.num_rows, device=self.device)
        if path == "prefix":
            prefix = self.prefill(batch.prompts).expand(batch.prompt_of_row.to(self.device))
            hidden, _ = self.extend(prefix, batch.response_ids.to(self.device), lengths)
            last = hidden[rows, lengths - 1]
            # A divided layer is gathered for its backward pass by a gradient of its output; the prompts' last layer
            # would only get those of its keys and values.
            return last if self.lockstep is None else last + 0.0 * prefix.last_hidden
        hidden, starts = self._run_behind_prompts(batch, batch.response_lengths, is_packed=path == "packed")
        return hidden[starts + lengths]

    def prefill(self, prompts: Sequence[PreparedPrompt]) -> Prefix:
        """The prompts forwarded once, a row each; those that are kept under the same weights are not forwarded again.

        All images go through the tower in one call, equal ones once.
        """
        kept, kept_indices, missing = self.kept_prompts.take(prompts)
        if kept is None:
            return self._forward_prompts(prompts)
        if missing:
            kept = join_prefixes([kept, self._forward_prompts([prompts[index] for index in missing])])
        order = torch.tensor([*kept_indices, *missing], device=self.device).argsort()
        return kept if torch.equal(order, torch.arange(len(order), device=self.device)) else kept.select(order)

    def prefill_for_update(self, prompts: Sequence[PreparedPrompt]) -> Prefix:
        """`prefill` without gradients, but what it computes is kept for the update, where `kept_prompts` has room."""
        if not self.kept_prompts.has_room_for(prompts):
            return self.prefill(prompts)
        # Casts of weights that autocast made without gradients would cut these passes off from the weights.
        torch.clear_autocast_cache()
        with torch.enable_grad():
            prefix = self._forward_prompts(prompts)
        self.kept_prompts.keep(prompts, prefix)
        return prefix.detached()

    def _forward_prompts(self, prompts: Sequence[PreparedPrompt]) -> Prefix:
        rows = self._build_rows(prompts, share_images=True)
        cache = empty_cache()
        lengths = rows.lengths.to(self.device)
        with self.precision():
            hidden = self._run_rows(rows, cache, last_tokens=lengths - 1)
        real = torch.arange(rows.token_ids.shape[1], device=self.device) < lengths[:, None]
        return Prefix(
            cache=cache,
            attention_mask=real,
            next_positions=rows.positions.amax(dim=(0, 2)).to(self.device) + 1,
            last_hidden=hidden[:, 0],
            has_gaps=len(set(rows.lengths.tolist())) > 1,
        )

    def extend(self, prefix: Prefix, token_ids: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Prefix]:
        """`token_ids` (rows, T) forwarded over the prefix: hidden states (rows, T, hidden) and the longer prefix.

        lengths: (rows,) real tokens of each row, all T if None; the hidden states behind them mean nothing.
        """
        num_tokens = token_ids.shape[1]
        if num_tokens == 0:
            return prefix.last_hidden[:, None, :][:, :0], prefix
        cache = prefix.branch()
        steps = torch.arange(num_tokens, device=self.device)
        positions = (prefix.next_positions[:, None] + steps).expand(self.family.num_position_axes, -1, -1)
        with self.precision():
            embeds = self._embed(token_ids)
            mask = prefix.mask_for(num_tokens, embeds.dtype)
            hidden = self.family.run(self.hf, embeds, positions, mask=mask, cache=cache)
        return hidden, prefix.extended(cache, hidden, lengths if lengths is None else lengths.to(self.device))

    def log_probs_of(self, hidden: Tensor, temperature: float) -> Tensor:
        """(…, vocabulary) float32 log-softmax of logits / temperature, banned ids at -inf. Temperature 0 is as 1."""
        with self.precision():
            return log_probs(self.family.head(self.hf), hidden, self.banned_token_ids, temperature)

    def _choose_by_prefix(self, batch: GroupBatch, token_ids: Tensor, wanted: Tensor) -> TokenStates:
        """First tokens are predicted from their prompts' last states, one a prompt; later ones from their rows'."""
        assert batch.response_images is None, "images in responses take the packed or the plain path"
        prefix = self.prefill(batch.prompts)
        prompt_of_row = batch.prompt_of_row.to(self.device)
        first_rows = torch.nonzero(wanted[:, 0])[:, 0]
        later_rows, later_tokens = torch.nonzero(wanted[:, 1:], as_tuple=True)
        hidden = prefix.last_hidden
        if len(later_rows) or self.lockstep is not None:
            lengths = (batch.response_lengths.to(self.device) - 1).clamp(min=0)
            inputs = token_ids[:, :-1] if token_ids.shape[1] > 1 else token_ids
            later = self._extend_responses(batch, prefix, inputs, lengths)
            hidden = torch.cat([hidden, later[later_rows, later_tokens]])
        later_states = torch.arange(prefix.num_rows, len(hidden), device=self.device)
        return TokenStates(
            Predictions(hidden, torch.cat([prompt_of_row[first_rows], later_states])),
            place=(torch.cat([first_rows, later_rows]), torch.cat([first_rows * 0, later_tokens + 1])),
        )

    def _extend_responses(self, batch: GroupBatch, prefix: Prefix, token_ids: Tensor, lengths: Tensor) -> Tensor:
        """Hidden states (rows, T, hidden) of `token_ids` (rows, T) behind their prompts; those of rows whose linear
        maps' outputs were kept are made of these."""
        prompt_of_row, num_tokens = batch.prompt_of_row.to(self.device), token_ids.shape[1]
        kept = self.kept_responses.find(batch)
        is_left = torch.ones(batch.num_rows, dtype=torch.bool)
        for part in kept:
            is_left[part.rows] = False
        passes: list[tuple[Tensor, int, KeptRows | None]] = [(part.rows, part.length, part) for part in kept]
        if is_left.any() or not kept:
            passes.append((torch.nonzero(is_left)[:, 0], num_tokens, None))
        hidden = []
        for rows, width, outputs in passes:
            own_rows = rows.to(self.device)
            prompts = prefix.expand(prompt_of_row[own_rows])
            with with_pass_outputs(outputs):
                own, _ = self.extend(prompts, token_ids[own_rows, :width], lengths[own_rows])
            hidden.append(own if width == num_tokens else pad(own, (0, 0, 0, num_tokens - width)))
        if len(hidden) == 1:
            return hidden[0]
        order = torch.cat([rows for rows, _, _ in passes]).argsort()
        return torch.cat(hidden)[order.to(self.device)]

    def _choose_in_rows(self, batch: GroupBatch, token_ids: Tensor, wanted: Tensor, *, is_packed: bool) -> TokenStates:
        """Every response behind its own copy of the prompt."""
        hidden, starts = self._run_behind_prompts(batch, batch.response_lengths - 1, is_packed=is_packed)
        rows, tokens = torch.nonzero(wanted, as_tuple=True)
        states = torch.arange(len(rows), device=self.device)
        return TokenStates(Predictions(hidden[starts[rows] + tokens], states), place=(rows, tokens))

    def _run_behind_prompts(self, batch: GroupBatch, lengths: Tensor, *, is_packed: bool) -> tuple[Tensor, Tensor]:
        """Hidden states (tokens, hidden) of each response's first `lengths` tokens behind its own copy of the prompt,
        and the place in them of each prompt's last token, (B,)."""
        prompts = [batch.prompts[index] for index in batch.prompt_of_row.tolist()]
        ids = batch.response_ids.tolist()
        tails = [row[: max(length, 0)] for row, length in zip(ids, lengths.tolist(), strict=True)]
        rows = self._build_rows(prompts, tails, tail_images=batch.response_images, share_images=is_packed)
        ends = rows.lengths.cumsum(0) if is_packed else torch.arange(1, len(prompts) + 1) * rows.token_ids.shape[1]
        row_starts = ends - (rows.lengths if is_packed else rows.token_ids.shape[1])
        hidden = self._run_rows(rows.packed() if is_packed else rows, cache=None)
        starts = row_starts + torch.tensor([len(prompt) - 1 for prompt in prompts])
        return hidden.flatten(0, 1), starts.to(self.device)

    def _build_rows(
        self,
        prompts: Sequence[PreparedPrompt],
        tails: Sequence[Sequence[int]] | None = None,
        *,
        tail_images: Sequence[tuple[PreparedImage, ...]] | None = None,
        share_images: bool,
    ) -> Rows:
        return build_rows(
            self.family,
            self.hf,
            prompts,
            tails,
            tail_images=tail_images,
            pad_token_id=self.prompts.pad_token_id,
            image_token_id=self.prompts.image_token_id,
            share_images=share_images,
        )

    def _run_rows(self, rows: Rows, cache: Any | None, *, last_tokens: Tensor | None = None) -> Tensor:
        """Hidden states (rows, length, hidden) with the images' features in their places; last_tokens: see `run`."""
        embeds = self._embed(rows.token_ids)
        slots = None
        if rows.images:
            features = self.images.encode(self.hf, rows.images)
            if rows.slot_feature is not None:
                features = features.take(rows.slot_feature.to(self.device))
            slots = ImageSlots(rows.slot_index.to(self.device), features)
            flat = embeds.flatten(0, 1).index_copy(0, slots.index, features.embeds.to(embeds.dtype))
            embeds = flat.view_as(embeds)
        elif self.lockstep is not None and self.lockstep.runs_tower:
            features = self.images.encode(self.hf, [self.family.blank_image(self.hf)])
            embeds = embeds + (0.0 * features.embeds.sum()).to(embeds.dtype)
        # Rows are filled up on the right, so that causal attention alone keeps the filling out of every real token.
        return self.family.run(
            self.hf,
            embeds,
            rows.positions.to(self.device),
            mask=None,
            cache=cache,
            slots=slots,
            segment_lengths=rows.segment_lengths,
            last_tokens=last_tokens,
        )

    def _embed(self, token_ids: Tensor) -> Tensor:
        """In float32 at least, whatever precision the weights of the passes have: layers add to it."""
        embeds = self.family.embed(self.hf, token_ids.to(self.device))
        return embeds.float() if embeds.dtype == torch.bfloat16 else embeds
