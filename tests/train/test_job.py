"""Training with objects of the caller's: models, batches and optimisers that no recipe names."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import understudy as us
from understudy.train import Epoch, Job, Recipe, Run, RunError, evaluate, fit, prepare, train
from understudy.train.losses import target_loss
from understudy.train.processes import Processes

SETTINGS = Recipe(epochs=3, learning_rate=0.05, checkpoint_seconds=0.0, decay="none")


def made(seed: int = 0, classes: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, classes))


def samples(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Vectors whose class is their largest of three numbers."""
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(1)


def batches(seed: int = 0, size: int = 20) -> list[tuple[Tensor, Tensor]]:
    return list(zip(*(tensor.split(size) for tensor in samples(seed)), strict=True))


def test_a_job_of_objects_is_fitted_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, teacher = made(), made(1).train()
    teacher[0].eval()
    teacher[3].requires_grad_(False)
    modes = [module.training for module in teacher.modules()]
    flags = [parameter.requires_grad for parameter in teacher.parameters()]
    before = copy.deepcopy(teacher.state_dict())
    said: list[str] = []
    job = Job(
        model=model,
        teacher=teacher,
        batches=DataLoader(TensorDataset(*samples()), batch_size=20),
        test_batches=batches(1),
        settings=SETTINGS.replaced({"epochs": 8, "distillation": 0.2}),
        example=torch.zeros(1, 6),
    )
    fitted = fit(job, report=said.append)
    assert fitted.network is model
    assert [epoch.epoch for epoch in fitted.epochs] == list(range(8))
    assert fitted.epochs[-1].train_loss < fitted.epochs[0].train_loss
    assert fitted.outcome.params == us.cost(model, torch.zeros(1, 6)).params
    assert fitted.outcome.errors is not None
    assert fitted.outcome.errors.test_images == 60
    assert said[-1].startswith("epoch 8/8: loss ")
    assert modes == [module.training for module in teacher.modules()]
    assert flags == [parameter.requires_grad for parameter in teacher.parameters()]
    assert all(torch.equal(before[key], value) for key, value in teacher.state_dict().items())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "optimiser",
    [
        functools.partial(torch.optim.RMSprop, lr=1e-3, momentum=0.5),
        functools.partial(torch.optim.Adam, lr=1e-2, amsgrad=True),
    ],
)
def test_an_optimiser_of_the_caller_s_is_used_and_taken_up_again(
    tmp_path: Path, optimiser: Callable[..., torch.optim.Optimizer]
) -> None:
    class StoppedError(Exception):
        pass

    def stop(progress: Any, *_: Any) -> None:
        if progress.step == 5:
            raise StoppedError

    def job() -> Job:
        model = made()
        groups = [{"params": model[0].parameters()}, {"params": model[3].parameters(), "lr": 0.003}]
        settings = SETTINGS.replaced({"schedule": "cosine"})
        return Job(model=model, batches=batches(), optimiser=optimiser(groups), settings=settings)

    whole = fit(job())
    plain = fit(Job(model=made(), batches=batches(), settings=SETTINGS))
    assert not torch.equal(whole.network[0].weight, plain.network[0].weight)  # type: ignore[index]
    assert whole.epochs[0].learning_rate == job().optimiser.param_groups[0]["lr"]  # type: ignore[union-attr]
    with pytest.raises(StoppedError):
        fit(job(), tmp_path / "run", watch=stop)
    assert Run.read(tmp_path / "run").status == "failed"
    again = fit(job(), tmp_path / "run")
    assert [epoch.numbers() for epoch in again.epochs] == [epoch.numbers() for epoch in whole.epochs[1:]]
    for key, value in whole.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[key]), key
    with pytest.raises(RunError, match=r"belongs to another run .*another plan"):
        fit(Job(model=made(classes=4), batches=batches(), settings=job().settings), tmp_path / "run")
    with pytest.raises(RunError, match=r"belongs to another run .*another teacher"):
        fit(Job(model=made(), teacher=made(), batches=batches(), settings=job().settings), tmp_path / "run")


def test_targets_that_are_no_classes_have_a_loss_and_no_error() -> None:
    x, _ = samples()
    given = [(x, x[:, :1] * 2)]
    settings = SETTINGS.replaced({"loss": "mse", "epochs": 5})
    fitted = fit(Job(model=made(classes=1), batches=given, test_batches=given, settings=settings))
    assert fitted.epochs[-1].train_loss < fitted.epochs[0].train_loss
    assert not [key for key in fitted.epochs[-1].numbers() if "error" in key]
    assert "test loss" in str(fitted.epochs[-1])
    with pytest.raises(ValueError, match=r"the network gives \(60, 2\), but the targets are \(60, 1\)"):
        fit(Job(model=made(classes=2), batches=given, settings=settings))


class Named(nn.Module):
    """Takes named inputs and gives a mapping, as networks of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.block = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        states = self.block(self.embed(ids)) * mask[:, :, None]
        return {"logits": self.head(states.mean(1)), "states": states}


@pytest.mark.parametrize("attention", [10.0, 0.0])
def test_inputs_may_be_named_and_outputs_a_mapping(attention: float) -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 7, (12, 5))
    given = [({"ids": ids, "mask": torch.ones(12, 5)}, (ids[:, 0] > 3).long())]
    settings = SETTINGS.replaced({"attention": attention, "taps": "block", "distillation": 0.5, "epochs": 4})
    fitted = fit(Job(model=Named(), teacher=Named(), batches=given, test_batches=given, settings=settings))
    assert fitted.epochs[-1].train_loss < fitted.epochs[0].train_loss
    assert fitted.outcome.errors is not None
    assert (fitted.outcome.errors.test_error or 0) <= 100
    assert not any(module._forward_hooks for module in fitted.network.modules())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": "wrn_10_1"}, TypeError, "model is a str, not a torch.nn.Module"),
        ({"batches": 3}, TypeError, "batches is a int: give what"),
        ({"batches": iter(batches())}, TypeError, "batches is an iterator, used up after one epoch"),
        ({"test_batches": iter(batches())}, TypeError, "test_batches is an iterator"),
        ({"batches": map}, TypeError, "batches is a type: give what"),
        (
            {"optimiser": torch.optim.SGD(made().parameters(), lr=0.1)},
            ValueError,
            "4 parameters of the optimiser are not the model's",
        ),
        ({"batches": [samples()[0]]}, ValueError, "batch 0 is a Tensor, not a pair"),
        ({"test_batches": []}, ValueError, "nothing to test on"),
        (
            {"processes": Processes(0, 2, torch.device("cpu"))},
            ValueError,
            "with several processes batches must know their shares",
        ),
    ],
)
def test_a_job_that_cannot_be_done_is_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fit(Job(**{"model": made(), "batches": batches(), "settings": SETTINGS, **changes}))


def test_batches_without_a_length_are_refused() -> None:
    class Endless:
        def __iter__(self) -> Any:
            return iter(batches())

    with pytest.raises(TypeError, match="batches have no length"):
        Job(model=made(), batches=Endless())


def test_a_recipe_s_job_is_what_train_does_and_a_plan_may_be_given(tmp_path: Path) -> None:
    recipe = Recipe().replaced(
        {"network": "wrn_10_1", "transform": "low_rank", "ratio": 0.2, "train_images": 64, "epochs": 1,
         "batch_size": 32, "crop_padding": 1}
    )  # fmt: skip
    job = prepare(recipe)
    assert job.plan is not None
    result = train(recipe, tmp_path / "run", plan=job.plan)
    fitted = fit(job)
    assert dataclasses.replace(fitted.outcome, bytes=result.bytes) == result
    assert Run.read(tmp_path / "run").identity == recipe.identity()
    assert isinstance(fitted.epochs[0], Epoch)


def test_the_losses_are_those_of_torch() -> None:
    torch.manual_seed(0)
    output, target = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 3, 1, 1, 2])
    smooth = target_loss("cross_entropy", output, target, label_smoothing=0.1)
    torch.testing.assert_close(smooth, F.cross_entropy(output, target, label_smoothing=0.1))
    squares = target_loss("mse", output, target)
    torch.testing.assert_close(squares, F.mse_loss(output, F.one_hot(target, 4).double()))
    torch.testing.assert_close(target_loss("mse", output, target, summed=True), 5 * squares)
    torch.testing.assert_close(target_loss("mse", output, output + 2), torch.tensor(4.0).double())
    torch.testing.assert_close(target_loss("mse", output[:, 0], target), F.mse_loss(output[:, 0], target))
    torch.testing.assert_close(
        target_loss("mse", output[0], output[0] + 2, summed=True), 4 * squares.new_tensor(4)
    )


def test_the_test_loss_of_images_of_classes_is_a_mean_over_their_pixels() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 4, 5, 5, generator=generator), torch.randint(0, 4, (6, 5, 5), generator=generator)
    errors = evaluate(nn.Identity(), [(x[:4], y[:4]), (x[4:], y[4:])])
    assert errors.test_loss == pytest.approx(float(F.cross_entropy(x, y)))
    assert errors.test_error is None


def test_a_job_leaves_the_numbers_of_the_caller_alone() -> None:
    model, before = made(), torch.get_rng_state()
    fit(Job(model, batches(), settings=SETTINGS))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_folder_that_is_refused_leaves_no_hook(tmp_path: Path) -> None:
    (tmp_path / "strange").touch()
    model, teacher = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 6), nn.Flatten()) for _ in range(2))
    images = [(torch.randn(4, 3, 8, 8), torch.zeros(4, dtype=torch.long))]
    settings = SETTINGS.replaced({"attention": 1.0, "taps": ["0"]})
    with pytest.raises(RunError):
        fit(Job(model, images, teacher, settings=settings), tmp_path)
    assert not any(module._forward_hooks for network in (model, teacher) for module in network.modules())
    fit(Job(model, images, teacher, settings=settings))


def test_evaluating_leaves_the_network_as_it_was() -> None:
    network = made()
    network[0].eval()
    modes = [module.training for module in network.modules()]
    errors = evaluate(network, batches())
    other = evaluate(network, batches(size=7))
    assert (errors.test_error, errors.test_images) == (other.test_error, 60)
    assert errors.test_loss == pytest.approx(other.test_loss)
    assert modes == [module.training for module in network.modules()]
