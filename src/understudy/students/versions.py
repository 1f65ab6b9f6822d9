"""State dicts with the versions of a network's modules, which files of tensors do not hold."""

from __future__ import annotations

import collections
from collections.abc import Mapping

from torch import Tensor, nn


def versioned(state: Mapping[str, Tensor], model: nn.Module) -> collections.OrderedDict[str, Tensor]:
    """These tensors as a state dict of the model as it is now, for its `load_state_dict`.

    Without versions a module takes them for those of its oldest form, or refuses, as torchvision's MNASNet.
    """
    versions = vars(model.state_dict(keep_vars=True)).get("_metadata", {})
    made = collections.OrderedDict(state)
    vars(made)["_metadata"] = versions
    return made
