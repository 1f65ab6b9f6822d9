"""model + example → Cost: parameters, mult-adds as executed and as ideal, bytes on disk; layer by layer."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from torch import Tensor, nn

from understudy._util.guard import the_network
from understudy._util.quantities import format_bytes, format_count, format_share
from understudy._util.text_tables import Shown, Table, table
from understudy.counting.trace import Example, trace
from understudy.layers.layer import Layer, stand_ins

from .file import file_size, seeded
from .wrappers import unwrapped


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """One module's own cost; an understudy layer counts as one module."""

    path: str
    type: str
    params: int
    mult_adds: int  # as executed
    ideal_mult_adds: int
    bytes: int  # of its parameters and saved buffers


@dataclasses.dataclass(frozen=True, repr=False)
class Cost(Shown):
    """What a network costs for one example: printable, and the sum of its layers.

    `mult_adds` is what ran with nothing kept between calls, forming matrices included: in training, and in a
    first call. `ideal_mult_adds` leaves out what does not depend on the input and could be done ahead.
    `inference_mult_adds` is what every further call in evaluation without gradients runs, where that is kept:
    in the orders that this machine or `tune` takes. `bytes` is the size of the file that `understudy.save`
    writes.

    >>> import understudy as us
    >>> cost = us.cost(us.create_model("wrn_10_1"), (1, 3, 32, 32))
    >>> cost.params, cost.mult_adds == sum(layer.mult_adds for layer in cost.layers)
    (77850, True)
    """

    model: str
    params: int
    mult_adds: int
    ideal_mult_adds: int
    bytes: int
    layers: tuple[LayerCost, ...]
    inference_mult_adds: int

    def __repr__(self) -> str:
        return f"<Cost: {self.model}, {self.params:,} parameters, {self.mult_adds:,} mult-adds>"

    def table(self) -> Table:
        """A row for every module that has a cost of its own."""
        rows = [
            (
                layer.path or "(the network itself)",
                layer.type,
                format_count(layer.params),
                format_count(layer.mult_adds),
                format_share(layer.mult_adds, self.mult_adds),
                format_count(layer.ideal_mult_adds),
                format_bytes(layer.bytes),
            )
            for layer in self.layers
        ]
        return table(
            ["module", "type", ">parameters", ">mult-adds", ">of all", ">ideal", ">bytes"],
            rows,
            title=self.model,
            caption=f"{self.params:,} parameters; {self.mult_adds:,} mult-adds as executed, "
            f"{self.ideal_mult_adds:,} ideal{self._in_inference()}; {self.bytes:,} bytes on disk",
            yielding=("ideal", "type", "of all"),
        )

    def _in_inference(self) -> str:
        if self.inference_mult_adds == self.mult_adds:
            return ""
        return f", {self.inference_mult_adds:,} in inference with what is kept"


def cost(model: nn.Module, example: Example, *, meta: bool = True) -> Cost:
    """Count what one forward pass on `example` costs, in evaluation mode, without touching the model.

    Operations are traced on a copy: without weights where the network runs so, else for real (`meta=False`:
    for real at once, where the network is). One that has no rule raises UnknownOperationError; nothing is
    counted as zero for want of knowledge.

    >>> import understudy as us
    >>> us.cost(us.create_model("wrn_28_10"), (1, 3, 32, 32))
    <Cost: WideResNet, 36,479,194 parameters, 5,243,328,768 mult-adds>
    """
    model = unwrapped(the_network(model))
    record = trace(model, example, meta=meta)
    is_plain = next(stand_ins(model), None) is None
    further = record if is_plain else trace(model, example, meta=meta, kept=True)
    layers = []
    counted: dict[int, Any] = {}
    parts = {part for _, layer in stand_ins(model) for part in layer.modules() if part is not layer}
    for path, module in model.named_modules():
        if module in parts:
            continue
        executed = ideal = record.mult_adds[path]
        if isinstance(module, Layer):
            outputs = record.outputs.get(path, [])
            width = sum(transform.out_features for transform in module.transforms)
            inputs, read = record.inputs.get(path, []), _input_width(module)
            positions, pixels = sum(map(math.prod, outputs)) // width, sum(map(math.prod, inputs)) // read
            ideal = module.ideal_mult_adds(positions, pixels)
        params, size = _own_tensors(module, counted, recurse=isinstance(module, Layer))
        if params or executed or size:
            layers.append(LayerCost(path, type(module).__name__, params, executed, ideal, size))
    return Cost(
        model=type(model).__name__,
        params=sum(layer.params for layer in layers),
        mult_adds=record.mult_adds.total(),
        ideal_mult_adds=sum(layer.ideal_mult_adds for layer in layers),
        bytes=file_size(model),
        layers=tuple(layers),
        inference_mult_adds=further.mult_adds.total(),
    )


def _input_width(layer: Layer) -> int:
    """Channels of what comes in."""
    return sum(transform.in_features for transform in layer.transforms) // layer.area


def _own_tensors(module: nn.Module, counted: dict[int, Any], *, recurse: bool) -> tuple[int, int]:
    """Parameters and bytes that a module saves, each tensor counted once in the network."""
    own: dict[str, Any] = {}
    if recurse:
        module.state_dict(destination=own, keep_vars=True)
        for name in seeded(module):
            own.pop(name, None)  # in the header
    else:
        module._save_to_state_dict(own, "", True)
    params = size = 0
    for tensor in own.values():
        if isinstance(tensor, Tensor) and id(tensor) not in counted:
            counted[id(tensor)] = tensor  # held, so that no other tensor gets its identity
            size += tensor.numel() * tensor.element_size()
            params += tensor.numel() if isinstance(tensor, nn.Parameter) else 0
    return params, size
