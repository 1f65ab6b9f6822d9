"""A trained network in, a small network that still works out: calibrate, plan, fit, correct, and decide."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from understudy._util.full_precision import full_precision
from understudy._util.guard import the_network
from understudy._util.modules import take_modes_
from understudy.layers import check_plain
from understudy.layers.opening import close_, opened
from understudy.planning.budget import Budget
from understudy.planning.plan import Plan
from understudy.planning.planner import plan as make_plan
from understudy.planning.request import AUTO, Request, Spatial, TransformChoice, assigned
from understudy.planning.sites import Include
from understudy.planning.worth import Worth
from understudy.students.substitute import substitute
from understudy.transforms.refine import FULL, QUICK, making

from .attempts import Attempts, Step, fitted
from .auto import Trials
from .calibrate import SAMPLES, calibrate, survey_of
from .calibration import Calibration
from .inputs import Batch, DataError, OutputOf, first_sample, held_back, joined, read_batches
from .lockstep import ApartError
from .running import Watch, pass_through
from .sequential import Refit
from .shifts import NORMS, find_shifts

_MEMORY = 4 * 10**9  # bytes of activations in the sequential pass
_ACTIVATIONS = 6  # of the largest size, alive at once in two networks


@dataclasses.dataclass(frozen=True, repr=False)
class Compression:
    """A student, and how it came to be; errors are of the outputs on inputs that were held back.

    >>> import torch, understudy as us
    >>> model, inputs = us.create_model("wrn_10_1"), torch.randn(16, 3, 16, 16)
    >>> done = us.compression(model, ratio=0.5, data=inputs, quick=True)
    >>> done.plan.params <= 0.5 * done.plan.dense_params
    True
    """

    student: nn.Module
    plan: Plan
    calibration: Calibration
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        kept = [step for step in self.steps if step.kept]
        told = f"{100 * kept[-1].error:.2f} % of the outputs lost" if kept else "nothing tried"
        return f"<Compression: {self.plan.params:,} of {self.plan.dense_params:,} parameters, {told}>"


def compress(
    model: nn.Module,
    transform: TransformChoice = "low_rank",
    *,
    data: Iterable[Any] | Tensor,
    **settings: Any,
) -> nn.Module:
    """A student of a trained `model` that meets a budget and whose outputs are near the original's.

    `data` is any iterable of unlabelled inputs, of which at most `samples` are used. Nothing is trained: the
    budget is spent where the outputs lose least by it, every stand-in is fitted in the metric of what its
    layer sees and of what its outputs are worth, then all layers again in the order in which they run; what
    does not bring the outputs nearer to the original's, on an eighth of the inputs that is held back, is
    undone. By the same inputs the last layer, excluded or not, is scaled and its bias moved. The model itself
    is not changed.

    The settings, a budget first of all, are those of `compression`, which tells the plan and what was tried.

    >>> import torch, understudy as us
    >>> student = us.compress(us.create_model("wrn_10_1"), ratio=0.5, data=torch.randn(16, 3, 16, 16))
    >>> sum(parameter.numel() for parameter in student.parameters()) <= 0.5 * 77_850
    True
    """
    return compression(model, transform, data=data, **settings).student


@torch.inference_mode(False)
@full_precision()
def compression(
    model: nn.Module,
    transform: TransformChoice = "low_rank",
    *,
    data: Iterable[Any] | Tensor,
    params: int | str | None = None,
    mult_adds: int | str | None = None,
    bytes: int | str | None = None,
    ratio: float | str | None = None,
    include: Include | None = None,
    exclude: Sequence[str] | None = None,
    spatial: Spatial = "auto",
    options: Mapping[str, str] | None = None,
    calibration: Calibration | None = None,
    samples: int = SAMPLES,
    output_of: OutputOf | None = None,
    quick: bool = False,
    seed: int = 0,
    watch: Watch = lambda *_: None,
) -> Compression:
    """As `compress`, with the plan, the calibration and what was tried.

    The budget is one of `params`, `mult_adds`, `bytes` and `ratio`; `include`, `exclude`, `spatial`,
    `options` and `seed` are as for `plan`. A `calibration` that was made before is used again. At most
    `samples` inputs are looked at; `output_of` takes the tensor to be kept of what the network returns, by
    default the first. `quick` makes less effort where a fit is a descent, and leaves out what is done before
    and after each layer is fitted to the data by itself: for a first look at many transforms. `watch` is told
    what is done, and how much of it.

    >>> import torch, understudy as us
    >>> inputs = torch.randn(16, 3, 16, 16)
    >>> done = us.compression(us.create_model("wrn_10_1"), "hashed", ratio=0.5, data=inputs)
    >>> [step.name for step in done.steps][:2]
    ['fitted to the weights alone', 'fitted to the data']
    """
    check_plain(the_network(model, copied=True, run=True))
    assigned(transform)  # tells of a wrong one before anything else is asked for
    asked = {"params": params, "mult_adds": mult_adds, "bytes": bytes, "ratio": ratio}
    budget = Budget.of(**asked, legal=list(asked))  # type: ignore[arg-type]
    batches = read_batches(data, samples)
    fitted_on, decided_on = held_back(batches)
    closed = copy.deepcopy(model).eval()
    original = opened(closed)
    known = calibration or calibrate(
        original,
        [batch.inputs for batch in fitted_on],
        include=include,
        exclude=exclude,
        samples=samples,
        output_of=output_of,
        seed=seed,
        watch=watch,
    )
    known.check_fits(original)
    survey = survey_of(closed, batches[0], include, exclude)
    request = Request.of(
        transform,
        budget,
        spatial=spatial,
        include=survey.include,
        exclude=exclude,
        options=options,
        seed=seed,
    )
    is_counted = survey.mult_adds is not None or budget.metric == "mult_adds"
    example = first_sample(batches[0]).inputs if is_counted else None

    def planned(family: str | None, worth: Worth) -> Plan:
        asked = request if family is None else dataclasses.replace(request, transform=request.only(family))
        return make_plan(closed, request=asked, example=example, calibration=worth, meta=False)

    def fit(plan: Plan, plain: nn.Module | None = None) -> nn.Module:
        with making(effort):
            start = substitute(original, plan, init="fresh") if plain is None else plain
            return fitted(start, original, plan, known, shifts)

    effort = QUICK if quick else FULL
    attempts = Attempts(original, decided_on, output_of)
    shifts = find_shifts(original, list(known.layers), first_sample(fitted_on[0]))
    watch("planning", 0, 3)
    is_auto = AUTO in request.transforms
    plan = Trials(known, planned, fit, attempts).run() if is_auto else planned(None, known)
    watch("fitting", 1, 3)
    plain = None if quick else substitute(original, plan)
    if plain is not None:
        attempts.consider("fitted to the weights alone", plain)
    attempts.consider("fitted to the data", fit(plan, plain))
    if quick or decided_on is fitted_on:  # one sample cannot be fitted and decide
        return Compression(_as_before(attempts.levelled, model), plan, known, tuple(attempts.steps))
    watch("fitting layer after layer", 2, 3)
    refit = Refit(original, joined(_within_memory(fitted_on, original)), shifts, known, seed)
    paths = [layer.path for layer in plan if layer.path in known.layers]
    start = attempts.best
    ways = {"fitted layer after layer": refit}
    if not all(shifts[path].exists for path in paths) and refit.norms:
        later = dataclasses.replace(refit, is_mean_left=True)
        ways["the same, means left to later batch norms"] = later
    for name, way in ways.items():
        try:
            attempts.consider(name, way.run(start, paths))
        except ApartError:  # a network that decides by values what runs: no pass, the fit before it stands
            attempts.note(name, math.inf, kept=False)
    again = _renormalised(attempts.best, fitted_on)
    if again is not None:
        attempts.consider("batch norms estimated again", again)
    return Compression(_as_before(attempts.levelled, model), plan, known, tuple(attempts.steps))


def _as_before(student: nn.Module, model: nn.Module) -> nn.Module:
    """The student with its layers closed again and every module in the mode of the original's."""
    return take_modes_(close_(student, model), model)


def _within_memory(batches: list[Batch], model: nn.Module) -> list[Batch]:
    """As many batches as two networks can hold the activations of at once; one at least."""
    samples = _MEMORY // (_ACTIVATIONS * 4 * _largest_activation(model, first_sample(batches[0])))
    kept = [batches[0]]
    for batch in batches[1:]:
        if sum(one.size for one in kept) + batch.size > samples:
            break
        kept.append(batch)
    return kept


@torch.no_grad()
def _largest_activation(model: nn.Module, batch: Batch) -> int:
    """The most numbers that a module gives."""
    sizes = [1]

    def note(_: nn.Module, __: Any, output: Any) -> None:
        sizes.extend(leaf.numel() for leaf in tree_leaves(output) if isinstance(leaf, Tensor))

    handles = [module.register_forward_hook(note) for module in model.modules()]
    try:
        pass_through(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    return max(sizes)


@torch.no_grad()
def _renormalised(student: nn.Module, batches: list[Batch]) -> nn.Module | None:
    """A copy whose batch norms have the statistics of what they see now; None where that cannot be told."""
    again = copy.deepcopy(student)
    norms, before = _norms(again), _norms(student)
    several = [batch for batch in batches if batch.size > 1]  # one sample has no variance
    if not norms or not several:
        return None
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over the batches
        norm.train()
    try:
        for batch in several:
            pass_through(again, batch)
    except DataError:  # a norm sees one value of each channel
        return None
    for norm, old in zip(norms, before, strict=True):
        norm.momentum = old.momentum
        if not norm.num_batches_tracked:  # no batch reaches it
            norm.load_state_dict(old.state_dict())
    return again.eval()


def _norms(network: nn.Module) -> list[nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d]:
    """The batch norms that keep statistics."""
    return [
        module for module in network.modules() if isinstance(module, NORMS) and module.track_running_stats
    ]
