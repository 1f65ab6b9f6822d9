"""The sequential pass: every layer fitted in the order in which it runs, to make up for those before it.

With x the input that a layer has in the original and x̂ the one that it has in the student, its target is
t = W x + b, and with S = E[(x̂ − x̂̄)(x̂ − x̂̄)ᵀ] + λI, C = E[(t − t̄)(x̂ − x̂̄)ᵀ] + λW the best matrix is C S⁻¹; a
stand-in comes as near to it as its family can in the metric of S, and adds t̄ − Ŵ x̂̄. λ pulls towards W.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from understudy.layers.dense import DenseMap, the_dense_map
from understudy.transforms.metric import Metric

from .calibrate import POSITIONS, real_rows
from .calibration import Calibration
from .fit import fit_matrix_, times
from .inputs import Batch
from .lockstep import ApartError, lockstep
from .moments import Moments
from .rows import sample_positions
from .shifts import NORMS, Shift

RIDGE = 1e-3  # λ, of the mean eigenvalue
_CHUNK = 128  # samples whose vectors are in memory at a time


@dataclasses.dataclass(frozen=True)
class Refit:
    """How the layers of a student are fitted to those of the original.

    Batch norms that are no place for a layer's own constant are met on the way too: their running means
    follow what the student's inputs have lost or gained on average. With `is_mean_left` layers without a
    place for a constant leave their mean's error to them.
    """

    original: nn.Module
    batch: Batch
    shifts: Mapping[str, Shift]
    known: Calibration
    seed: int = 0
    is_mean_left: bool = False

    @property
    def norms(self) -> list[str]:
        """The batch norms that correct means."""
        taken = {shift.norm for shift in self.shifts.values()}
        return [
            path
            for path, module in self.original.named_modules()
            if isinstance(module, NORMS) and module.running_mean is not None and path not in taken
        ]

    def run(self, student: nn.Module, paths: Sequence[str]) -> nn.Module:
        """A copy of the student with the layers at `paths` fitted; one that runs twice, the first time."""
        fitted = copy.deepcopy(student)
        generator = torch.Generator().manual_seed(self.seed)
        norms = self.norms
        done: set[str] = set()

        def visit(path: str, x: Tensor, mine: Tensor) -> None:
            if path in done:
                return
            if x.shape != mine.shape:
                raise ApartError(f"{path!r} is given {tuple(x.shape)}, in the student {tuple(mine.shape)}")
            done.add(path)
            if path in norms:
                axes = [axis for axis in range(x.dim()) if axis != 1]
                moved = mine.double().mean(axes) - x.double().mean(axes)
                fitted.get_submodule(path).get_buffer("running_mean").add_(moved)
            else:
                self._fit_(fitted, path, x, mine, generator)

        lockstep(self.original, fitted, self.batch, [*paths, *norms], visit)
        return fitted

    def _fit_(
        self, student: nn.Module, path: str, x: Tensor, mine: Tensor, generator: torch.Generator
    ) -> None:
        dense = the_dense_map(self.original.get_submodule(path))
        shift, gradient = self.shifts[path], self.known.layers[path].gradient
        groups = self._moments(dense, x, mine, generator)
        metrics, best = [], []
        for place, (moments, weight) in enumerate(zip(groups, _matrices(dense), strict=True)):
            if shift.exists or self.is_mean_left:
                seen, cross = moments.covariance, moments.cross
            else:  # nothing can be added to the output, so the matrix answers for the mean as well
                seen, cross = moments.second, moments.second_cross
            own = slice(place * len(weight), (place + 1) * len(weight))
            metric = Metric.of(seen, None if gradient is None else gradient[own, own], ridge=RIDGE)
            strength = RIDGE * float(seen.diagonal().mean()) or 1.0  # as the metric has it
            pulled = cross.T + strength * weight.double().T
            best.append(torch.linalg.solve(metric.covariance, pulled).T)
            metrics.append(metric)
        fitted = fit_matrix_(student.get_submodule(path), torch.cat(best), metrics)
        if shift.exists:
            target = torch.cat([moments.target_mean for moments in groups])
            constant = target - times(fitted, torch.cat([moments.mean for moments in groups]))
            shift.set_(student, self.original, path, constant)

    def _moments(self, dense: DenseMap, x: Tensor, mine: Tensor, generator: torch.Generator) -> list[Moments]:
        """Of the student's input, with the original's output as target, group by group."""
        matrices = _matrices(dense)
        bias = dense.matrix.new_zeros(len(dense.matrix)) if dense.bias is None else dense.bias
        biases = bias.detach().chunk(dense.groups)
        found = [Moments(matrix.shape[1], len(matrix)) for matrix in matrices]
        mask = self.batch.mask
        for start in range(0, len(x), _CHUNK):
            part = slice(start, start + _CHUNK)
            where = sample_positions(dense, x[part], POSITIONS, generator)
            some = None if mask is None else mask[part]
            theirs = real_rows(dense, x[part], some, where)
            ours = real_rows(dense, mine[part], some, where)
            slices = zip(ours.chunk(dense.groups, dim=1), theirs.chunk(dense.groups, dim=1), strict=True)
            for moments, (own, their), matrix, added in zip(found, slices, matrices, biases, strict=True):
                moments.add(own, their @ matrix.T + added)
        return found


def _matrices(dense: DenseMap) -> tuple[Tensor, ...]:
    """W, the rows of each group by themselves."""
    return dense.matrix.detach().chunk(dense.groups)
