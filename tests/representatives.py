"""One transform for each kind of stage and state that layers and networks meet.

Every transform keeps the contract (tests/transforms); what is around a transform, layers, plans, files and
costs, is tested with these, which differ in what it sees of them.
"""

from understudy.transforms import Transform, get_transform

NAMES = [
    "dense",  # a matrix, and nothing but formed
    "low_rank",  # two plain products
    "tensor_train",  # Kronecker products, several orders
    "tucker",  # products of parameters ahead
    "acdc",  # a stage of its own, through the Fourier transform
    "hashed",  # an index that follows from a seed
    "shuffle",  # blocks and a permutation; knobs that fall
    "low_rank_sparse",  # an index in the state dict
    "pivoted",  # a buffer
]
TRANSFORMS: list[type[Transform]] = [get_transform(name) for name in NAMES]
