"""nn.MultiheadAttention: its projections are sites, and taken apart it computes what it did."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from site_kinds import assert_dense_stand_ins_change_nothing, take_the_whole_way
from snapshots import snapshot
from understudy.layers.attention import Attention
from understudy.layers.opening import close_, opened

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "out_proj"]


def attention(**options: Any) -> nn.MultiheadAttention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = nn.MultiheadAttention(16, 4, **{"dtype": torch.float64, **options})
        for parameter in made.parameters():
            nn.init.normal_(parameter, std=0.3)
    return made.eval()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Encoder(nn.Module):
    """Two encoder layers, an attention over a few queries of its own, and a head."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.queries = nn.Parameter(torch.randn(3, 16))
        self.pool = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        x = self.encoder(x, src_key_padding_mask=padding)
        queries = self.queries.expand(len(x), -1, -1)
        x, _ = self.pool(queries, x, x, key_padding_mask=padding, need_weights=False)
        logits: Tensor = self.head(x.mean(dim=1))
        return logits


def encoder() -> Encoder:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Encoder().double().eval()


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"add_bias_kv": True},
        {"add_zero_attn": True},
        {"kdim": 6, "vdim": 10},
        {"dropout": 0.4},
    ],
    ids=str,
)
def test_an_open_attention_computes_what_it_did(options: dict[str, Any], batch_first: bool) -> None:
    original = attention(batch_first=batch_first, **options)
    dims = (original.embed_dim, original.kdim, original.vdim)
    inputs = [drawn(2, length, width, seed=width) for length, width in zip((5, 6, 6), dims, strict=True)]
    if not batch_first:
        inputs = [tensor.transpose(0, 1) for tensor in inputs]
    causal = torch.ones(5, 6, dtype=torch.bool).triu(1)
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    masks = [None, causal, drawn(5, 6), drawn(8, 5, 6)]
    student = opened(original)
    assert isinstance(student, Attention)
    for training, mask, padded, weights, averaged in itertools.product(
        (False, True), masks, (None, padding), (False, True), (False, True)
    ):
        asked: dict[str, Any] = {"attn_mask": mask, "key_padding_mask": padded, "need_weights": weights}
        asked["average_attn_weights"] = averaged
        results = []
        for network in (original, student):
            torch.manual_seed(1)  # for dropout
            if mask is not None and mask.is_floating_point() and padded is not None:
                asked["key_padding_mask"] = torch.zeros(2, 6, dtype=torch.float64).masked_fill(
                    padding, -torch.inf
                )
            results.append(network.train(training)(*inputs, **asked))
        torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-12)
    closed = close_(copy.deepcopy(student))
    assert type(closed) is nn.MultiheadAttention
    torch.testing.assert_close(dict(closed.state_dict()), dict(original.state_dict()))


def test_self_attention_with_one_sequence_and_the_causal_hint_is_the_same_too() -> None:
    original = attention()
    student = opened(original)
    x = drawn(5, 16)
    torch.testing.assert_close(student(x, x, x), original(x, x, x), rtol=1e-9, atol=1e-12)
    batch, mask = drawn(5, 2, 16), torch.ones(5, 5, dtype=torch.bool).triu(1)
    for weights in (False, True):
        results = [
            network(batch, batch, batch, attn_mask=mask, is_causal=True, need_weights=weights)
            for network in (student, original)
        ]
        torch.testing.assert_close(*results, rtol=1e-9, atol=1e-12)


def test_opening_copies_no_weight_and_changes_nothing() -> None:
    original = encoder()
    before = snapshot(original)
    student = opened(original)
    assert snapshot(original) == before
    pool = student.get_submodule("pool")
    assert isinstance(pool, Attention)
    assert pool.q_proj.get_parameter("weight").data_ptr() == original.pool.in_proj_weight.data_ptr()
    torch.testing.assert_close(pool.in_proj_weight, original.pool.in_proj_weight)
    torch.testing.assert_close(pool.in_proj_bias, original.pool.in_proj_bias)
    plain = nn.Sequential(nn.Linear(3, 3))
    assert opened(plain) is plain


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("all 2-D or all 3-D", {"key": drawn(6, 16)}),
        ("is_causal is a hint about attn_mask", {"is_causal": True}),
        (r"attn_mask has the shape \(4, 6\), not \(5, 6\) or \(8, 5, 6\)", {"attn_mask": drawn(4, 6)}),
        (r"key_padding_mask has the shape \(3, 6\), not \(2, 6\)", {"key_padding_mask": drawn(3, 6)}),
    ],
)
def test_inputs_that_do_not_fit_are_refused(words: str, asked: dict[str, Any]) -> None:
    given = {"query": drawn(5, 2, 16), "key": drawn(6, 2, 16), "value": drawn(6, 2, 16), **asked}
    with pytest.raises(ValueError, match=words):
        opened(attention())(**given)


# ---- as sites --------------------------------------------------------------------------------------------


def test_the_projections_of_an_attention_are_sites_with_their_shapes_and_costs() -> None:
    model = nn.Sequential(attention(kdim=6, vdim=10))
    found = {site.path: site for site in us.sites(model, include=["*"])}
    assert list(found) == [f"0.{name}" for name in PROJECTIONS]
    assert [site.shape for site in found.values()] == ["16 → 16", "6 → 16", "10 → 16", "16 → 16"]
    survey = us.sites(encoder(), (2, 7, 16), include=["pool"])
    mult_adds = {site.path: site.mult_adds for site in survey.chosen}
    assert mult_adds["pool.q_proj"] == mult_adds["pool.out_proj"] == 2 * 3 * 16 * 16
    assert mult_adds["pool.k_proj"] == mult_adds["pool.v_proj"] == 2 * 7 * 16 * 16


def test_an_attention_that_cannot_be_opened_says_why() -> None:
    class Doubled(nn.MultiheadAttention):
        def forward(self, *inputs: Any, **options: Any) -> Any:
            out, weights = super().forward(*inputs, **options)
            return 2 * out, weights

    one, other = attention(), attention()
    other.in_proj_weight = one.in_proj_weight
    model = nn.ModuleList([one, other, Doubled(16, 4)])
    found = {site.path: site.skip for site in us.sites(model, include=["*"])}
    assert found["0"] == "its in_proj_weight is shared with 1"
    assert found["1"] == "its in_proj_weight is shared with 0"
    assert found["2"] == "Doubled computes in its own way"
    assert found["2.out_proj"] is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("transform", ["low_rank", "tensor_train", "hashed"])
def test_an_encoder_takes_the_whole_way(transform: str, tmp_path: Path) -> None:
    x = drawn(3, 7, 16)
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[1, 5:] = True  # a plain encoder would make a nested tensor of it
    model = encoder()
    model.requires_grad_(False)
    student = take_the_whole_way(
        model, x[:1], lambda network: network(x, padding), tmp_path, ["*.self_attn", "pool"], transform
    )
    assert isinstance(student.get_submodule("pool"), Attention)
    merged = us.merge(student)
    assert vars(merged.get_submodule("encoder"))["use_nested_tensor"] is True
    assert_dense_stand_ins_change_nothing(model, lambda network: network(x), ["*.self_attn", "pool"])


def test_only_attentions_in_which_something_stands_in_are_opened(tmp_path: Path) -> None:
    model = encoder()
    student = us.substitute(model, us.plan(model, "low_rank", knob=2, include=["pool.q_proj"]))
    assert isinstance(student.get_submodule("pool"), Attention)
    assert type(student.get_submodule("encoder.layers.0.self_attn")) is nn.MultiheadAttention
    us.save(student, tmp_path / "student.safetensors")
    x = drawn(2, 5, 16)
    torch.testing.assert_close(us.load(tmp_path / "student.safetensors", model)(x), student(x))


def test_hooks_and_frozen_weights_of_an_attention_are_kept() -> None:
    model = attention()
    calls: list[str] = []
    model.register_forward_hook(lambda *_: calls.append("called"))
    model.in_proj_weight.requires_grad_(False)
    student = us.substitute(model, us.plan(model, "low_rank", knob=2, include=["q_proj", "k_proj"]))
    x = drawn(3, 2, 16)
    student(x, x, x)
    assert calls == ["called"]
    frozen = {name for name, parameter in student.named_parameters() if not parameter.requires_grad}
    stand_ins = {f"{name}.transform.{factor}" for name in ("q_proj", "k_proj") for factor in "uv"}
    assert frozen == stand_ins | {"v_proj.weight"}
    merged = us.merge(student)
    assert not merged.get_parameter("in_proj_weight").requires_grad
    assert merged.get_parameter("in_proj_bias").requires_grad


def test_an_encoder_is_compressed_with_every_projection_seen() -> None:
    model = encoder().float()
    data = drawn(48, 7, 16).float()
    done = us.compression(model, ratio=0.8, data=data, include=["*.self_attn", "pool"])
    assert done.calibration.idle == ()
    assert len(done.calibration.layers) == 12
    assert min(step.error for step in done.steps[1:]) < done.steps[0].error
    assert sum(parameter.numel() for parameter in done.student.parameters()) == done.plan.params
    merged = us.merge(done.student)
    assert merged.state_dict().keys() == model.state_dict().keys()
    torch.testing.assert_close(merged(data), done.student(data), rtol=1e-3, atol=1e-4)


def test_a_plan_with_a_calibration_finds_the_projections_of_a_closed_attention() -> None:
    model = encoder().float()
    seen = us.calibrate(model, drawn(16, 7, 16).float())
    plan = us.plan(model, "low_rank", ratio=0.8, calibration=seen)
    assert {layer.path for layer in plan if layer.spec is not None} & {f"pool.{name}" for name in PROJECTIONS}
