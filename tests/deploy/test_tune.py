"""Tune and speed: the quickest way is measured, kept in the student and its file, and counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import understudy as us
from understudy._util.timing import Timing
from understudy.deploy import tune as tune_module

WIDTH = 256  # wide enough for two small products to be quicker than one large one


def dense() -> nn.Module:
    sizes = [(8, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, 4)]
    return nn.Sequential(*(nn.Linear(*size) for size in sizes))


def student() -> nn.Module:
    plan = us.plan(dense(), "low_rank", knob=4, include=["1", "2"])
    return us.substitute(dense(), plan, init="fresh")


def formed_wins(calls: Mapping[Any, Callable[[], object]], **_: Any) -> dict[Any, Timing]:
    for call in calls.values():
        call()
    return {key: Timing(1.0 if key == "formed" else 2.0, 2.0, 1) for key in calls}


def test_what_is_quickest_is_kept_in_the_student_in_its_file_and_in_what_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_module, "time_in_turns", formed_wins)
    before = student()
    tuned = us.tune(before, (16, 8))
    assert [layer.execution.inference for _, layer in us.stand_ins(tuned)] == ["formed", "formed"]
    assert {layer.execution for _, layer in us.stand_ins(before)} == {us.Execution()}
    assert all(module.training for module in tuned.modules())
    x = torch.randn(16, 8)
    torch.testing.assert_close(tuned.eval()(x), before.eval()(x))
    counted, others = us.cost(tuned, x), 16 * (8 * WIDTH + WIDTH * 4)
    assert counted.mult_adds == us.cost(before, x).mult_adds == others + 16 * 2 * 2 * 4 * WIDTH
    assert counted.inference_mult_adds == others + 16 * 2 * WIDTH**2  # what is formed is kept
    assert f"{counted.inference_mult_adds:,} in inference with what is kept" in " ".join(str(counted).split())
    us.save(tuned, tmp_path / "tuned.safetensors")
    loaded = us.load(tmp_path / "tuned.safetensors", dense())
    assert {layer.execution.inference for _, layer in us.stand_ins(loaded)} == {"formed"}
    assert "inference='formed'" in repr(loaded)


def test_the_quicker_layout_of_kernels_is_kept_in_the_student_and_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def channels_last_wins(calls: Mapping[Any, Callable[[], object]], **_: Any) -> dict[Any, Timing]:
        return {key: Timing(1.0 if key == "channels-last" else 2.0, 2.0, 1) for key in calls}

    def images() -> nn.Module:
        return us.create_model("wrn_10_1")

    before = us.substitute(images(), us.plan(images(), "low_rank", ratio=0.5))
    untouched = us.tune(before, (1, 3, 32, 32), seconds=1e-9)
    monkeypatch.setattr(tune_module, "time_in_turns", channels_last_wins)
    tuned = us.tune(before, (1, 3, 32, 32))
    assert all(module.training for module in (*tuned.modules(), *untouched.modules()))
    us.save(before, tmp_path / "before.safetensors")
    us.save(tuned, tmp_path / "tuned.safetensors")
    loaded = [us.load(tmp_path / f"{name}.safetensors", images()) for name in ("before", "tuned")]
    layouts = [stem(network).is_contiguous() for network in (before, *loaded, tuned)]
    assert layouts == [True, True, False, False]
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(loaded[1].eval()(x), before.eval()(x))


def stem(network: nn.Module) -> torch.Tensor:
    """A kernel of 3 × 3 pixels over three channels, which can lie in memory in two ways."""
    return next(parameter for parameter in network.parameters() if parameter.shape[1:] == (3, 3, 3))


def test_training_runs_as_before_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_module, "time_in_turns", formed_wins)
    layer = next(layer for _, layer in us.stand_ins(us.tune(student(), (16, 8))))
    chosen = layer.execution.choose(layer.transform, 16)
    assert chosen.name == "V,U"
    assert layer.execution.choose(layer.transform, 16, inference=True).name == "formed"


def test_real_timings_choose_legal_orders_and_leave_the_outputs() -> None:
    before = student().eval()
    tuned = us.tune(before, (4, 8), seconds=0.01)
    x = torch.randn(4, 8)
    torch.testing.assert_close(tuned(x), before(x))


def test_an_order_for_inference_that_does_not_exist_is_refused() -> None:
    layer = next(layer for _, layer in us.stand_ins(student()))
    with pytest.raises(ValueError, match="order 'U,V' of low_rank is not one of 'formed', 'V,U'"):
        layer.execution = us.Execution(inference="U,V")


def test_networks_are_timed_in_turns_and_left_in_their_modes() -> None:
    one, other = student(), student().eval()
    timed = us.speed({"one": one, "other": other}, (4, 8), seconds=0.01)
    assert timed.time_ms("other") > 0
    assert "other" in str(timed)
    assert one.training
    assert not other.training
    assert "Sequential" in repr(us.speed(one, (4, 8), seconds=0.01))
    with pytest.raises(ValueError, match="no network to time"):
        us.speed({}, (4, 8))
    with pytest.raises(ValueError, match=r"Sequential cannot run on an example of shape \[\(4, 9\)\]"):
        us.speed(one, (4, 9))
