"""Every transform of the registry keeps every promise, and every check catches a class that does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import contract
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from contract import Case
from torch import Tensor, nn

from understudy.counting.operations import UnknownOperationError
from understudy.transforms import Acdc, Hashed, LowRank, Transform, known_transforms

Check = Callable[[Case], None]

OF_A_KNOB: tuple[Check, ...] = (
    contract.check_every_path_is_the_matrix,
    contract.check_columns_are_the_matrix,
    contract.check_factors_multiply_to_the_matrix,
    contract.check_map_is_linear,
    contract.check_any_leading_dimensions,
    contract.check_an_empty_batch_is_a_batch,
    contract.check_gradients_of_all_paths_agree,
    contract.check_every_parameter_entry_receives_gradient,
    contract.check_stated_parameters_are_those_it_has,
    contract.check_stated_mult_adds_are_those_that_run,
    contract.check_the_formed_matrix_has_the_spread_asked_for,
    contract.check_a_seed_fixes_the_weights,
    contract.check_the_global_random_state_is_untouched,
    contract.check_a_state_dict_carries_the_whole_map,
    contract.check_copies_are_equal_and_apart,
    contract.check_every_floating_type_runs,
    contract.check_the_meta_device_holds_nothing_and_can_be_filled,
    contract.check_autocast_runs_and_is_near,
    contract.check_its_own_matrix_is_recovered,
    contract.check_the_projection_is_never_worse_than_the_start,
)
OF_A_SHAPE: tuple[Check, ...] = (
    contract.check_a_pointwise_convolution_runs_the_stated_mult_adds,
    contract.check_a_wrong_width_is_refused,
    contract.check_costs_never_fall_as_the_knob_rises,
    contract.check_the_scale_spans_the_knobs,
    contract.check_an_illegal_knob_is_refused_with_the_legal_range,
    contract.check_an_illegal_size_is_refused,
    contract.check_no_spread_is_no_matrix_or_an_error,
    contract.check_the_ambient_defaults_do_not_change_the_draw,
    contract.check_the_projection_error_never_rises_with_the_knob,
    contract.check_the_projection_of_nothing_is_nothing,
    contract.check_projection_takes_every_floating_type,
)
OF_A_SMALL_MAP: tuple[Check, ...] = (contract.check_gradients_are_those_of_finite_differences,)
OF_A_COMPILED_MAP: tuple[Check, ...] = (
    contract.check_compile_finds_one_graph_and_agrees,
    contract.check_export_agrees,
    contract.check_export_takes_any_batch,
)


def name(check: Check) -> str:
    return str(getattr(check, "__name__", check)).removeprefix("check_")


def leaves_weights_unused_by_its_own_account(case: Case) -> bool:
    return issubclass(case.transform, Hashed) and ("indexing", "independent") in case.options


def is_worth_compiling(case: Case) -> bool:
    """The middle knob of every shape, the first of the square; a layer of ACDC repeats its graph, slowly."""
    middle = case.knob == case.knobs[len(case.knobs) // 2]
    typical = middle or (case.shape == (12, 12) and case.knob == case.knobs[0])
    return typical and (case.knob <= 3 or not issubclass(case.transform, Acdc))


CASES = tuple(contract.cases())
SHAPES = tuple(contract.one_case_a_shape())
SMALL = tuple(case for case in CASES if case.shape != contract.LARGE)
COMPILED = tuple(case for case in SMALL if is_worth_compiling(case))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("check", OF_A_KNOB, ids=name)
def test_every_transform_keeps_its_promise(check: Check, case: Case) -> None:
    if (
        check is contract.check_every_parameter_entry_receives_gradient
        and leaves_weights_unused_by_its_own_account(case)
    ):
        return
    check(case)


@pytest.mark.parametrize("case", SHAPES, ids=str)
@pytest.mark.parametrize("check", OF_A_SHAPE, ids=name)
def test_every_transform_keeps_its_promise_for_a_shape(check: Check, case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", SMALL, ids=str)
@pytest.mark.parametrize("check", OF_A_SMALL_MAP, ids=name)
def test_every_small_transform_keeps_its_promise(check: Check, case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", COMPILED, ids=str)
@pytest.mark.parametrize("check", OF_A_COMPILED_MAP, ids=name)
def test_every_transform_keeps_its_promise_to_compilers(check: Check, case: Case) -> None:
    check(case)


@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex operators")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about itself
def test_inductor_agrees_with_eager_on_a_network_of_all_transforms() -> None:
    width = 12
    built = (kind(width, width, kind.knob_at(width, width, 0.2), seed=1) for kind in known_transforms().values())
    network = nn.Sequential(*built)
    x = contract.vectors(5, width, dtype=torch.float32)
    torch.compiler.reset()
    results = []
    for run in (torch.compile(network, fullgraph=True), network):
        network.zero_grad()
        y = run(x)
        y.square().sum().backward()
        results.append([y, *(parameter.grad for parameter in network.parameters())])
    for compiled, eager in zip(*results, strict=True):
        assert compiled is not None
        assert eager is not None
        contract.assert_near(compiled, eager, 1e-4)


def test_every_check_of_the_contract_is_run_and_is_shown_to_catch_something() -> None:
    written = {getattr(contract, name) for name in vars(contract) if name.startswith("check_")}
    assert {*OF_A_KNOB, *OF_A_SHAPE, *OF_A_SMALL_MAP, *OF_A_COMPILED_MAP} == written
    assert {check for _, check, _ in BROKEN} == written


# ---- classes that break one promise each ---------------------------------------------------------


class AppliesAnotherMatrix(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        return super().structured(x) + super().structured(x)


class FormsAMatrixOfTheWrongShape(LowRank):
    def matrix(self) -> Tensor:
        return super().matrix().reshape(1, -1)


class AppliesAnotherMatrixToColumns(LowRank):
    def structured_columns(self, x: Tensor) -> Tensor:
        return super().structured_columns(x.flip(0))


class HasOtherFactors(LowRank):
    def factors(self) -> tuple[Tensor, Tensor]:
        return -self.v, self.u


class BendsTheLine(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        return super().structured(x).relu()


class AddsAConstant(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        return super().structured(x) + 1


class TakesOnlyAList(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        return torch.mm(torch.mm(x, self.v.T), self.u.T)


class TakesNoEmptyBatch(LowRank):
    def forward(self, x: Tensor) -> Tensor:
        rows = [super(TakesNoEmptyBatch, self).forward(row) for row in x.reshape(-1, self.in_features)]
        return torch.stack(rows).reshape(*x.shape[:-1], self.out_features)


class TakesAnyWidth(LowRank):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[..., : self.in_features])


class StopsTheGradient(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.v.detach()) + 0 * F.linear(x, self.v), self.u)


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        return 2 * gradients[0]


class DifferentiatesWronglyOnEveryPath(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        same: Tensor = WrongGradient.apply(super().structured(x))  # type: ignore[no-untyped-call]
        return same

    def matrix(self) -> Tensor:
        same: Tensor = WrongGradient.apply(super().matrix())  # type: ignore[no-untyped-call]
        return same


class LeavesAnEntryIdle(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x[..., 1:], self.v[:, 1:]), self.u)

    def matrix(self) -> Tensor:
        return F.pad(self.u @ self.v[:, 1:], (1, 0))


class StatesOtherParameters(LowRank):
    @classmethod
    def params(cls, in_features: int, out_features: int, knob: int) -> int:
        return super().params(in_features, out_features, knob) - 1


class HoldsAnUnstatedParameter(LowRank):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.bias = nn.Parameter(torch.zeros(()))


class StatesFewerMultAdds(LowRank):
    @classmethod
    def mult_adds(cls, in_features: int, out_features: int, knob: int, positions: int = 1) -> int:
        return super().mult_adds(in_features, out_features, knob, positions) - 1


class StatesThatFormingIsFree(LowRank):
    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:  # noqa: ARG003
        return 0


class StatesThePathItDoesNotTake(LowRank):
    @classmethod
    def executed_mult_adds(cls, in_features: int, out_features: int, knob: int, positions: int) -> int:
        return max(
            cls.mult_adds(in_features, out_features, knob, positions),
            cls.forming_mult_adds(in_features, out_features, knob) + positions * in_features * out_features,
        )


class TakesTheDearerPath(LowRank):
    @classmethod
    def prefers_structured(cls, in_features: int, out_features: int, knob: int, positions: int) -> bool:
        return not super().prefers_structured(in_features, out_features, knob, positions)


class RunsAnOperationThatTheTraceDoesNotKnow(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        y = super().structured(x)
        return y + torch.cdist(y[:0], y[:0]).sum()


class MultipliesUnseenInAConvolution(LowRank):
    def factors(self) -> None:  # type: ignore[override]
        return None

    def structured_columns(self, x: Tensor) -> Tensor:
        return self.matrix() @ x


class GetsCheaperAsTheKnobRises(LowRank):
    @classmethod
    def mult_adds(cls, in_features: int, out_features: int, knob: int, positions: int = 1) -> int:
        return super().mult_adds(in_features, out_features, in_features + 1 - knob, positions)


class HoldsFewerParametersAsTheKnobRises(LowRank):
    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> range:
        return range(min(in_features, out_features), 0, -1)


class ScalesBackwards(LowRank):
    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        return super().knob_at(in_features, out_features, 1 - scale)


class ScalesPastTheLastKnob(LowRank):
    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        return 1 + super().knob_at(in_features, out_features, scale)


class NeverReachesTheLastKnob(LowRank):
    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        return super().knob_at(in_features, out_features, scale / 2)


class AcceptsAnyKnob(LowRank):
    @classmethod
    def check_knob(cls, in_features: int, out_features: int, knob: int) -> None:
        pass


class CoercesTheKnob(LowRank):
    def __init__(self, in_features: int, out_features: int, knob: Any, **options: Any) -> None:
        super().__init__(in_features, out_features, int(knob), **options)


class CoercesTheSize(LowRank):
    def __init__(self, in_features: Any, out_features: Any, knob: int, **options: Any) -> None:
        super().__init__(max(8, int(in_features)), max(8, int(out_features)), knob, **options)


class RefusesWithoutAWord(LowRank):
    @classmethod
    def check_knob(cls, in_features: int, out_features: int, knob: int) -> None:
        try:
            super().check_knob(in_features, out_features, knob)
        except ValueError:
            raise ValueError(f"bad rank {knob!r}") from None


class DrawsTooWide(LowRank):
    def entry_std(self, std: float) -> float:
        return float(std**0.5)  # the rank is forgotten


class IgnoresTheSpreadAskedFor(LowRank):
    def reset_parameters(self, std: float | None = None, generator: torch.Generator | None = None) -> None:  # noqa: ARG002
        super().reset_parameters(None, generator)


class DrawsFromTheGlobalState(LowRank):
    def sample(self, shape: torch.Size, std: float, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        return torch.randn(shape) * self.entry_std(std)


class IgnoresItsSeed(LowRank):
    def reset_parameters(self, std: float | None = None, generator: torch.Generator | None = None) -> None:
        super().reset_parameters(std, generator or torch.Generator().manual_seed(0))


class SeedsTheGlobalState(LowRank):
    def reset_parameters(self, std: float | None = None, generator: torch.Generator | None = None) -> None:
        torch.manual_seed(self.seed)
        super().reset_parameters(std, generator)


class SeedsNumpy(LowRank):
    def reset_parameters(self, std: float | None = None, generator: torch.Generator | None = None) -> None:
        np.random.seed(self.seed)
        super().reset_parameters(std, generator)


class DrawsWhereverTheDefaultDeviceIs(LowRank):
    def sample(self, shape: torch.Size, std: float, generator: torch.Generator) -> Tensor:
        return torch.zeros(shape) + super().sample(shape, std, generator)


class KeepsAPlainTensor(LowRank):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.nothing = torch.zeros(self.knob, device=self.v.device, dtype=self.v.dtype)

    def structured(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.v) + self.nothing, self.u)


class KeepsStateOutsideTheStateDict(LowRank):
    def matrix(self) -> Tensor:
        return super().matrix() if self.seed % 2 else -super().matrix()

    def structured(self, x: Tensor) -> Tensor:
        return super().structured(x) if self.seed % 2 else -super().structured(x)


class SharesItsCopies(LowRank):
    def __deepcopy__(self, memo: dict[int, Any]) -> Transform:
        return self


class CannotBePickled(LowRank):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.same = lambda x: x


class ReadsItsWeightsToBeBuilt(LowRank):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.largest = float(self.v.detach().amax())


class ForgetsABufferOnReset(LowRank):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.nothing: Tensor
        self.register_buffer("nothing", torch.zeros(self.knob, device=self.v.device), persistent=False)

    def matrix(self) -> Tensor:
        return self.u @ (self.v + self.nothing[:, None])


class MixesTypesUnderAutocast(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        hidden = F.linear(x, self.v)
        with torch.autocast("cpu", enabled=False):
            return F.linear(hidden, self.u)


class ProjectsWorseAsTheKnobRises(LowRank):
    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        super().project_(matrix)
        keep = self.in_features // (2 * self.knob)
        self.v[keep:] = 0


class ProjectsToSomethingSmaller(LowRank):
    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        super().project_(matrix / 2)


class ProjectsToANewDraw(LowRank):
    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:  # noqa: ARG002
        self.reset_parameters(std=3.0)


class DividesByTheMatrix(LowRank):
    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        super().project_(matrix / matrix.norm())
        self.u.mul_(matrix.norm())


class ForgetsThatItWasRight(Acdc):
    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        self.reset_parameters(generator=torch.Generator().manual_seed(8))
        super().project_(matrix)


class NeverDescends(Acdc):
    def project_(self, matrix: Tensor) -> None:
        pass


class ProjectsOnlyItsOwnType(LowRank):
    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        u, _, _ = torch.linalg.svd(matrix)
        self.u.copy_(u[:, : self.knob])
        self.v.copy_(u[:, : self.knob].T @ matrix)


class Prints(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        print(end="")
        return super().structured(x)


class CompilesToAnotherMap(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        return -super().structured(x) if torch.compiler.is_compiling() else super().structured(x)


class LooksAtValues(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        return super().structured(x) if bool(x.sum() > 0) else F.linear(x, self.matrix())


class LooksAtTheBatch(LowRank):
    def structured(self, x: Tensor) -> Tensor:
        return super().structured(x) if x.shape[0] < 100 else F.linear(x, self.matrix())


BROKEN: tuple[tuple[type[Transform], Check, type[Exception]], ...] = (
    (AppliesAnotherMatrix, contract.check_every_path_is_the_matrix, AssertionError),
    (FormsAMatrixOfTheWrongShape, contract.check_every_path_is_the_matrix, AssertionError),
    (AppliesAnotherMatrixToColumns, contract.check_columns_are_the_matrix, AssertionError),
    (HasOtherFactors, contract.check_factors_multiply_to_the_matrix, AssertionError),
    (BendsTheLine, contract.check_map_is_linear, AssertionError),
    (AddsAConstant, contract.check_map_is_linear, AssertionError),
    (TakesOnlyAList, contract.check_any_leading_dimensions, RuntimeError),
    (TakesNoEmptyBatch, contract.check_an_empty_batch_is_a_batch, RuntimeError),
    (TakesAnyWidth, contract.check_a_wrong_width_is_refused, AssertionError),
    (StopsTheGradient, contract.check_gradients_of_all_paths_agree, AssertionError),
    (
        DifferentiatesWronglyOnEveryPath,
        contract.check_gradients_are_those_of_finite_differences,
        RuntimeError,
    ),
    (LeavesAnEntryIdle, contract.check_every_parameter_entry_receives_gradient, AssertionError),
    (StatesOtherParameters, contract.check_stated_parameters_are_those_it_has, AssertionError),
    (HoldsAnUnstatedParameter, contract.check_stated_parameters_are_those_it_has, AssertionError),
    (StatesFewerMultAdds, contract.check_stated_mult_adds_are_those_that_run, AssertionError),
    (StatesThatFormingIsFree, contract.check_stated_mult_adds_are_those_that_run, AssertionError),
    (StatesThePathItDoesNotTake, contract.check_stated_mult_adds_are_those_that_run, AssertionError),
    (TakesTheDearerPath, contract.check_stated_mult_adds_are_those_that_run, AssertionError),
    (
        RunsAnOperationThatTheTraceDoesNotKnow,
        contract.check_stated_mult_adds_are_those_that_run,
        UnknownOperationError,
    ),
    (
        MultipliesUnseenInAConvolution,
        contract.check_a_pointwise_convolution_runs_the_stated_mult_adds,
        AssertionError,
    ),
    (GetsCheaperAsTheKnobRises, contract.check_costs_never_fall_as_the_knob_rises, AssertionError),
    (HoldsFewerParametersAsTheKnobRises, contract.check_costs_never_fall_as_the_knob_rises, AssertionError),
    (ScalesBackwards, contract.check_the_scale_spans_the_knobs, AssertionError),
    (ScalesPastTheLastKnob, contract.check_the_scale_spans_the_knobs, ValueError),
    (NeverReachesTheLastKnob, contract.check_the_scale_spans_the_knobs, AssertionError),
    (AcceptsAnyKnob, contract.check_an_illegal_knob_is_refused_with_the_legal_range, AssertionError),
    (CoercesTheKnob, contract.check_an_illegal_knob_is_refused_with_the_legal_range, AssertionError),
    (RefusesWithoutAWord, contract.check_an_illegal_knob_is_refused_with_the_legal_range, AssertionError),
    (CoercesTheSize, contract.check_an_illegal_size_is_refused, AssertionError),
    (DrawsTooWide, contract.check_the_formed_matrix_has_the_spread_asked_for, AssertionError),
    (IgnoresTheSpreadAskedFor, contract.check_the_formed_matrix_has_the_spread_asked_for, AssertionError),
    (IgnoresTheSpreadAskedFor, contract.check_no_spread_is_no_matrix_or_an_error, AssertionError),
    (DrawsFromTheGlobalState, contract.check_a_seed_fixes_the_weights, AssertionError),
    (IgnoresItsSeed, contract.check_a_seed_fixes_the_weights, AssertionError),
    (DrawsFromTheGlobalState, contract.check_the_global_random_state_is_untouched, AssertionError),
    (SeedsTheGlobalState, contract.check_the_global_random_state_is_untouched, AssertionError),
    (SeedsNumpy, contract.check_the_global_random_state_is_untouched, AssertionError),
    (
        DrawsWhereverTheDefaultDeviceIs,
        contract.check_the_ambient_defaults_do_not_change_the_draw,
        RuntimeError,
    ),
    (KeepsStateOutsideTheStateDict, contract.check_a_state_dict_carries_the_whole_map, AssertionError),
    (SharesItsCopies, contract.check_copies_are_equal_and_apart, AssertionError),
    (CannotBePickled, contract.check_copies_are_equal_and_apart, AttributeError),
    (KeepsAPlainTensor, contract.check_every_floating_type_runs, RuntimeError),
    (ReadsItsWeightsToBeBuilt, contract.check_the_meta_device_holds_nothing_and_can_be_filled, RuntimeError),
    (ForgetsABufferOnReset, contract.check_the_meta_device_holds_nothing_and_can_be_filled, AssertionError),
    (MixesTypesUnderAutocast, contract.check_autocast_runs_and_is_near, RuntimeError),
    (
        ProjectsWorseAsTheKnobRises,
        contract.check_the_projection_error_never_rises_with_the_knob,
        AssertionError,
    ),
    (ProjectsToSomethingSmaller, contract.check_its_own_matrix_is_recovered, AssertionError),
    (ForgetsThatItWasRight, contract.check_its_own_matrix_is_recovered, AssertionError),
    (NeverDescends, contract.check_its_own_matrix_is_recovered, AssertionError),
    (ProjectsToANewDraw, contract.check_the_projection_is_never_worse_than_the_start, AssertionError),
    (DividesByTheMatrix, contract.check_the_projection_of_nothing_is_nothing, RuntimeError),
    (ProjectsOnlyItsOwnType, contract.check_projection_takes_every_floating_type, RuntimeError),
    (Prints, contract.check_compile_finds_one_graph_and_agrees, RuntimeError),
    (CompilesToAnotherMap, contract.check_compile_finds_one_graph_and_agrees, AssertionError),
    (LooksAtValues, contract.check_export_agrees, RuntimeError),
    (LooksAtTheBatch, contract.check_export_takes_any_batch, RuntimeError),
)


@pytest.mark.parametrize(
    ("broken", "check", "error"),
    BROKEN,
    ids=[f"{broken.__name__}-{name(check)}" for broken, check, _ in BROKEN],
)
def test_the_check_catches_a_class_that_breaks_its_promise(
    broken: type[Transform], check: Check, error: type[Exception]
) -> None:
    sound = Case(Acdc if issubclass(broken, Acdc) else LowRank, 12, 12, 1 if broken is NeverDescends else 4)
    check(sound)
    with pytest.raises(error):
        check(dataclasses.replace(sound, transform=broken))
