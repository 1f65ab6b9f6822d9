"""Networks that this project did not write: planned, substituted, counted, merged without special cases."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from snapshots import snapshot
from understudy.layers import Layer
from understudy.planning.plan import Plan
from understudy.planning.request import Spatial

# A tracer would take most of the time here, and what runs is measured elsewhere.


@dataclasses.dataclass(frozen=True)
class Case:
    """A network, small; a share of its parameters for low rank, and another transform with its own."""

    name: str
    shape: tuple[int, ...]
    ratio: float
    other: str
    other_ratio: float
    spatial: Spatial = "separable"  # of the other transform
    options: dict[str, Any] = dataclasses.field(default_factory=lambda: {"num_classes": 10})

    def __str__(self) -> str:
        return self.name

    def make(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return us.create_model(self.name, **self.options).eval()

    def real_inputs(self) -> dict[str, Tensor] | tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(1)
        if self.name.startswith("transformers:"):
            return {"input_ids": torch.randint(0, 100, (2, *self.shape), generator=generator)}
        return (torch.randn(2, *self.shape, generator=generator, dtype=torch.float64),)


IMAGE = (3, 64, 64)
TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
TEXT |= {"vocab_size": 100, "max_position_embeddings": 32}
DENSE = {"num_classes": 10, "block_config": (3, 3, 3, 3)}
SWIN = {"num_classes": 10, "embed_dim": 32, "depths": (2, 2), "num_heads": (2, 4)}

CASES = [
    Case("timm:resnet18", IMAGE, 0.1, "shuffle", 0.2, "unfolded"),
    Case("timm:mobilenetv3_small_050", IMAGE, 0.5, "tensor_train", 0.5),
    Case("timm:densenet121", (3, 32, 32), 0.4, "shuffle", 0.2, options=DENSE),
    Case("timm:convnext_atto", IMAGE, 0.4, "tucker", 0.4),
    Case(
        "timm:vit_tiny_patch16_224",
        IMAGE,
        0.4,
        "hashed",
        0.3,
        options={"num_classes": 10, "img_size": 64, "depth": 3},
    ),
    Case(
        "timm:swin_tiny_patch4_window7_224",
        (3, 56, 56),
        0.4,
        "acdc",
        0.4,
        options={**SWIN, "img_size": 56, "window_size": 7},
    ),
    Case(
        "timm:beit_base_patch16_224",
        IMAGE,
        0.6,
        "tensor_train",
        0.6,
        options={"num_classes": 10, "img_size": 64, "depth": 2, "embed_dim": 96, "num_heads": 3},
    ),
    Case(
        "timm.models.mlp_mixer:MlpMixer",
        IMAGE,
        0.4,
        "tucker",
        0.4,
        options={"num_classes": 10, "img_size": 64, "num_blocks": 2, "embed_dim": 96},
    ),
    Case("timm:efficientnet_b0", IMAGE, 0.5, "shuffle", 0.4),
    Case("torchvision:resnet18", IMAGE, 0.1, "tensor_train", 0.3, "unfolded"),
    Case("torchvision:mobilenet_v2", IMAGE, 0.5, "kronecker", 0.1),
    Case("torchvision:squeezenet1_1", IMAGE, 0.2, "hashed", 0.4, "unfolded"),
    Case("torchvision:shufflenet_v2_x0_5", IMAGE, 0.5, "hashed", 0.3),
    Case(
        "torchvision.models:VisionTransformer",
        IMAGE,
        0.8,
        "shuffle",
        0.8,
        options={
            "image_size": 64,
            "patch_size": 16,
            "num_layers": 2,
            "num_heads": 4,
            "hidden_dim": 64,
            "mlp_dim": 128,
            "num_classes": 10,
        },
    ),
    Case(
        "torchvision.models:SwinTransformer",
        IMAGE,
        0.4,
        "tucker",
        0.4,
        options={**SWIN, "patch_size": [4, 4], "window_size": [4, 4]},
    ),
    Case("transformers:bert", (16,), 0.5, "tensor_train", 0.5, options=TEXT),
    Case("transformers:llama", (16,), 0.5, "hashed", 0.4, options={**TEXT, "num_key_value_heads": 2}),
    Case(
        "transformers:distilbert",
        (16,),
        0.5,
        "acdc",
        0.5,
        options={
            "dim": 64,
            "hidden_dim": 128,
            "n_layers": 2,
            "n_heads": 4,
            "vocab_size": 100,
            "max_position_embeddings": 32,
        },
    ),
]


def outputs(model: nn.Module, inputs: dict[str, Tensor] | tuple[Tensor, ...]) -> Tensor:
    with torch.no_grad():
        result = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
    if not isinstance(result, Tensor):
        result = result.last_hidden_state
    assert isinstance(result, Tensor)
    return result


def check(case: Case, plan: Plan, model: nn.Module, init: Any) -> None:
    """The plan's numbers are those of the student, and the merged student computes what the student does."""
    before = snapshot(model)
    student = us.substitute(model, plan, init=init)
    assert snapshot(model) == before
    replaced = [layer for layer in plan.layers if layer.spec is not None]
    assert len(replaced) > 1
    assert all(isinstance(student.get_submodule(layer.path), Layer) for layer in replaced)
    counted = us.cost(student, us.example_input(case.name, model, case.shape))
    assert (plan.params, plan.mult_adds) == (counted.params, counted.mult_adds)
    student.double()
    merged = us.merge(student)
    assert not any(isinstance(module, Layer) for module in merged.modules())
    assert merged.state_dict().keys() == model.state_dict().keys()
    wanted, got = outputs(student, case.real_inputs()), outputs(merged, case.real_inputs())
    assert float((got - wanted).abs().max()) <= 1e-10 * float(wanted.abs().max())
    assert snapshot(model) == before


@pytest.mark.parametrize("case", CASES, ids=str)
def test_low_rank_projected_on_a_network_of_others(case: Case) -> None:
    model = case.make()
    example = us.example_input(case.name, model, case.shape)
    plan = us.plan(model, "low_rank", ratio=case.ratio, example=example)
    assert 0.98 * case.ratio * plan.dense_params <= plan.params <= case.ratio * plan.dense_params
    check(case, plan, model, "project")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.other}")
def test_another_transform_fresh_on_a_network_of_others(case: Case) -> None:
    model = case.make()
    example = us.example_input(case.name, model, case.shape)
    plan = us.plan(model, case.other, ratio=case.other_ratio, example=example, spatial=case.spatial)
    assert 0.9 * case.other_ratio * plan.dense_params <= plan.params <= case.other_ratio * plan.dense_params
    check(case, plan, model, "fresh")
