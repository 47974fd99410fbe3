"""Fast functions against the plain formulas in float64: results and gradients."""

import pytest
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from mmrl.models import kernels
from mmrl.models.attention import ATTENTION
from mmrl.models.families.text import TextFamily
from mmrl.models.fast import functions, make_fast, packed
from mmrl.models.fast.functions import (
    can_use_onednn,
    gated,
    gated_linear,
    gradients_added_in_place,
    linear,
    rms_norm,
    rotate,
    rotate_packed,
)
from mmrl.models.fused_attention import attend_within, attention, attention_of_known
from mmrl.models.prefix import empty_cache


def plain_rms_norm(x, weight, eps=1e-6):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def plain_rotation(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


def plain_gate(gate, up):
    return functional.silu(gate[:, :5]) * up[:, 2:7]


def assert_same(fast, plain, *inputs):
    """The same values and gradients as `plain` in float64, for a gradient that is no constant."""
    singles = [tensor.clone().requires_grad_() for tensor in inputs]
    doubles = [tensor.double().requires_grad_() for tensor in inputs]
    found, expected = fast(*singles), plain(*doubles)
    assert torch.allclose(found.double(), expected, atol=1e-5)
    direction = torch.randn(found.shape)
    found.backward(direction)
    expected.backward(direction.double())
    for single, double in zip(singles, doubles, strict=True):
        assert torch.allclose(single.grad.double(), double.grad, rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=["kernels", "torch"], autouse=True)
def _computed_by(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(kernels, "_kernels", lambda: None)


def test_a_linear_map_is_that_of_torch_with_and_without_bias():
    x, weight, bias = torch.randn(3, 5, 16), torch.randn(8, 16), torch.randn(8)
    assert_same(linear, functional.linear, x, weight, bias)
    assert_same(lambda a, b: linear(a, b, None), functional.linear, x, weight)


def test_a_gated_linear_map_is_the_formula():
    gate, up, weight, bias = torch.randn(3, 5, 16), torch.randn(3, 5, 16), torch.randn(8, 16), torch.randn(8)
    assert_same(
        gated_linear, lambda g, u, w, b: functional.linear(functional.silu(g) * u, w, b), gate, up, weight, bias
    )


def test_gradients_are_only_computed_where_they_are_asked_for():
    x, weight = torch.randn(4, 16), torch.randn(8, 16, requires_grad=True)
    linear(x, weight, None).sum().backward()
    assert x.grad is None
    assert torch.allclose(weight.grad, x.sum(0).expand(8, -1), atol=1e-5)


def test_onednn_is_used_in_float32_only():
    x, weight = torch.randn(2, 4), torch.randn(3, 4)
    assert can_use_onednn(x, weight) == torch.backends.mkldnn.is_available()
    assert not can_use_onednn(x.double(), weight.double())
    assert not can_use_onednn(x[:0], weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_use_onednn(x, weight)


@pytest.mark.parametrize("shape", [(7, 16), (2, 3, 4, 16)])
def test_rms_norm_is_the_formula(shape):
    assert_same(lambda x, w: rms_norm(x, w, 1e-6), plain_rms_norm, torch.randn(shape), torch.randn(16))


def test_rms_norm_of_zeros_is_zero_and_its_gradient_finite():
    x = torch.zeros(2, 8, requires_grad=True)
    result = rms_norm(x, torch.ones(8), 1e-6)
    result.sum().backward()
    assert torch.equal(result, torch.zeros(2, 8))
    assert x.grad.isfinite().all()


def test_rms_norm_of_doubles_is_computed_in_double():
    x, weight = torch.randn(3, 64, dtype=torch.float64), torch.randn(64, dtype=torch.float64)
    assert (rms_norm(x, weight, 1e-6) - plain_rms_norm(x, weight)).abs().max() < 1e-14


def test_a_rotation_is_the_formula_and_keeps_lengths():
    x, angles = torch.randn(2, 5, 3, 8), torch.randn(2, 5, 1, 4)
    cos, sin = (torch.cat([part, part], dim=-1) for part in (angles.cos(), angles.sin()))
    assert_same(lambda t: rotate(t, cos, sin), lambda t: plain_rotation(t, cos.double(), sin.double()), x)
    assert torch.allclose(rotate(x, cos, sin).norm(dim=-1), x.norm(dim=-1), atol=1e-5)


def test_queries_and_keys_that_lie_together_are_rotated_and_values_are_not():
    x, angles = torch.randn(5, 3, 2, 8), torch.randn(5, 4)
    cos, sin = (torch.cat([part, part], dim=-1) for part in (angles.cos(), angles.sin()))

    def plain(t):
        c, s = cos.double()[:, None], sin.double()[:, None]
        return torch.stack([plain_rotation(t[:, 0], c, s), plain_rotation(t[:, 1], c, s), t[:, 2]], dim=1)

    assert_same(lambda t: rotate_packed(t * 1.0, cos, sin), plain, x)
    half = rotate_packed(x.bfloat16(), cos, sin)
    assert half.dtype == torch.bfloat16
    assert torch.allclose(half.double(), plain(x.bfloat16().double()), atol=2e-2)


def test_queries_and_keys_in_any_order_of_memory_are_rotated_in_place_and_so_are_their_gradients():
    angles = torch.randn(5, 4)
    cos, sin = (torch.cat([part, part], dim=-1) for part in (angles.cos(), angles.sin()))
    x, weight = torch.randn(5, 3, 2, 8), torch.randn(3, 5, 2, 8)
    other_order = x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    assert torch.allclose(rotate_packed(other_order, cos, sin), rotate_packed(x.clone(), cos, sin), atol=1e-6)
    gradients = []
    for layout in (lambda t: t, lambda t: t.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)):
        given = layout(torch.ones(5, 3, 2, 8) * weight.transpose(0, 1))
        leaf = x.clone().requires_grad_()
        rotate_packed(leaf * 1.0, cos, sin).backward(given)
        gradients.append(leaf.grad)
    assert torch.allclose(*gradients, atol=1e-6)


def test_a_linear_map_of_a_known_result_has_the_gradients_of_one_that_computes_it():
    x, weight, bias, gate, up = (torch.randn(size) for size in ((5, 16), (8, 16), (8,), (5, 16), (5, 16)))
    known = functional.linear(x, weight, bias)
    assert_same(lambda a, b, c: linear(a, b, c, known), functional.linear, x, weight, bias)
    known_of_gated = functional.linear(functional.silu(gate) * up, weight, bias)
    assert_same(
        lambda g, u, w, b: gated_linear(g, u, w, b, known_of_gated),
        lambda g, u, w, b: functional.linear(functional.silu(g) * u, w, b),
        *(gate, up, weight, bias),
    )


def test_without_gradients_the_results_are_the_same():
    model = torch.nn.ModuleDict({name: torch.nn.Linear(16, 24) for name in ("gate", "up")})
    x, weight, angles = torch.randn(5, 16), torch.randn(16), torch.randn(5, 8)
    cos, sin = (torch.cat([part, part], dim=-1) for part in (angles.cos(), angles.sin()))
    with torch.no_grad():
        gate, up = ((model[name].weight, model[name].bias) for name in ("gate", "up"))
        assert torch.allclose(gated(x, gate, up), functional.silu(model["gate"](x)) * model["up"](x))
        assert torch.allclose(rms_norm(x, weight, 1e-6), plain_rms_norm(x, weight), atol=1e-5)
        assert torch.allclose(rotate(x, cos, sin), plain_rotation(x, cos, sin), atol=1e-6)
        assert torch.allclose(linear(x, model["up"].weight, None), x @ model["up"].weight.t(), atol=1e-5)


def test_a_rotation_keeps_the_type_of_its_input():
    angles = torch.randn(3, 1, 4)
    cos, sin = (torch.cat([part, part], dim=-1) for part in (angles.cos(), angles.sin()))
    assert rotate(torch.randn(3, 2, 8, dtype=torch.bfloat16), cos, sin).dtype == torch.bfloat16


@pytest.mark.parametrize("dim", [8, 16, 80])
@pytest.mark.parametrize("lengths", [[6], [4, 4, 4], [4, 4, 2, 4], [1, 5, 5, 3], [70, 3, 3]])
def test_pieces_attend_within_themselves_only(lengths, dim):
    packed = torch.randn(sum(lengths), 3, 2, dim)

    def one_by_one(together):
        pieces = [
            torch.softmax(torch.einsum("qhd,khd->hqk", a, b) * 0.3, dim=-1) @ c.transpose(0, 1)
            for a, b, c in (piece.unbind(1) for piece in together.split(lengths))
        ]
        return torch.cat([piece.transpose(0, 1).flatten(1) for piece in pieces])

    assert_same(lambda together: attend_within(together, lengths, 0.3), one_by_one, packed)


@pytest.mark.parametrize(("length", "before"), [(2, 0), (5, 3), (24, 40), (70, 100), (130, 0)])
@pytest.mark.parametrize("dim", [8, 16, 80])
def test_attention_of_grouped_queries_is_that_of_repeated_keys(length, before, dim):
    query, key, value = (torch.randn(2, heads, size, dim) for heads, size in ((6, length), *[(2, length + before)] * 2))
    seen = torch.ones(2, 1, length, length + before, dtype=torch.bool).tril(before)
    seen[1, :, :, : before // 2] = False
    mask = torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf) if before else None

    def plain(q, k, v):
        scores = q @ k.repeat_interleave(3, dim=1).transpose(2, 3) * 0.2
        return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v.repeat_interleave(3, dim=1)

    assert_same(lambda q, k, v: attention(q, k, v, mask, is_causal=mask is None, scaling=0.2), plain, query, key, value)


def test_attention_of_nothing_and_of_strided_heads_is_that_of_torch():
    empty = [torch.randn(1, 2, 0, 16, requires_grad=True) for _ in range(3)]
    attention(*empty, None, is_causal=True, scaling=None).sum().backward()
    assert attend_within(torch.zeros(0, 3, 2, 16), [], 0.3).shape == (0, 32)
    assert attend_within(torch.zeros(0, 3, 2, 16), [0, 0], 0.3).shape == (0, 32)
    query, key, value = (torch.randn(16, 2, 3, 4) for _ in range(3))

    def strided(function):
        return lambda *tensors: function(*(each.permute(3, 1, 2, 0) for each in tensors))

    assert_same(
        strided(lambda q, k, v: attention(q, k, v, None, is_causal=True, scaling=None)),
        strided(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True)),
        *(query, key, value),
    )
    packed = torch.randn(16, 6, 3, 2)

    def one_piece(together):
        q, k, v = (each.transpose(0, 1) for each in together.permute(1, 2, 3, 0).unbind(1))
        return functional.scaled_dot_product_attention(q, k, v, scale=0.3).transpose(0, 1).flatten(1)

    assert_same(lambda t: attend_within(t.permute(1, 2, 3, 0), [6], 0.3), one_piece, packed)


def test_a_nan_in_what_attention_is_given_is_one_in_every_gradient_that_it_reaches():
    query, key, value = (torch.randn(1, heads, 5, 16) for heads in (4, 2, 2))
    query[0, 3, 2] = torch.nan
    inputs = [each.requires_grad_() for each in (query, key, value)]
    attention(*inputs, None, is_causal=True, scaling=None).sum().backward()
    assert query.grad[0, 3, 2].isnan().all()
    assert key.grad[0, 1, :3].isnan().all()
    assert value.grad[0, 1, :3].isnan().all()
    assert all(each.grad[0, 0].isfinite().all() for each in inputs)


@pytest.mark.parametrize("size", [1, 7, 16, 1025])
def test_gates_of_any_size_and_layout_are_the_formula(size):
    weight, whole = torch.randn(4, size), torch.randn(3, 9, size) * 4

    def run(function, w, g, u):
        return function(g[:, :5], u[:, 2:7], w, None)

    assert_same(
        lambda *inputs: run(gated_linear, *inputs),
        lambda *inputs: run(lambda g, u, w, _: functional.linear(functional.silu(g) * u, w), *inputs),
        *(weight / size**0.5, whole, whole.flip(0)),
    )


@pytest.mark.parametrize("size", [1, 1025])
def test_a_gated_product_alone_has_the_formulas_gradients_and_leaves_the_one_it_is_given(size):
    gate, up = torch.randn(3, 9, size) * 4, torch.randn(3, 9, size)
    assert_same(lambda g, u: functions.gated_product(g[:, :5], u[:, 2:7]), plain_gate, gate, up)
    gate, given = gate.requires_grad_(), torch.ones(3, 9, size)
    functions.gated_product(gate, up).backward(given)
    assert torch.equal(given, torch.ones(3, 9, size))


def test_gates_far_from_zero_are_open_or_closed_and_a_nan_stays_one():
    far = [-torch.inf, -1e38, -1e4, -200.0, -88.5, -0.0, 88.5, 200.0, 1e4, 1e38, torch.nan, torch.inf]
    gate = torch.tensor(far)
    product = functions.gated_product(gate, torch.ones(len(far)))
    assert torch.allclose(product, functional.silu(gate), equal_nan=True, rtol=1e-6, atol=1e-30)


@torch.no_grad()
@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_of_layers_of_any_activation_the_last_one_computes_last_tokens_alone(activation):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(
        **sizes, num_hidden_layers=3, vocab_size=64, hidden_act=activation, attn_implementation=ATTENTION
    )
    hf, family = LlamaForCausalLM(config).eval(), TextFamily()
    family.adapt(hf)
    ids, last = torch.randint(0, 64, (2, 6)), torch.tensor([3, 5])
    embeds, positions = family.embed(hf, ids), torch.arange(6).expand(1, 2, -1)
    whole = family.run(hf, embeds, positions, mask=None, cache=None)
    seen = []
    hf.model.layers[-1].mlp.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].shape[1]))
    found = family.run(hf, embeds, positions, mask=None, cache=empty_cache(), last_tokens=last)
    assert seen == [1]
    assert torch.allclose(found[:, 0], whole[torch.arange(2), last], atol=1e-6)


def test_weights_keep_their_names_and_a_copy_stays_fast():
    import copy

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2, bias=False))
    names, x = list(model.state_dict()), torch.randn(3, 4)
    before = model(x)
    make_fast(model)
    again = copy.deepcopy(model)
    assert list(model.state_dict()) == names
    assert [type(part).__name__ for part in again] == ["FastLinear", "LayerNorm", "FastLinear"]
    assert torch.allclose(again(x), before, atol=1e-6)


@pytest.mark.parametrize("dim", [8, 16, 80])
@pytest.mark.parametrize("length", [1, 5, 65])
def test_attention_that_is_known_has_the_gradients_of_one_that_computes_it(length, dim):
    keys, scaling = length + 4, 0.3
    query, key, value = torch.randn(3, 6, length, dim), torch.randn(3, 2, keys, dim), torch.randn(3, 2, keys, dim)
    seen = torch.ones(length, keys, dtype=torch.bool).tril(4)
    mask = torch.zeros(3, 1, length, keys).masked_fill_(~seen, -torch.inf)
    mask[1, :, :, 2] = -torch.inf
    scores = query @ key.repeat_interleave(3, dim=1).transpose(2, 3) * scaling + mask
    output = (scores.softmax(-1) @ value.repeat_interleave(3, dim=1)).transpose(1, 2).flatten(2)
    log_sums = scores.logsumexp(-1).transpose(1, 2)

    def plain(q, k, v):
        attended = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask.to(q.dtype), scale=scaling, enable_gqa=True
        )
        return attended.transpose(1, 2).flatten(2)

    def known(q, k, v):
        return attention_of_known(q, k, v, mask, scaling, output, log_sums)

    assert_same(known, plain, query, key, value)
    with torch.no_grad():
        assert known(query, key, value) is output


@pytest.mark.parametrize("dim", [8, 16])
def test_queries_of_padding_send_nothing_back_however_large_their_scores(dim):
    query, key = (torch.full((1, 2, 3, dim), 100.0, requires_grad=True) for _ in range(2))
    value = torch.randn(1, 2, 3, dim, requires_grad=True)
    output, log_sums = torch.zeros(1, 3, 2 * dim), torch.full((1, 3, 2), torch.inf)
    attention_of_known(query, key, value, None, 1.0, output, log_sums).backward(torch.zeros(1, 3, 2 * dim))
    assert all(torch.equal(each.grad, torch.zeros_like(each)) for each in (query, key, value))


def gradients_of_two_passes(weights, *, in_place):
    """Of a linear and a gated map of more and of fewer outputs than inputs, over two batches one after another."""
    torch.manual_seed(1)
    wide, narrow = (weight.clone().requires_grad_() for weight in weights)
    with gradients_added_in_place(in_place):
        for _ in range(2):
            hidden = linear(torch.randn(6, 8), wide, None)
            gated_linear(hidden, hidden, narrow, None).square().sum().backward()
    return wide.grad, narrow.grad


def test_gradients_added_in_place_are_the_sums_that_autograd_makes(monkeypatch):
    weights = torch.randn(24, 8), torch.randn(8, 24)
    expected = gradients_of_two_passes(weights, in_place=False)
    given, plain = [], functions._weight_gradient

    def watched(*arguments):
        given.append(plain(*arguments))
        return given[-1]

    monkeypatch.setattr(functions, "_weight_gradient", watched)
    found = gradients_of_two_passes(weights, in_place=True)
    assert [gradient is None for gradient in given] == [False, False, True, True]
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_hook_on_a_weights_gradient_sees_each_of_them():
    weight, seen = torch.randn(4, 3, requires_grad=True), []
    weight.register_hook(lambda gradient: seen.append(gradient.clone()))
    with gradients_added_in_place(True):
        for _ in range(2):
            linear(torch.ones(2, 3), weight, None).sum().backward()
    assert len(seen) == 2
    assert torch.equal(weight.grad, torch.full((4, 3), 4.0))


def test_gradients_that_are_asked_for_outside_of_an_update_are_given():
    weight = torch.randn(4, 3, requires_grad=True)
    for _ in range(2):
        linear(torch.ones(2, 3), weight, None).sum().backward()
    (gradient,) = torch.autograd.grad(linear(torch.ones(2, 3), weight, None).sum(), weight)
    assert torch.equal(gradient, torch.full((4, 3), 2.0))
    assert torch.equal(weight.grad, torch.full((4, 3), 4.0))


def test_packed_weights_are_taken_without_gradients_and_within_their_budget(monkeypatch):
    model = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.Linear(24, 8, bias=False))
    make_fast(model)
    x = torch.randn(5, 1, 16)
    multiplied, plain = [], functions._product

    def watched(x, weight, bias):
        multiplied.append(weight)
        return plain(x, weight, bias)

    monkeypatch.setattr(functions, "_product", watched)
    with torch.no_grad():
        expected = model(x)
    monkeypatch.setattr(packed, "MOST_PACKED", model[0].weight.nbytes)
    with packed.with_packed_weights(model, num_rows=5):
        with torch.no_grad():
            found = model(x)
        learned = model(x)
    with torch.no_grad():
        model(x)
    is_packed = [weight is not layer.weight for weight, layer in zip(multiplied, [*model] * 4, strict=True)]
    assert is_packed == [False, False, True, False, False, False, False, False]
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(learned, expected, atol=1e-6)
