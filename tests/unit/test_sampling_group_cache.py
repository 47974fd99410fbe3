"""Attention over prompts kept once a group, against each row's attention over all that it has seen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from mmrl.models import kernels
from mmrl.models.attention import attend
from mmrl.models.group_cache import GroupCache
from mmrl.models.prefix import KeyValueLayer, Prefix, empty_cache

KEY_HEADS = 2


@pytest.fixture(params=["kernels", "torch"], autouse=True)
def _computed_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "torch":
        monkeypatch.setattr(kernels, "_kernels", lambda: None)


class Rows:
    """Prompts in parts of the given lengths and rows over them; each row's keys and values are kept apart as well."""

    def __init__(
        self, lengths: list[list[int]], prompt_of_row: list[int], *, queries_a_head: int = 3, dim: int = 16
    ) -> None:
        self.queries_a_head, self.dim = queries_a_head, dim
        self.draw = torch.Generator().manual_seed(0)
        parts = [self._prefix(part) for part in lengths]
        prompts = [
            (part.cache.layers[0].keys[row, :, :length], part.cache.layers[0].values[row, :, :length])
            for part, of_part in zip(parts, lengths, strict=True)
            for row, length in enumerate(of_part)
        ]
        self.seen = [prompts[prompt] for prompt in prompt_of_row]
        self.group = GroupCache(parts, torch.tensor(prompt_of_row))

    def _prefix(self, lengths: list[int]) -> Prefix:
        """What lies behind a shorter prompt is noise that must not be seen."""
        cache = empty_cache()
        cache.layers = [KeyValueLayer(*(self._noise(len(lengths), KEY_HEADS, max(lengths)) for _ in range(2)))]
        real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        return Prefix(cache, real, torch.tensor(lengths), torch.zeros(len(lengths), 4), has_gaps=not bool(real.all()))

    def _noise(self, *shape: int) -> Tensor:
        return torch.randn(*shape, self.dim, generator=self.draw)

    def add_token(self) -> tuple[Tensor, Tensor]:
        """One more token a row: attention over the group cache, and row by row; (rows, 1, heads, dim) both."""
        key, value = self._noise(len(self.seen), KEY_HEADS, 1), self._noise(len(self.seen), KEY_HEADS, 1)
        query = self._noise(len(self.seen), KEY_HEADS * self.queries_a_head, 1)
        layers = self.group.cache.update(key, value, 0)
        shared, self.log_sums = attend(nn.Identity(), query, *layers, None, with_log_sums=True)
        self.seen = [
            (torch.cat([keys, key[row]], dim=1), torch.cat([values, value[row]], dim=1))
            for row, (keys, values) in enumerate(self.seen)
        ]
        alone = [
            scaled_dot_product_attention(query[row], *self.seen[row], enable_gqa=True) for row in range(len(query))
        ]
        scores = [
            query[row]
            @ self.seen[row][0].repeat_interleave(self.queries_a_head, dim=0).transpose(1, 2)
            * self.dim**-0.5
            for row in range(len(query))
        ]
        self.log_sums_alone = torch.stack([of_row.logsumexp(-1)[:, 0] for of_row in scores])[:, None]
        return shared, torch.stack(alone).transpose(1, 2)

    def select(self, rows: list[int]) -> None:
        self.group.select(torch.tensor(rows))
        self.seen = [self.seen[row] for row in rows]


@pytest.mark.parametrize(
    ("lengths", "prompt_of_row"),
    [
        ([[5, 5]], [0, 0, 1, 1]),
        ([[3, 5]], [0, 0, 1, 1]),
        ([[3, 5]], [0, 1, 1, 1]),
        ([[3, 5], [7]], [0, 0, 0, 1, 2, 2]),
        ([[7], [2, 2]], [0, 1, 1, 2, 2, 2]),
        ([[4, 4]], [1, 1, 1]),
    ],
)
@torch.no_grad()
def test_each_row_attends_to_its_prompt_and_its_own_tokens(lengths: list[list[int]], prompt_of_row: list[int]) -> None:
    rows = Rows(lengths, prompt_of_row)
    rows.group.reserve(2)
    for _ in range(2):
        shared, alone = rows.add_token()
        assert torch.allclose(shared, alone, atol=1e-6)
        assert torch.allclose(rows.log_sums, rows.log_sums_alone, atol=1e-6)


@pytest.mark.parametrize("dim", [8, 16, 48, 64, 80, 128, 256])
@pytest.mark.parametrize("queries_a_head", [1, 4, 7])
@torch.no_grad()
def test_heads_of_any_size_and_queries_that_share_one_attend_over_many_tokens(dim: int, queries_a_head: int) -> None:
    rows = Rows([[70, 150], [64]], [0, 0, 1, 2], queries_a_head=queries_a_head, dim=dim)
    rows.group.reserve(70)
    for token in range(70):
        shared, alone = rows.add_token()
        if token in (0, 15, 63, 64, 69):
            assert torch.allclose(shared, alone, atol=1e-5)
            assert torch.allclose(rows.log_sums, rows.log_sums_alone, atol=1e-5)


@torch.no_grad()
def test_scores_as_far_apart_as_float32_goes_leave_the_largest_and_a_nan_stays_one() -> None:
    rows = Rows([[20]], [0, 0])
    rows.group.reserve(2)
    layer = rows.group.cache.layers[0]
    layer.keys[:, :, 3] *= 1e18
    query = torch.ones(2, KEY_HEADS * 3, 1, 16)
    rows.group.cache.update(torch.zeros(2, KEY_HEADS, 1, 16), torch.zeros(2, KEY_HEADS, 1, 16), 0)
    output, log_sums = layer.attend(query, 1.0, with_log_sums=True)
    score = layer.keys[0, :, 3].sum(-1)
    expected = torch.where((score > 0)[:, None], layer.values[0, :, 3], output[0, 0].view(KEY_HEADS, 3, 16)[:, 0])
    assert (score > 0).any()
    assert torch.allclose(output[0, 0].view(KEY_HEADS, 3, 16), expected[:, None].expand(-1, 3, -1), atol=1e-5)
    assert output.isfinite().all()
    assert log_sums is not None
    assert log_sums.isfinite().all()
    query[1, 0] = torch.nan
    rows.group.cache.update(torch.zeros(2, KEY_HEADS, 1, 16), torch.zeros(2, KEY_HEADS, 1, 16), 0)
    output, _ = layer.attend(query, 1.0)
    assert output[1, 0, 0].isnan().all()
    assert output[0].isfinite().all()


@torch.no_grad()
def test_rows_that_stay_attend_as_before_when_rows_and_whole_groups_leave() -> None:
    rows = Rows([[3, 5], [7]], [0, 0, 0, 1, 2, 2])
    rows.group.reserve(1)
    rows.add_token()
    for stay in ([0, 2, 3, 5], [1, 3], [1]):
        rows.select(stay)
        rows.group.reserve(1)
        shared, alone = rows.add_token()
        assert rows.group.num_rows == len(stay)
        assert torch.allclose(shared, alone, atol=1e-6)


def test_a_query_that_needs_gradients_gets_them() -> None:
    rows = Rows([[5]], [0, 0])
    rows.group.reserve(1)
    layer = rows.group.cache.layers[0]
    layer.update(*(torch.randn(2, KEY_HEADS, 1, 16) for _ in range(2)))
    query = torch.randn(2, KEY_HEADS * 3, 1, 16, requires_grad=True)
    layer.attend(query, 1.0)[0].square().sum().backward()
    assert query.grad is not None


def test_positions_go_on_from_each_rows_own_prompt() -> None:
    rows = Rows([[3, 5], [7]], [0, 0, 1, 2, 2])
    assert rows.group.next_positions.tolist() == [3, 3, 5, 7, 7]
    rows.select([1, 4])
    assert rows.group.next_positions.tolist() == [3, 7]
