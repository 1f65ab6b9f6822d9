"""The moving parts of a run, and how one step is taken."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from understudy.distil.attention import AttentionTransfer
from understudy.distil.decay import weight_decay_groups
from understudy.distil.distillation import distillation_loss
from understudy.layers.layer import Conv, stand_ins

from .divergence import DivergedError, first_not_finite
from .processes import Processes
from .recipe import Recipe
from .run import Checkpoint
from .student import set_drop_path_


@dataclasses.dataclass
class Progress:
    """Where a run stands; kept in every checkpoint."""

    step: int = 0  # of the whole run
    epoch: int = 0
    batch: int = 0  # of the epoch
    loss_sum: float = 0.0  # over the epoch so far and all processes
    right: int = 0
    seen: int = 0


class Trainer:
    """The moving parts of a run: network, optimiser, teacher, average, and how to take one step."""

    def __init__(
        self,
        recipe: Recipe,
        network: nn.Module,
        teacher: nn.Module | None,
        processes: Processes,
        example: Tensor,
    ) -> None:
        self.recipe = recipe
        self.processes = processes
        self.network = network
        self.channels_last = recipe.channels_last and may_be_channels_last(network, processes.device)
        if self.channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for _, layer in stand_ins(network) if not recipe.recompute else ():
            layer.recompute = False
        overrides = dict(item.split("=", 1) for item in recipe.decay_overrides)
        groups = weight_decay_groups(
            network,
            recipe.weight_decay,
            policy=recipe.decay,
            scope=recipe.decay_scope,
            overrides=overrides,  # type: ignore[arg-type]
            decay_vectors=recipe.decay_vectors,
        )
        self.optimiser = torch.optim.SGD(
            groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.nesterov
        )
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=recipe.precision == "float16")
        self.teacher = teacher.to(processes.device) if teacher is not None else None
        self.attention = None
        if recipe.attention and teacher is not None:
            self.attention = AttentionTransfer(
                network, teacher, taps=recipe.taps or None, beta=recipe.attention, example=example
            )
        self.average = (
            {key: value.clone() for key, value in network.state_dict().items()} if recipe.ema else {}
        )
        self.forward: nn.Module = network
        if processes.world_size > 1:
            self.forward = DistributedDataParallel(network)
        if recipe.compile:
            self.forward = torch.compile(self.forward)  # type: ignore[assignment]

    def begin(self, epoch: int) -> None:
        """Set what changes with the epoch."""
        self.network.train()
        set_drop_path_(self.network, self.recipe.drop_path * epoch / self.recipe.epochs)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.recipe, epoch)

    def step(self, x: Tensor, y: Tensor, share: float, progress: Progress) -> float:
        """One batch: forward, backward, update. `share` weighs this process's part of the batch."""
        recipe = self.recipe
        torch.manual_seed(
            recipe.seed + (progress.step + 1) * 1_000_003
        )  # drop-path and dropout follow the step
        if self.channels_last:
            x = x.to(memory_format=torch.channels_last)
        with autocast(recipe, x.device):
            output = self.forward(x)
            logits, auxiliary = output if isinstance(output, tuple) else (output, None)
            loss = F.cross_entropy(logits, y)
            if self.attention is not None:
                looked, wanted = self.attention(x)
            elif self.teacher is not None and recipe.distillation:
                with torch.no_grad():
                    wanted = self.teacher(x)
            if recipe.distillation and self.teacher is not None:
                soft = distillation_loss(logits.float(), wanted.float(), recipe.temperature)
                loss = (1 - recipe.distillation) * loss + recipe.distillation * soft
            if self.attention is not None:
                loss = loss + looked
            if auxiliary is not None:
                loss = loss + recipe.auxiliary * F.cross_entropy(auxiliary, y)
        value = float(loss.detach())
        hits = int((logits.detach().argmax(1) == y).sum())
        # Over all processes: they stop together, and the figures of the epoch are whole in any checkpoint.
        lost, loss_sum, right, seen = self.processes.sum(
            [float(not math.isfinite(value)), value * len(y), hits, len(y)]
        )
        if lost:
            where = "in another process"
            if not math.isfinite(value):
                with autocast(recipe, x.device):
                    where = first_not_finite(self.network, x)
            raise DivergedError(f"the loss is {loss_sum / seen} at step {progress.step}; {where}")
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(loss * share).backward()
        if recipe.clip:
            self.scaler.unscale_(self.optimiser)
            nn.utils.clip_grad_norm_(self.network.parameters(), recipe.clip)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        for key, value_now in self.network.state_dict().items() if recipe.ema else ():
            kept = self.average[key]
            kept.lerp_(value_now, 1 - recipe.ema) if kept.is_floating_point() else kept.copy_(value_now)
        progress.step += 1
        progress.batch += 1
        progress.loss_sum += loss_sum
        progress.right += int(right)
        progress.seen += int(seen)
        return value

    def end(self, progress: Progress) -> dict[str, Any]:
        """The training figures of the epoch."""
        return {
            "epoch": progress.epoch,
            "step": progress.step,
            "learning_rate": learning_rate(self.recipe, progress.epoch),
            "train_loss": progress.loss_sum / progress.seen,
            "train_error": 100 * (1 - progress.right / progress.seen),
        }

    def averaged(self) -> nn.Module:
        """The network to evaluate and to keep: the running average where there is one."""
        if not self.average:
            return self.network
        averaged = copy.deepcopy(self.network)
        averaged.load_state_dict(self.average)
        return averaged

    def checkpoint(self, progress: Progress) -> Checkpoint:
        """Everything the run needs to go on."""
        tensors = {f"network.{key}": value for key, value in self.network.state_dict().items()}
        tensors |= {f"average.{key}": value for key, value in self.average.items()}
        for name, parameter in self.network.named_parameters():
            momentum = self.optimiser.state[parameter].get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        return Checkpoint(tensors, {**dataclasses.asdict(progress), "scaler": self.scaler.state_dict()})

    def restore(self, checkpoint: Checkpoint) -> Progress:
        """Take up a checkpoint."""
        part: dict[str, dict[str, Tensor]] = {"network": {}, "average": {}, "momentum": {}}
        for key, tensor in checkpoint.tensors.items():
            kind, _, name = key.partition(".")
            part[kind][name] = tensor
        self.network.load_state_dict(part["network"])
        for key, kept in self.average.items():
            kept.copy_(part["average"][key])
        for name, parameter in self.network.named_parameters():
            if name in part["momentum"]:  # laid out as the weights: another layout may round differently
                momentum = torch.empty_like(parameter.detach()).copy_(part["momentum"][name])
                self.optimiser.state[parameter]["momentum_buffer"] = momentum
        state = dict(checkpoint.state)
        self.scaler.load_state_dict(state.pop("scaler"))
        return Progress(**{field.name: state[field.name] for field in dataclasses.fields(Progress)})


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def autocast(recipe: Recipe, device: torch.device) -> torch.autocast:
    """The recipe's precision, as a block to run a network in."""
    return torch.autocast(device.type, _DTYPES[recipe.precision], enabled=recipe.precision != "float32")


def may_be_channels_last(network: nn.Module, device: torch.device) -> bool:
    """Whether training in this layout is safe.

    On a CPU the backward pass of a strided 1×1 convolution with fewer than 8 input channels writes beyond its
    memory in channels-last (torch 2.13).
    """
    return device.type != "cpu" or not any(
        isinstance(module, nn.Conv2d | Conv)
        and module.kernel_size == (1, 1)
        and module.stride != (1, 1)
        and module.in_channels < 8
        for module in network.modules()
    )


def learning_rate(recipe: Recipe, epoch: int) -> float:
    """The rate of an epoch: by milestones, or along half a cosine to zero."""
    if recipe.schedule == "cosine":
        return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * epoch / recipe.epochs))
    return recipe.learning_rate * recipe.gamma ** sum(epoch >= milestone for milestone in recipe.milestones)
