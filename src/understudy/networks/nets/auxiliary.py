"""A second classifier within a network, for training alone."""

from torch import nn


class AuxiliaryHead(nn.Sequential):
    """Feeds gradient to the middle of a network.

    The network that holds one as an attribute gives (logits, the head's logits) in training and its logits in
    eval mode; with None in the head's place it gives its logits always.
    """


def remove_auxiliary_(network: nn.Module) -> None:
    """Put None in the place of every auxiliary head."""
    for module in network.modules():
        for name, child in module.named_children():
            if isinstance(child, AuxiliaryHead):
                setattr(module, name, None)
