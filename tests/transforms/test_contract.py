"""Every transform of the registry keeps every promise, and every check catches a class that does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import contract
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from contract import Case
from torch import Tensor, nn

import understudy as us
from understudy.counting.operations import UnknownOperationError
from understudy.deploy.graph import ExportError
from understudy.transforms import Transform
from understudy.transforms.acdc import Acdc
from understudy.transforms.hashed import Hashed
from understudy.transforms.low_rank import LowRank
from understudy.transforms.metric import Metric
from understudy.transforms.orders import Order
from understudy.transforms.refine import QUICK, making
from understudy.transforms.shuffle import Shuffle
from understudy.transforms.stages import Permute, Product, State

Check = Callable[[Case], None]

# Where the knob decides what runs: first, middle and last knob of every shape.
OF_A_KNOB: tuple[Check, ...] = (
    contract.check_every_order_is_the_matrix,
    contract.check_matrices_formed_at_once_are_those_formed_one_by_one,
    contract.check_an_order_says_whether_a_convolution_can_run_its_kernel,
    contract.check_gradients_of_all_orders_agree,
    contract.check_every_parameter_entry_receives_gradient,
    contract.check_stated_parameters_are_those_it_has,
    contract.check_stated_mult_adds_are_those_that_run,
    contract.check_its_own_matrix_is_recovered,
    contract.check_the_projection_is_never_worse_than_the_start,
)
# The middle knob of every shape.
OF_A_SHAPE: tuple[Check, ...] = (
    contract.check_lowered_modules_are_the_same_map_with_the_same_parameters,
    contract.check_any_leading_dimensions,
    contract.check_an_empty_batch_is_a_batch,
    contract.check_gradients_are_those_of_finite_differences,
    contract.check_a_pointwise_convolution_runs_the_stated_mult_adds,
    contract.check_costs_never_fall_as_the_knob_rises,
    contract.check_the_scale_spans_the_knobs,
    contract.check_the_formed_matrix_has_the_spread_asked_for,
    contract.check_the_projection_error_never_rises_with_the_knob,
    contract.check_the_projection_of_nothing_is_nothing,
    contract.check_the_fit_in_a_metric_is_never_worse_there_than_the_plain_one,
)
# What does not hang on the shape: one that is large enough to run in parts, and one that divides by nothing.
OF_A_CLASS: tuple[Check, ...] = (
    contract.check_an_illegal_order_is_refused_with_the_legal_ones,
    contract.check_a_wrong_width_is_refused,
    contract.check_an_illegal_knob_is_refused_with_the_legal_range,
    contract.check_an_illegal_size_is_refused,
    contract.check_no_spread_is_no_matrix_or_an_error,
    contract.check_a_seed_fixes_the_weights,
    contract.check_the_global_random_state_is_untouched,
    contract.check_the_ambient_defaults_do_not_change_the_draw,
    contract.check_a_state_dict_carries_the_whole_map,
    contract.check_copies_are_equal_and_apart,
    contract.check_every_floating_type_runs,
    contract.check_the_meta_device_holds_nothing_and_can_be_filled,
    contract.check_autocast_runs_and_is_near,
    contract.check_projection_takes_every_floating_type,
    contract.check_compile_finds_one_graph_and_agrees,
    contract.check_export_takes_any_batch,
    contract.check_onnx_runtime_agrees_for_any_batch,
)


def name(check: Check) -> str:
    return str(getattr(check, "__name__", check)).removeprefix("check_")


def leaves_weights_unused_by_its_own_account(case: Case) -> bool:
    return issubclass(case.transform, Hashed) and ("indexing", "independent") in case.options


def is_worth_compiling(case: Case) -> bool:
    """A layer of ACDC repeats its graph, slowly."""
    return case.knob <= 3 or not issubclass(case.transform, Acdc)


def applies(check: Check, case: Case) -> bool:
    if check is contract.check_every_parameter_entry_receives_gradient:
        return not leaves_weights_unused_by_its_own_account(case)
    if check is contract.check_gradients_are_those_of_finite_differences:
        return case.shape != contract.LARGE
    return True


def of_a_class(case: Case) -> bool:
    return case.is_middle and case.shape in (contract.LARGE, contract.PRIME)


COMPILERS = (contract.check_compile_finds_one_graph_and_agrees, contract.check_export_takes_any_batch)
ABOUT_THEMSELVES = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
EXPORTERS = (contract.check_onnx_runtime_agrees_for_any_batch,)
CASES = tuple(contract.cases())
SHAPES = tuple(case for case in CASES if case.is_middle)
CLASSES = tuple(case for case in CASES if of_a_class(case))
COMPILED = tuple(
    case if is_worth_compiling(case) else case.with_knob(min(case.knobs[-1], 3)) for case in CLASSES
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_transform_keeps_its_promises_at_every_knob(case: Case) -> None:
    for check in OF_A_KNOB:
        if applies(check, case):
            check(case)


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_every_transform_keeps_its_promises_for_every_shape(case: Case) -> None:
    with making(QUICK):  # what is promised of a descent is promised after few steps too
        for check in OF_A_SHAPE:
            if applies(check, case):
                check(case)


@pytest.mark.parametrize("case", CLASSES, ids=str)
def test_every_transform_keeps_its_promises_as_a_class(case: Case) -> None:
    with making(QUICK):
        for check in OF_A_CLASS:
            if check not in COMPILERS + EXPORTERS:
                check(case)


@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_every_transform_keeps_its_promises_to_compilers(case: Case) -> None:
    contract.check_export_takes_any_batch(case)
    if case.shape == contract.LARGE:  # the graphs of the other are the same, and compiling them is slow
        contract.check_compile_finds_one_graph_and_agrees(case)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning"
)  # of exporters, about themselves
def test_every_transform_keeps_its_promises_to_compilers_of_files() -> None:
    contract.onnx_runtime_agrees(*(case for case in COMPILED if case.shape == contract.PRIME))


@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex operators")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about itself
@pytest.mark.slow
def test_inductor_agrees_with_eager_on_a_network_of_all_kinds_of_stages() -> None:
    """Those of unlike stages: the code of each kind of stage is generated and compiled, for seconds each."""
    width = 12
    kinds = map(us.get_transform, ("shuffle", "tensor_train", "hashed", "block_circulant", "pivoted"))
    built = (kind(width, width, kind.knob_at(width, width, 0.2), seed=1) for kind in kinds)
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
    assert {*OF_A_KNOB, *OF_A_SHAPE, *OF_A_CLASS} == written
    assert {check for _, check, _ in BROKEN} == written


# ---- classes that break one promise each ---------------------------------------------------------


class AppliesAnotherMatrix(LowRank):
    def stages(self, order: str) -> State:
        return *super().stages(order), Product(2 * torch.eye(self.out_features, dtype=self.v.dtype))


class FormsTheFirstForAll(LowRank):
    @classmethod
    def matrices(cls, alike: Sequence[Transform]) -> Tensor:
        return torch.stack([alike[0].matrix() for _ in alike])


class FormsAMatrixOfTheWrongShape(LowRank):
    def matrix(self) -> Tensor:
        return super().matrix().reshape(1, -1)


class AppliesAnotherMatrixToColumns(LowRank):
    def apply_columns(self, state: State, x: Tensor) -> Tensor:
        return super().apply_columns(state, x.flip(0))


class PromisesAKernelThatItCannotRun(LowRank):
    def stages(self, order: str) -> State:
        return Permute((1, self.in_features), (0, 1)), *super().stages(order)


class LowersToAnotherMap(LowRank):
    def stages(self, order: str) -> State:
        probed = float(self.v.detach().abs().max()) > 1e9
        return Product(self.v.flip(0) if probed else self.v), *super().stages(order)[1:]


class TakesAnyOrder(LowRank):
    def legal_order(self, name: str) -> Order:
        known = {order.name: order for order in self.legal_orders}
        return known.get(name, self.legal_orders[0])


class RunsOnlyItsFormedOrder(LowRank):
    def stages(self, order: str) -> State:
        raise NotImplementedError(order)


class BendsTheLine(LowRank):
    def apply_rows(self, state: State, x: Tensor) -> Tensor:
        return super().apply_rows(state, x).relu()


class AddsAConstant(LowRank):
    def apply_rows(self, state: State, x: Tensor) -> Tensor:
        return super().apply_rows(state, x) + 1


class TakesOnlyAList(LowRank):
    def apply_rows(self, state: State, x: Tensor) -> Tensor:
        return torch.mm(torch.mm(x, self.v.T), self.u.T) if len(state) > 1 else super().apply_rows(state, x)


class TakesNoEmptyBatch(LowRank):
    def forward(self, x: Tensor) -> Tensor:
        rows = [super(TakesNoEmptyBatch, self).forward(row) for row in x.reshape(-1, self.in_features)]
        return torch.stack(rows).reshape(*x.shape[:-1], self.out_features)


class TakesAnyWidth(LowRank):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[..., : self.in_features])


class StopsTheGradient(LowRank):
    def stages(self, order: str) -> State:  # noqa: ARG002
        return Product(self.v.detach() + 0 * self.v), Product(self.u)


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        return 2 * gradients[0]


class DifferentiatesWrongly(LowRank):
    def apply_rows(self, state: State, x: Tensor) -> Tensor:
        same: Tensor = WrongGradient.apply(super().apply_rows(state, x))  # type: ignore[no-untyped-call]
        return same


class LeavesAnEntryIdle(LowRank):
    def stages(self, order: str) -> State:  # noqa: ARG002
        return Product(F.pad(self.v[:, 1:], (1, 0))), Product(self.u)

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
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        (order,) = super().orders(in_features, out_features, knob)
        return (order._replace(per_vector=order.per_vector - 1),)


class StatesWorkThatItDoesNotDoAhead(LowRank):
    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        (order,) = super().orders(in_features, out_features, knob)
        return (order._replace(per_call=1),)


class StatesThatFormingIsFree(LowRank):
    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:  # noqa: ARG003
        return 0


class StatesTheOrderItDoesNotTake(LowRank):
    @classmethod
    def executed_mult_adds(
        cls,
        in_features: int,
        out_features: int,
        knob: int,
        positions: int,
        area: int = 1,  # noqa: ARG003
    ) -> int:
        orders = cls.all_orders(in_features, out_features, knob)
        return max(order.mult_adds(positions) for order in orders)


class TakesTheDearerOrder(LowRank):
    def order_for(self, positions: int, area: int = 1) -> Order:  # noqa: ARG002
        return max(self.legal_orders, key=lambda order: order.mult_adds(positions))


class RunsAnOperationThatTheTraceDoesNotKnow(LowRank):
    def apply_rows(self, state: State, x: Tensor) -> Tensor:
        y = super().apply_rows(state, x)
        unknown: Tensor = torch.linalg.pinv(y[:, :1])
        return y + unknown.sum()


class MultipliesUnseenInAConvolution(Shuffle):
    def apply_columns(self, state: State, x: Tensor) -> Tensor:  # noqa: ARG002
        return self.matrix() @ x


class GetsCheaperAsTheKnobRises(LowRank):
    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        return super().orders(in_features, out_features, in_features + 1 - knob)


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

    def stages(self, order: str) -> State:  # noqa: ARG002
        return Product(self.v + self.nothing[:, None]), Product(self.u)


class KeepsStateOutsideTheStateDict(LowRank):
    def matrix(self) -> Tensor:
        return super().matrix() if self.seed % 2 else -super().matrix()

    def apply_rows(self, state: State, x: Tensor) -> Tensor:
        return super().apply_rows(state, x if self.seed % 2 else -x)


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
    def apply_rows(self, state: State, x: Tensor) -> Tensor:
        hidden = super().apply_rows(state, x)
        with torch.autocast("cpu", enabled=False):
            return F.linear(hidden, torch.eye(self.out_features))


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
    def apply_rows(self, state: State, x: Tensor) -> Tensor:
        print(end="")
        return super().apply_rows(state, x)


class CompilesToAnotherMap(LowRank):
    def apply_rows(self, state: State, x: Tensor) -> Tensor:
        return super().apply_rows(state, -x if torch.compiler.is_compiling() else x)


class LooksAtValues(LowRank):
    def order_for(self, positions: int, area: int = 1) -> Order:  # noqa: ARG002
        return self.legal_orders[int(bool(self.v.sum() > 0))] if positions else self.legal_orders[0]


class LooksAtTheBatch(LowRank):
    def order_for(self, positions: int, area: int = 1) -> Order:  # noqa: ARG002
        return self.legal_orders[1 if positions < 100 else 0]


class FormsByWhatOnnxLacks(LowRank):
    def matrix(self) -> Tensor:
        q, r = torch.linalg.qr(self.u)
        whole: Tensor = q @ (r @ self.v)
        return whole


class SpoilsTheFitInAMetric(LowRank):
    def fit_(self, matrix: Tensor, metric: Metric | None = None) -> None:
        super().fit_(matrix if metric is None else 2 * matrix)


BROKEN: tuple[tuple[type[Transform], Check, type[Exception]], ...] = (
    (
        SpoilsTheFitInAMetric,
        contract.check_the_fit_in_a_metric_is_never_worse_there_than_the_plain_one,
        AssertionError,
    ),
    (AppliesAnotherMatrix, contract.check_every_order_is_the_matrix, AssertionError),
    (FormsAMatrixOfTheWrongShape, contract.check_every_order_is_the_matrix, AssertionError),
    (
        FormsTheFirstForAll,
        contract.check_matrices_formed_at_once_are_those_formed_one_by_one,
        AssertionError,
    ),
    (AppliesAnotherMatrixToColumns, contract.check_every_order_is_the_matrix, AssertionError),
    (
        PromisesAKernelThatItCannotRun,
        contract.check_an_order_says_whether_a_convolution_can_run_its_kernel,
        AssertionError,
    ),
    (
        LowersToAnotherMap,
        contract.check_lowered_modules_are_the_same_map_with_the_same_parameters,
        AssertionError,
    ),
    (TakesAnyOrder, contract.check_an_illegal_order_is_refused_with_the_legal_ones, AssertionError),
    (RunsOnlyItsFormedOrder, contract.check_every_order_is_the_matrix, NotImplementedError),
    (BendsTheLine, contract.check_every_order_is_the_matrix, AssertionError),
    (AddsAConstant, contract.check_every_order_is_the_matrix, AssertionError),
    (TakesOnlyAList, contract.check_any_leading_dimensions, RuntimeError),
    (TakesNoEmptyBatch, contract.check_an_empty_batch_is_a_batch, RuntimeError),
    (TakesAnyWidth, contract.check_a_wrong_width_is_refused, AssertionError),
    (StopsTheGradient, contract.check_gradients_of_all_orders_agree, AssertionError),
    (
        DifferentiatesWrongly,
        contract.check_gradients_are_those_of_finite_differences,
        RuntimeError,
    ),
    (LeavesAnEntryIdle, contract.check_every_parameter_entry_receives_gradient, AssertionError),
    (StatesOtherParameters, contract.check_stated_parameters_are_those_it_has, AssertionError),
    (HoldsAnUnstatedParameter, contract.check_stated_parameters_are_those_it_has, AssertionError),
    (StatesFewerMultAdds, contract.check_stated_mult_adds_are_those_that_run, AssertionError),
    (StatesWorkThatItDoesNotDoAhead, contract.check_stated_mult_adds_are_those_that_run, AssertionError),
    (StatesThatFormingIsFree, contract.check_stated_mult_adds_are_those_that_run, AssertionError),
    (StatesTheOrderItDoesNotTake, contract.check_stated_mult_adds_are_those_that_run, AssertionError),
    (TakesTheDearerOrder, contract.check_stated_mult_adds_are_those_that_run, AssertionError),
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
    (LooksAtValues, contract.check_export_takes_any_batch, RuntimeError),
    (LooksAtTheBatch, contract.check_export_takes_any_batch, RuntimeError),
    (FormsByWhatOnnxLacks, contract.check_onnx_runtime_agrees_for_any_batch, ExportError),
)


@ABOUT_THEMSELVES
@pytest.mark.parametrize(
    ("broken", "check", "error"),
    BROKEN,
    ids=[f"{broken.__name__}-{name(check)}" for broken, check, _ in BROKEN],
)
def test_the_check_catches_a_class_that_breaks_its_promise(
    broken: type[Transform], check: Check, error: type[Exception]
) -> None:
    knob = {NeverDescends: 1, MultipliesUnseenInAConvolution: 3}.get(broken, 5)
    sound = Case(broken.__mro__[1], 12, 12, knob)
    check(sound)
    with pytest.raises(error):
        check(dataclasses.replace(sound, transform=broken))
