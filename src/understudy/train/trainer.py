"""The moving parts of a run, and how one step is taken."""

from __future__ import annotations

import collections
import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from understudy._util.layouts import lay_channels_last_
from understudy.distil.decay import Policy
from understudy.distil.frobenius import frobenius_decay
from understudy.distil.frozen import call
from understudy.distil.groups import parameter_groups
from understudy.distil.guidance import SelfGuidance, fading
from understudy.fitting.inputs import output_that_matters
from understudy.layers import recompute_nothing_, stand_ins
from understudy.networks.nets.auxiliary import AuxiliaryHead
from understudy.students.versions import tensors_of, versioned

from .checkpoint import Checkpoint, CheckpointError, Progress, State
from .divergence import DivergedError, first_not_finite
from .figures import Epoch
from .job import Job
from .losses import target_loss
from .memory import fits
from .optimisers import make_optimiser, memory_of, remember_
from .precision import autocast, in_layout, may_be_channels_last
from .recipe import Recipe
from .schedules import rate_factor
from .student import set_drop_path_
from .teaching import Teaching


class Trainer:
    """The moving parts of a job: network, optimiser, teacher, average, and how to take one step."""

    def __init__(self, job: Job, steps_per_epoch: int) -> None:
        recipe, network = job.settings, job.model
        self.recipe, self.output_of = recipe, job.output_of
        self.network = network
        self.processes = job.place
        self.steps = steps_per_epoch * recipe.epochs
        device = self.processes.device
        self.channels_last = recipe.channels_last and may_be_channels_last(network, device)
        if self.channels_last:
            lay_channels_last_(network)
        self.executions = [(layer, layer.execution) for _, layer in stand_ins(network)]
        self.undecided = [layer for layer, execution in self.executions if execution.recompute is None]
        if not recipe.recompute:
            recompute_nothing_(layer for layer, _ in self.executions)
            self.undecided = []
        self.guidance = _guidance(job)
        self.optimiser = job.optimiser or make_optimiser(recipe, _groups(recipe, network, self.guidance))
        self.rates = [group["lr"] for group in self.optimiser.param_groups]
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "float16")
        self.teaching = Teaching(job, channels_last=self.channels_last)
        self.average = (
            {key: value.clone() for key, value in tensors_of(network).items()} if recipe.ema else {}
        )
        self.has_auxiliary = any(isinstance(module, AuxiliaryHead) for module in network.modules())
        self.forward: nn.Module = network
        if self.processes.world_size > 1:
            self.forward = DistributedDataParallel(network)
        if recipe.compile:
            self.forward = torch.compile(self.forward)  # type: ignore[assignment]

    def begin(self, epoch: int) -> None:
        """Set what changes with the epoch."""
        self.network.train()
        set_drop_path_(self.network, self.recipe.drop_path * epoch / self.recipe.epochs)

    def step(self, x: Any, y: Tensor, share: float, progress: Progress) -> float:
        """One batch: forward, backward, update. `share` weighs this process's part of the batch."""
        recipe = self.recipe
        factor = rate_factor(recipe, progress.epoch, progress.step, self.steps)
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        if self.guidance is not None:
            self.guidance.share = fading(progress.step, recipe.guide * self.steps)
        torch.manual_seed(
            recipe.seed + (progress.step + 1) * 1_000_003
        )  # drop-path and dropout follow the step
        x = in_layout(x, channels_last=self.channels_last)
        if self.undecided and fits(self.network, x, self.processes.device):
            recompute_nothing_(self.undecided)
        self.undecided = []
        with autocast(recipe, self.processes.device):
            logits, loss = self._loss(x, y, progress)
        value = float(loss.detach())
        classes = len(y) if _are_classes(logits, y) else 0
        hits = int((logits.detach().argmax(1) == y).sum()) if classes else 0
        # Over all processes: they stop together, and the figures of the epoch are whole in any checkpoint.
        lost, loss_sum, right, labelled, seen = self.processes.sum(
            [float(not math.isfinite(value)), value * len(y), hits, classes, len(y)]
        )
        if lost:
            where = "in another process"
            if not math.isfinite(value):
                with autocast(recipe, self.processes.device):
                    where = first_not_finite(self.network, x)
            raise DivergedError(f"the loss is {loss_sum / seen} at step {progress.step}; {where}")
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(loss * share).backward()
        if recipe.clip:
            self.scaler.unscale_(self.optimiser)
            guides = [] if self.guidance is None else list(self.guidance.weights)
            nn.utils.clip_grad_norm_([*self.network.parameters(), *guides], recipe.clip)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        for key, value_now in tensors_of(self.network).items() if recipe.ema else ():
            kept = self.average[key]
            kept.lerp_(value_now, 1 - recipe.ema) if kept.is_floating_point() else kept.copy_(value_now)
        progress.step += 1
        progress.batch += 1
        progress.loss_sum += loss_sum
        progress.right += int(right)
        progress.labelled += int(labelled)
        progress.seen += int(seen)
        return value

    def _loss(self, x: Any, y: Tensor, progress: Progress) -> tuple[Tensor, Tensor]:
        """The logits, and all that is to be lowered: the targets', the teacher's, the auxiliary head's."""
        recipe = self.recipe
        output = call(self.forward, x)
        auxiliary = output[1] if self.has_auxiliary else None
        logits = output_that_matters(output, self.output_of, "the model")
        taught_alone = self.teaching.alone
        loss = logits.new_zeros(())
        if not taught_alone:
            loss = target_loss(recipe.loss, logits, y, label_smoothing=recipe.label_smoothing)
        loss = self.teaching.added_to(loss, x, logits, progress)
        if auxiliary is not None and not taught_alone:
            loss = loss + recipe.auxiliary * target_loss(recipe.loss, auxiliary, y)
        overrides = _overrides(recipe)
        if "frobenius" in (recipe.decay, *overrides.values()):
            penalty = frobenius_decay(
                self.network, recipe.weight_decay, policy=recipe.decay, overrides=overrides
            )
            loss = loss + penalty.to(loss.device)
        return logits, loss

    def end(self, progress: Progress) -> Epoch:
        """The training figures of the epoch."""
        factor = rate_factor(self.recipe, progress.epoch, progress.step - 1, self.steps)
        return Epoch(
            epoch=progress.epoch,
            step=progress.step,
            learning_rate=self.rates[0] * factor,
            train_loss=progress.loss_sum / progress.seen,
            train_error=100 * (1 - progress.right / progress.labelled) if progress.labelled else None,
        )

    def close(self) -> None:
        """Let go of the networks; the student runs as it did before, for that is no part of training."""
        for layer, execution in self.executions:
            layer.execution = execution
        self.teaching.close()
        if self.guidance is not None:
            self.guidance.close()

    def averaged(self) -> nn.Module:
        """The network to evaluate and to keep: the running average where there is one."""
        if not self.average:
            return self.network
        averaged = copy.deepcopy(self.network)
        averaged.load_state_dict(versioned(self.average, averaged))
        return averaged

    def checkpoint(self, progress: Progress) -> Checkpoint:
        """Everything the run needs to go on."""
        memory, numbers = memory_of(self.optimiser, self.network)
        tensors = {f"network.{key}": value for key, value in tensors_of(self.network).items()}
        tensors |= {f"average.{key}": value for key, value in self.average.items()}
        tensors |= {f"optimiser.{key}": value for key, value in memory.items()}
        state = State(dataclasses.replace(progress), self.scaler.state_dict(), numbers)
        if self.guidance is not None:
            memory, numbers = memory_of(self.optimiser, self.guidance.weights)
            tensors |= {f"guide.{key}": value for key, value in self.guidance.weights.state_dict().items()}
            tensors |= {f"guide_optimiser.{key}": value for key, value in memory.items()}
            state = dataclasses.replace(state, guide_optimiser=numbers)
        return Checkpoint(tensors, state)

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise a CheckpointError unless `restore` can take it up; nothing is changed."""
        part, state = _parts(checkpoint), checkpoint.state
        if state.progress.epoch > self.recipe.epochs:
            raise CheckpointError(f"it is at epoch {state.progress.epoch} of {self.recipe.epochs}")
        if state.scaler.keys() != self.scaler.state_dict().keys() or not all(
            isinstance(value, int | float) and value >= 0 for value in state.scaler.values()
        ):
            raise CheckpointError("its loss scale is no loss scale")
        guides: nn.Module = nn.Module() if self.guidance is None else self.guidance.weights
        for name, wanted in (
            ("network", tensors_of(self.network)),
            ("average", self.average),
            ("guide", guides.state_dict()),
        ):
            if _forms(part[name]) != _forms(wanted):
                raise CheckpointError(f"its tensors are not those of the {name}")
        for name, numbers, module in (
            ("optimiser", state.optimiser, self.network),
            ("guide_optimiser", state.guide_optimiser, guides),
        ):
            known = {key for key, _ in module.named_parameters()}
            strange = [key for key in (*part[name], *numbers) if key.partition(".")[2] not in known]
            if strange:
                raise CheckpointError(f"its optimiser remembers {strange[0]!r}, which is no parameter")

    def restore(self, checkpoint: Checkpoint) -> Progress:
        """Take up a checkpoint."""
        part, state = _parts(checkpoint), checkpoint.state
        self.network.load_state_dict(versioned(part["network"], self.network))
        for key, kept in self.average.items():
            kept.copy_(part["average"][key])
        remember_(self.optimiser, self.network, part["optimiser"], state.optimiser)
        if self.guidance is not None:
            weights, memory = self.guidance.weights, part["guide_optimiser"]
            weights.load_state_dict(part["guide"])
            remember_(self.optimiser, weights, memory, state.guide_optimiser)
        self.scaler.load_state_dict(dict(state.scaler))
        return dataclasses.replace(state.progress)


def _parts(checkpoint: Checkpoint) -> dict[str, dict[str, Tensor]]:
    """The tensors by what they belong to, under their own names."""
    part: dict[str, dict[str, Tensor]] = collections.defaultdict(dict)
    for key, tensor in checkpoint.tensors.items():
        kind, _, name = key.partition(".")
        part[kind][name] = tensor
    return part


def _forms(tensors: Mapping[str, object]) -> dict[str, object]:
    """Shapes and types by name."""
    return {name: (value.shape, value.dtype) for name, value in tensors.items() if isinstance(value, Tensor)}


def _guidance(job: Job) -> SelfGuidance | None:
    """The dense companions that a recipe asks for; they are trained here, by one process."""
    if not job.settings.guide:
        return None
    if job.optimiser is not None:
        raise ValueError("guide needs an optimiser that the settings name: it trains the companions too")
    if job.place.world_size > 1:
        raise ValueError(f"guide is for one process, not {job.place.world_size}")
    return SelfGuidance(job.model)


def _groups(recipe: Recipe, network: nn.Module, guidance: SelfGuidance | None) -> list[dict[str, Any]]:
    """The parameters by their weight decay and their learning rate; companions decay as dense layers do."""
    guides = [] if guidance is None else list(guidance.weights)
    beside = [{"params": guides, "weight_decay": recipe.weight_decay, "lr": recipe.learning_rate}]
    groups = parameter_groups(
        network,
        recipe.weight_decay,
        rates=recipe.rates,
        learning_rate=recipe.learning_rate,
        policy=recipe.decay,
        scope=recipe.decay_scope,
        overrides=_overrides(recipe),
        decay_vectors=recipe.decay_vectors,
    )
    return groups + (beside if guides else [])


def _overrides(recipe: Recipe) -> dict[str, Policy]:
    overrides: Any = dict(item.split("=", 1) for item in recipe.decay_overrides)
    return dict(overrides)


def _are_classes(logits: Tensor, y: Tensor) -> bool:
    return logits.dim() == 2 and y.dim() == 1 and not y.is_floating_point()
