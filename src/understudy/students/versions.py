"""State dicts as files of tensors hold them: without the versions of modules, and what is no tensor."""

from __future__ import annotations

import collections
from collections.abc import Mapping

from torch import Tensor, nn


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The state of a network without what is no tensor, as modules may have by `get_extra_state`."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def versioned(state: Mapping[str, Tensor], model: nn.Module) -> collections.OrderedDict[str, Tensor]:
    """These tensors as a state dict of the model as it is now, for its `load_state_dict`.

    Without versions a module takes them for those of its oldest form, or refuses, as torchvision's MNASNet.
    What is no tensor stays as it is.
    """
    held = model.state_dict(keep_vars=True)
    made = collections.OrderedDict(state)
    made.update({name: value for name, value in held.items() if not isinstance(value, Tensor)})
    vars(made)["_metadata"] = vars(held).get("_metadata", {})
    return made
