"""Products are convolutions where these are quicker, and the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from understudy._util import processor
from understudy.layers import Linear, steps
from understudy.transforms import get_transform, products, stages
from understudy.transforms.products import rows_times
from understudy.transforms.stages import Blocks, Follow, Product

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.profiler.*")


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def lagging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(products, "products_lag", lambda: True)
        yield


def operations(stage: Product | Blocks | Follow | Linear, x: Tensor) -> set[str]:
    """What a call ends up in."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        stage(x) if isinstance(stage, Linear) else stage.rows(x)
    return {event.key for event in seen.key_averages()} & {"aten::convolution", "aten::mm", "aten::bmm"}


LARGE = normal(640, 80)


@pytest.mark.usefixtures("lagging")
@pytest.mark.parametrize(
    ("stage", "x", "plainly"),
    [
        (Product(LARGE), normal(512, 80), "aten::mm"),
        (Product(LARGE, left=2), normal(256, 160), "aten::mm"),
        (Blocks(LARGE.reshape(4, 160, 80)), normal(512, 320), "aten::bmm"),
    ],
    ids=["plain", "left", "blocks"],
)
def test_many_vectors_are_convolved(stage: Product | Blocks, x: Tensor, plainly: str) -> None:
    assert operations(stage, x) == {"aten::convolution"}
    assert operations(stage, x[:16]) == {plainly}, "too few to be worth a convolution"
    assert operations(stage, x[:251]) == {plainly}, "so many are not shared out among images"
    double = stage._replace(weight=stage.weight.double())
    assert operations(double, x.double()) == {plainly}
    torch.testing.assert_close(stage.rows(x), double.rows(x.double()).float(), rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert "aten::convolution" not in operations(stage, x)


@pytest.mark.usefixtures("lagging")
def test_what_is_laid_out_in_another_way_is_multiplied() -> None:
    layer = Linear(get_transform("low_rank")(640, 640, 64)).eval()
    x = normal(512, 640)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x.to_sparse()), layer(x), rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("lagging")
def test_captured_graphs_hold_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MANY", 0)
    matrix = normal(320, 32)

    class Network(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Blocks(LARGE.reshape(4, 160, 80)).rows(rows_times(x, matrix))

    network, x = Network(), normal(64, 32)
    assert operations(Product(matrix), x) == {"aten::convolution"}
    compiled = torch.compile(network, fullgraph=True, backend="eager", dynamic=True)
    torch.testing.assert_close(compiled(x), network(x), rtol=1e-4, atol=1e-3)
    batch = torch.export.Dim("batch")
    program = torch.export.export(network, (x,), dynamic_shapes=({0: batch},)).module()
    torch.testing.assert_close(program(normal(50, 32)), network(normal(50, 32)), rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("lagging")
def test_what_follows_others_is_convolved_too() -> None:
    stage = Follow(LARGE, torch.arange(720))
    assert operations(stage, normal(512, 80)) == {"aten::convolution"}


@pytest.mark.usefixtures("lagging")
def test_more_wide_blocks_than_a_convolution_trains_sooner_are_trained_as_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "_MUCH", 512 * 320 - 1)
    blocks, x = Blocks(LARGE.reshape(4, 160, 80)), normal(512, 320)
    assert operations(blocks, x) == {"aten::bmm"}
    with torch.inference_mode():
        assert operations(blocks, x) == {"aten::convolution"}


def test_elsewhere_products_are_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "products_lag", lambda: False)
    with torch.inference_mode():
        assert operations(Product(LARGE), normal(512, 80)) == {"aten::mm"}


@pytest.mark.usefixtures("lagging")
def test_a_linear_stand_in_convolves_and_adds_its_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "can_pack", lambda *_, **__: False)  # as where nothing is laid out ahead
    layer = Linear(get_transform("low_rank")(320, 320, 48), normal(320)).eval()
    x = normal(4, 128, 320)
    with torch.inference_mode():
        assert operations(layer, x) == {"aten::convolution"}
        torch.testing.assert_close(layer(x), layer.merged()(x), rtol=1e-4, atol=1e-3)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 9), st.booleans()
)
def test_a_convolution_of_rows_is_their_product_and_has_its_gradients(
    leading: list[int], columns: int, rows: int, has_bias: bool
) -> None:
    tensors = [normal(*leading, columns), normal(rows, columns), *([normal(rows)] if has_bias else [])]
    for tensor in tensors:
        tensor.requires_grad_()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(products, "products_lag", lambda: True)
        patched.setattr(products, "MANY", 0)
        patched.setattr(products, "_IMAGES", 2)
        patched.setattr(products, "_ROWS", 1)
        patched.setattr(products, "_image_count", products._image_count.__wrapped__)
        made = rows_times(*tensors)
    wanted = torch.nn.functional.linear(*tensors)
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)
    slopes = normal(*wanted.shape)
    ours, theirs = (torch.autograd.grad(out, tensors, slopes) for out in (made, wanted))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("told", "capability", "lags"),
    [
        ("processor : 0\nvendor_id\t: AuthenticAMD\n", "AVX512", True),
        ("processor : 0\nvendor_id\t: AuthenticAMD\n", "AVX2", False),
        ("processor : 0\nvendor_id\t: GenuineIntel\n", "AVX512", False),
        ("processor : 0\nBogoMIPS : 50.00\n", "DEFAULT", False),
        (None, "AVX512", True),
    ],
)
def test_products_lag_on_processors_of_amd_that_have_avx_512(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None, capability: str, lags: bool
) -> None:
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "AMD64 Family 25 Model 97, AuthenticAMD")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    if told is not None:
        (tmp_path / "cpuinfo").write_text(told)
    assert processor.products_lag.__wrapped__() is lags
