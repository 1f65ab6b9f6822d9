"""Compression of networks and data that are plausible and odd: each works, or is refused with the reason."""

from __future__ import annotations

import copy
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

import understudy as us
from understudy.counting.operations import UnknownOperationError
from understudy.data.found import find_data
from understudy.distil.guidance import SelfGuidance
from understudy.experiments.quality import Yardstick
from understudy.fitting.attempts import Attempts
from understudy.fitting.calibrate import POSITIONS
from understudy.fitting.inputs import DataError, joined, read_batches
from understudy.fitting.moments import Moments
from understudy.fitting.shifts import find_shifts
from understudy.planning.budget import Budget
from understudy.planning.request import Request
from understudy.train import recover
from understudy.transforms.metric import Metric


def mlp(*, inplace: bool = False) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, second, third, head = (nn.Linear(*shape) for shape in ((12, 32), (32, 32), (32, 32), (32, 5)))
    acts = [nn.ReLU(inplace) for _ in range(3)]
    return nn.Sequential(first, acts[0], second, acts[1], third, acts[2], head).eval()


def inputs(count: int = 64) -> Tensor:
    return torch.randn(count, 12, generator=torch.Generator().manual_seed(3))


def test_outputs_that_are_not_finite_are_refused_and_nothing_dense_is_returned() -> None:
    x = inputs()
    x[-1] = float("nan")
    with pytest.raises(DataError, match="the original's outputs hold NaN or infinity"):
        us.compress(mlp(), ratio=0.5, data=x)


def test_moments_about_a_large_mean_keep_what_is_small_beside_it() -> None:
    x = 3000 + torch.randn(2000, 6, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.01, 1, 6)
    moments = Moments(6, 2)
    for part in x.split(500):
        moments.add(part, part[:, :2])
    torch.testing.assert_close(
        moments.covariance, torch.cov(x.double().T, correction=0), rtol=1e-3, atol=1e-6
    )
    torch.testing.assert_close(moments.cross, moments.covariance[:2], rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(moments.mean, x.double().mean(0), rtol=1e-9, atol=0)
    torch.linalg.cholesky(moments.covariance)


class Writing(nn.Module):
    """Normalises what it is given, in place or not."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.body, self.in_place = mlp(), in_place

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            x -= 0.5
            x /= 0.25
        else:
            x = (x - 0.5) / 0.25
        logits: Tensor = self.body(x)
        return logits


def test_a_network_may_write_to_its_inputs_and_the_data_stay_as_they_are() -> None:
    x = inputs()
    apart = us.compress(Writing(in_place=False), ratio=0.5, data=x)
    model = Writing(in_place=True).eval()
    student = us.compress(model, ratio=0.5, data=x)
    us.speed({"model": model, "student": student}, x, seconds=0.01)
    recovered = recover(student, model, x, epochs=2, settings={"batch_size": 32})
    assert torch.equal(x, inputs())
    for mine, wanted in zip(student.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(mine, wanted)
    plain = recover(apart, Writing(in_place=False), x, epochs=2, settings={"batch_size": 32})
    with torch.no_grad():
        torch.testing.assert_close(recovered.network(x.clone()), plain.network(x))


class Naming(nn.Module):
    """Calls its layers with their input by name, or not."""

    def __init__(self, *, by_name: bool) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.up = nn.Conv2d(3, 16, 3, bias=False), nn.ConvTranspose2d(16, 16, 2)
            self.norm, self.hidden, self.head = nn.BatchNorm2d(16), nn.Linear(16, 32), nn.Linear(32, 5)
        self.by_name = by_name

    def forward(self, x: Tensor) -> Tensor:
        def call(layer: nn.Module, given: Tensor) -> Tensor:
            out: Tensor = layer(input=given) if self.by_name else layer(given)
            return out

        x = call(self.up, call(self.norm, call(self.conv, x)).relu())
        return call(self.head, call(self.hidden, x.mean((2, 3))).relu())


def test_layers_that_are_called_by_name_are_compressed_tuned_and_guided_as_others() -> None:
    x = torch.randn(64, 3, 6, 6, generator=torch.Generator().manual_seed(3))
    kept = []
    for by_name in (False, True):
        made = us.compression(Naming(by_name=by_name).eval(), ratio=0.6, data=x)
        student = us.tune(made.student, x[:2], seconds=0.001)
        guided, losses = copy.deepcopy(student).train(), []
        guidance = SelfGuidance(guided)
        for share in (1.0, 0.5):
            guidance.share = share
            losses.append(guided(x).square().mean())
        kept.append((str(made.plan), student(x), torch.stack(losses)))
    assert kept[0][0] == kept[1][0]
    torch.testing.assert_close(kept[1][1:], kept[0][1:])


class Frozen(nn.Module):
    """Its body is computed without gradients, or not."""

    def __init__(self, *, off: bool) -> None:
        super().__init__()
        self.body, self.off = mlp(), off

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(not self.off and torch.is_grad_enabled()):
            hidden = self.body[:5](x)
        with torch.no_grad():
            logits: Tensor = self.body[5:](hidden)
        return logits


def test_what_a_network_computes_without_gradients_is_worth_as_much() -> None:
    known = {off: us.calibrate(Frozen(off=off), inputs()) for off in (False, True)}
    whole = us.calibrate(mlp(), inputs())
    for path, seen in whole.layers.items():
        assert seen.gradient is not None
        assert float(seen.gradient.norm()) > 0
        for calibration in known.values():
            gradient = calibration.layers[f"body.{path}"].gradient
            assert gradient is not None
            torch.testing.assert_close(gradient, seen.gradient)


def test_a_network_that_checkpoints_its_activations_is_calibrated_as_another() -> None:
    class Checkpointing(nn.Module):
        def __init__(self, *, on: bool) -> None:
            super().__init__()
            self.body, self.on = mlp(), on

        def forward(self, x: Tensor) -> Tensor:
            first, rest = self.body[:5], self.body[5:]
            x = checkpoint(first, x, use_reentrant=False) if self.on else first(x)
            logits: Tensor = rest(x)
            return logits

    plain, found = (us.calibrate(Checkpointing(on=on), inputs()) for on in (False, True))
    for path, seen in plain.layers.items():
        torch.testing.assert_close(found.layers[path].gradient, seen.gradient)


def test_what_needs_gradients_to_be_off_is_calibrated_as_it_runs() -> None:
    class Numbers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.body[:4](x)
            with torch.no_grad():
                largest = float(hidden.abs().max().numpy())
            logits: Tensor = self.body[4:](hidden / largest)
            return logits

    known = us.calibrate(Numbers(), inputs())
    assert not known.unreached
    assert known.layers["body.0"].gradient is not None


def test_a_layer_may_be_given_a_lone_vector() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.body = nn.Linear(12, 12), mlp()

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.body(x * self.scale(x.mean(0)).sigmoid())
            return logits

    calibration = us.calibrate(Pooled(), inputs().split(16))
    assert calibration.layers["scale"].count == 4
    assert us.compress(Pooled(), ratio=0.8, data=inputs())(inputs()).shape == (64, 5)


class HeadFirst(nn.Module):
    """Registers its last layer first, and gives a second output that nobody asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.beside, self.body = nn.Linear(32, 5), nn.Linear(32, 6), mlp()[:6]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(x)
        return self.head(hidden), self.beside(hidden)


def test_a_plan_takes_the_layers_that_the_calibration_saw_run() -> None:
    model = HeadFirst()
    known = us.calibrate(model, inputs())
    assert set(known.paths) == {"body.0", "body.2", "body.4", "head"}  # the last one that runs is left
    plan = us.plan(model, "low_rank", ratio=0.7, calibration=known)
    assert {layer.path for layer in plan} <= set(known.paths)
    with pytest.raises(ValueError, match="knows no layer 'beside': calibrate again"):
        us.plan(model, "low_rank", ratio=0.7, calibration=known, include=["body.*", "beside"])
    request = Request.of("low_rank", Budget.of(ratio=0.7), include=("body.*", "beside"))
    with pytest.raises(ValueError, match="knows no layer 'beside': calibrate again"):
        us.plan(model, request=request, calibration=known)
    with pytest.raises(ValueError, match=r"knows no layer .*: calibrate again"):
        us.plan(model, "low_rank", ratio=0.7, calibration=us.calibrate(mlp(), inputs()))
    with pytest.raises(TypeError, match="needs the trained network itself"):
        us.plan(us.sites(model), "low_rank", ratio=0.7, calibration=known)


def test_layers_that_no_gradient_reaches_are_named() -> None:
    class Second(HeadFirst):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.body(x), self.head(self.body(x))

    told = us.compression(Second(), ratio=0.8, data=inputs(), include=["head", "body.*"]).plan.remarks
    assert any("no gradient of the output came to head: " in remark for remark in told)
    both = us.compression(
        Second(),
        ratio=0.8,
        data=inputs(),
        include=["head", "body.*"],
        output_of=lambda returned: torch.cat(returned, 1),
    )
    assert not any("no gradient" in remark for remark in both.plan.remarks)


def test_autocast_around_a_compression_changes_nothing() -> None:
    student = us.compress(mlp(), ratio=0.5, data=inputs())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = us.compress(mlp(), ratio=0.5, data=inputs())
        assert torch.is_autocast_enabled("cpu")
    for mine, wanted in zip(within.parameters(), student.parameters(), strict=True):
        assert torch.equal(mine, wanted)


def test_the_budgets_that_compress_takes_are_named() -> None:
    with pytest.raises(ValueError, match="one of params, mult_adds, bytes and ratio; got none"):
        us.compress(mlp(), data=inputs())


def test_activations_in_place_change_no_gradient() -> None:
    apart, in_place = (us.calibrate(mlp(inplace=inplace), inputs()) for inplace in (False, True))
    for path, seen in apart.layers.items():
        assert seen.gradient is not None
        other = in_place.layers[path].gradient
        assert other is not None
        torch.testing.assert_close(other, seen.gradient)


def test_a_layer_that_does_not_reach_the_outputs_is_worth_nothing() -> None:
    class Aside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()
            self.aside = nn.Linear(12, 32)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.body(x), F.relu(self.aside(x))

    model = Aside()
    chosen = ["body.2", "aside"]
    known = us.calibrate(model, inputs(), include=chosen)
    plan = us.plan(model, "low_rank", ratio=0.8, include=chosen, calibration=known)
    assert plan["aside"].params < plan["body.2"].params


def test_a_calibration_of_another_network_is_refused() -> None:
    known = us.calibrate(mlp(), inputs())
    with pytest.raises(ValueError, match="knows no layer '6': calibrate again"):
        us.plan(mlp(), "low_rank", ratio=0.5, include=["*"], calibration=known)
    with pytest.raises(ValueError, match="knows '0', which HeadFirst lacks: calibrate again"):
        us.compress(HeadFirst(), ratio=0.5, data=inputs(), calibration=known)
    wider = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 32))
    with pytest.raises(ValueError, match="is of another '2'"):
        us.plan(wider, "low_rank", ratio=0.9, include=["2"], calibration=known)


def test_a_plan_is_made_anew_when_weights_have_changed() -> None:
    model = mlp()
    known = us.calibrate(model, inputs())
    before = us.plan(model, "low_rank", ratio=0.6, calibration=known)
    with torch.no_grad():
        model.get_parameter("4.weight").mul_(100)
    assert us.plan(model, "low_rank", ratio=0.6, calibration=known).layers != before.layers


def test_a_network_that_decides_by_values_what_runs_is_compressed_without_the_pass() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)
            self.third, self.head = nn.Linear(12, 12), nn.Linear(12, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.tanh(self.second(torch.tanh(self.first(x))))
            if any(True for _ in us.stand_ins(self.second)):  # a student goes on where the original ends
                x = self.third(x)
            logits: Tensor = self.head(x)
            return logits

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Early()
    done = us.compression(model, "low_rank", ratio=0.6, data=inputs(32), include=["second", "third"])
    assert done.plan["second"].spec is not None
    assert [step.kept for step in done.steps if step.name == "fitted layer after layer"] == [False]


class Experts(nn.Module):
    """Each sample goes to one of four layers."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.router, self.head = nn.Linear(12, 4), nn.Linear(12, 3)
            self.experts = nn.ModuleList(nn.Linear(12, 12) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        chosen, y = self.router(x).argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            y[chosen == number] = expert(x[chosen == number])
        logits: Tensor = self.head(x + y)
        return logits


def test_experts_that_are_given_other_samples_in_the_student_are_compressed_without_the_pass() -> None:
    done = us.compression(Experts().eval(), ratio=0.6, data=inputs())
    assert [step.error for step in done.steps if step.name == "fitted layer after layer"] == [float("inf")]


def test_an_expert_that_is_given_no_sample_is_idle() -> None:
    model = Experts()
    with torch.no_grad():
        model.router.bias[1] -= 100
    assert us.calibrate(model, inputs()).idle == ("experts.1",)


def test_a_network_with_an_operation_that_cannot_be_counted_is_compressed() -> None:
    class Uncounted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: Tensor) -> Tensor:
            largest = torch.linalg.svdvals(x.reshape(-1, 3, 4))[:, :1]
            logits: Tensor = self.body(x / largest)
            return logits

    with pytest.raises(UnknownOperationError):
        us.cost(Uncounted(), inputs(1))
    done = us.compression(Uncounted().eval(), ratio=0.6, data=inputs())
    assert "fitted layer after layer" in [step.name for step in done.steps]


def test_one_sample_is_not_fitted_to_the_point_of_a_constant() -> None:
    model = us.create_model("wrn_10_1").eval()
    done = us.compression(model, ratio=0.5, data=torch.randn(1, 3, 16, 16))
    with torch.no_grad():
        outputs = done.student(torch.randn(8, 3, 16, 16))
    assert float(outputs.std(0).mean()) > 1e-4
    assert "fitted layer after layer" not in [step.name for step in done.steps]


def test_batches_of_one_are_no_batches_for_batch_norms() -> None:
    model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.Linear(32, 32), nn.Linear(32, 3))
    done = us.compression(model.eval(), ratio=0.6, data=inputs(16).split(1))
    assert "batch norms estimated again" not in [step.name for step in done.steps]


class Aside(nn.Module):
    """Has a head that runs where it is asked for, and a norm of the mean of its whole batch where that is."""

    def __init__(self, *, of_the_batch: bool) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.norm, self.hidden = nn.Linear(12, 24), nn.BatchNorm1d(24), nn.Linear(24, 24)
            self.head, self.aside, self.beside = nn.Linear(24, 3), nn.BatchNorm1d(24), nn.Linear(24, 3)
        self.of_the_batch = of_the_batch
        self.aside.running_mean.fill_(5)  # type: ignore[union-attr]

    def forward(self, x: Tensor, *, aside: bool = False) -> Tensor:
        x = self.hidden(self.norm(self.first(3 * x + 1)).relu())
        if self.of_the_batch:
            x = x + self.aside(x.mean(0, keepdim=True))
        found: Tensor = self.beside(self.aside(x)) if aside else self.head(x.relu())
        return found


def test_batch_norms_that_no_batch_reaches_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = itertools.count(0, -1)
    monkeypatch.setattr(Attempts, "_error", lambda *_: float(next(errors)))  # every step is kept
    model = Aside(of_the_batch=False).eval()
    done = us.compression(model, ratio=0.7, data=inputs(), include=["first", "hidden"])
    assert done.steps[-1].name == "batch norms estimated again"
    assert not torch.equal(done.student.get_buffer("norm.running_mean"), torch.zeros(24))
    for name, buffer in model.aside.named_buffers():
        assert torch.equal(done.student.get_buffer(f"aside.{name}"), buffer)


def test_batch_norms_that_see_one_value_are_not_estimated_again() -> None:
    model = Aside(of_the_batch=True).eval()
    done = us.compression(model, ratio=0.7, data=inputs(), include=["first", "hidden"])
    assert "batch norms estimated again" not in [step.name for step in done.steps]


def test_a_network_may_return_what_it_likes() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: Tensor) -> Any:
            return SimpleNamespace(logits=self.body(x))

    student = us.compress(Wrapped(), ratio=0.5, data=inputs(), output_of=lambda found: found.logits)
    assert student(inputs()).logits.shape == (64, 5)


def test_a_network_in_inference_mode_is_calibrated_without_gradients() -> None:
    class Off(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        @torch.inference_mode()
        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.body(x)
            return logits

    assert {seen.gradient for seen in us.calibrate(Off(), inputs()).layers.values()} == {None}
    model, x = mlp(), inputs()
    with torch.inference_mode():
        us.calibrate(model, x)


def test_a_student_is_in_the_mode_of_each_module_of_the_original() -> None:
    model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.Linear(32, 32), nn.Linear(32, 3)).train()
    model[1].eval()
    student = us.compress(model, ratio=0.7, data=inputs())
    assert student.training
    assert [module.training for module in student.children()] == [True, False, True, True]
    assert model.training


def test_a_norm_with_parts_takes_a_mean_and_a_shared_one_does_not() -> None:
    class WithPart(nn.BatchNorm1d):
        def __init__(self) -> None:
            super().__init__(32)
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.act(super().forward(x))
            return found

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(12, 32, bias=False), nn.Linear(32, 32, bias=False)
            self.third, self.shared, self.own = nn.Linear(32, 32, bias=False), nn.BatchNorm1d(32), WithPart()

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.shared(self.third(self.shared(self.second(self.own(self.first(x))))))
            return found

    found = find_shifts(Net().eval(), ["first", "second", "third"], read_batches(inputs(2), 2)[0])
    assert [found[path].norm for path in ("first", "second", "third")] == ["own", "", ""]


def test_batches_that_do_not_go_together_are_not_joined() -> None:
    sizes = [torch.zeros(2, 3, 8, 8), torch.zeros(2, 3, 12, 12), torch.zeros(1, 3, 8, 8)]
    assert joined(read_batches(sizes, 9)).size == 3
    tokens = [{"input_ids": torch.ones(2, length, dtype=torch.long)} for length in (4, 9, 4)]
    assert joined(read_batches(tokens, 9)).size == 4
    masked = [{**one, "attention_mask": torch.ones_like(one["input_ids"])} for one in tokens]
    whole = joined(read_batches(masked, 9))
    assert whole.size == 6
    assert whole.mask is not None
    assert int(whole.mask.sum()) == 2 * (4 + 9 + 4)


def test_what_belongs_to_all_samples_is_once_in_a_joined_batch_and_the_same_for_all() -> None:
    def batch(size: int = 4, scale: float = 1.0, **other: Any) -> dict[str, Any]:
        beside = {"own": torch.zeros(size, 2), "all": torch.full((1, 3), scale)}
        return {"factor": torch.tensor(scale), "x": torch.zeros(size, 3), "beside": beside, **other}

    whole = joined(read_batches([batch(), batch(2), batch(scale=2.0), batch(beside={}), batch(1)], 99))
    assert whole.size == 6
    assert isinstance(whole.inputs, dict)
    shapes = tree_map(lambda leaf: tuple(leaf.shape), whole.inputs)
    assert shapes == {"factor": (), "x": (6, 3), "beside": {"own": (6, 2), "all": (1, 3)}}
    counted = joined(read_batches([batch(n=1), batch(n=2), batch(n=1), batch(n=None)], 99))
    assert counted.size == 8


@pytest.mark.parametrize("shape", [(), (12,), (1, 7, 12), (7, 12)])
def test_a_dictionary_may_hold_what_belongs_to_all_samples(shape: tuple[int, ...]) -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: Tensor, place: Tensor) -> Tensor:
            logits: Tensor = self.body(x + place)
            return logits

    tokens, place = inputs(7 * 16).reshape(16, 7, 12), torch.full(shape, 0.5)
    batches = [{"x": x, "place": place} for x in tokens.split(4)]
    if not shape:  # which has no samples to count
        batches = [dict(reversed(batch.items())) for batch in batches]
    done = us.compression(Placed().eval(), ratio=0.6, data=batches)
    assert done.calibration.samples == 14  # two are held back
    assert done.steps[-1].error < 1


@pytest.mark.parametrize("lengths", [(20, 100), (100, 80)])
def test_a_mask_of_one_sequence_says_nothing_of_another(lengths: tuple[int, int]) -> None:
    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.write, self.head = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 3)

        def forward(self, x: Tensor, attention_mask: Tensor, decoder_x: Tensor) -> Tensor:
            seen = (self.read(x) * attention_mask[..., None]).mean(1, keepdim=True)
            logits: Tensor = self.head(self.write(decoder_x + seen).relu())
            return logits

    read, written = lengths
    mask = torch.ones(2, read)
    mask[:, 5:] = 0
    batch = {"x": torch.randn(2, read, 12), "attention_mask": mask, "decoder_x": torch.randn(2, written, 12)}
    found = us.calibrate(Translator(), [batch], gradients=False)
    assert found.layers["read"].count <= 2 * 5
    assert found.layers["write"].count == 2 * POSITIONS


@pytest.mark.parametrize("budget", [{"scale": 0.4}, {"knob": 4}])
def test_a_calibration_spends_a_budget_and_no_knob(budget: dict[str, Any]) -> None:
    known = us.calibrate(mlp(), inputs())
    with pytest.raises(ValueError, match="give params, mult_adds, bytes or ratio, not"):
        us.plan(mlp(), "auto", calibration=known, **budget)


def test_samples_are_at_least_one() -> None:
    with pytest.raises(DataError, match="samples is 0, not at least 1"):
        us.calibrate(mlp(), inputs(), samples=0)


def test_a_loader_is_read_once_and_one_that_shuffles_is_refused(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = mlp(), inputs()
    yardstick = Yardstick(model, iter(x.split(16)))
    assert yardstick.of(model).agreement == 100
    (tmp_path / "shuffled.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "def make(): return DataLoader(torch.randn(64, 12), 8, shuffle=True)\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="a DataLoader that shuffles"):
        find_data("shuffled.py:make")


def test_a_moment_that_rounding_took_below_nothing_makes_a_metric_that_can_be_inverted() -> None:
    eigenvalues = torch.zeros(1024, dtype=torch.float64)
    eigenvalues[:2] = torch.tensor([1.0, -2e-7])  # one direction has all, as of a few nearly equal inputs
    root = Metric.of(torch.diag(eigenvalues)).in_root
    assert torch.isfinite(root).all()
