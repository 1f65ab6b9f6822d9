"""What the paper and the literature it cites report: each fact once.

Gray, Crowley and Storkey, "Separable Layers Enable Structured Efficient Linear Substitutions", 2019. Its
counts of mult-adds add one for every output of a ReLU, ours do not; those of Tensor-Train and HashedNet are
the dense matrix's.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from understudy.results import Result

Source = Literal["paper", "literature"]


@dataclasses.dataclass(frozen=True)
class Published:
    """A point from a table: top-1 error in percent, None where nothing was reported.

    >>> from understudy.report import published
    >>> point = published("wrn_50_2", "imagenet")[3]
    >>> point.label, point.params, point.top1
    ('RF 17.6M', 17550000, 25.4)
    """

    label: str
    transform: str  # our name of it; "" for a network as it is
    budget: str  # of the plan that compares with it
    params: int | None
    mult_adds: int | None
    top1: float
    source: Source = "paper"

    def compares_with(self, ours: Result) -> bool:
        """Whether ours is the same substitution with about as many parameters."""
        if self.source != "paper" or self.transform != ours.structure or not self.params or not ours.params:
            return False
        return 1 / _NEAR < ours.params / self.params < _NEAR


_NEAR = 1.1
_M, _G = 10**6, 10**9
_POINTS: dict[tuple[str, str], tuple[Published, ...]] = {
    ("wrn_50_2", "imagenet"): (
        Published("WRN-50-2", "", "", 68_900_000, 11 * _G, 21.9),
        Published("ShuffleNet 17.7M", "shuffle", "17.6M", 17_720_000, 3_220 * _M, 26.9),
        Published("ShuffleNet 6.0M", "shuffle", "4.35M", 6_040_000, 910 * _M, 29.7),
        Published("RF 17.6M", "low_rank", "17.6M", 17_550_000, 2_830 * _M, 25.4),
        Published("RF 4.35M", "low_rank", "4.35M", 4_350_000, 530 * _M, 39.8),
        Published("HashedNet 17.6M", "hashed", "17.6M", 17_610_000, 4_860 * _M, 24.5),
        Published("HashedNet 4.35M", "hashed", "4.35M", 4_350_000, 4_860 * _M, 33.5),
        Published("Tensor-Train 17.6M", "tensor_train", "17.6M", 17_580_000, 4_860 * _M, 24.9),
        Published("Tensor-Train 4.34M", "tensor_train", "4.35M", 4_340_000, 4_860 * _M, 33.2),
        Published("ShuffleNet", "", "", 1_870_000, 140 * _M, 32.4, "literature"),
        Published("ShuffleNet 2×", "", "", 7_510_000, 530 * _M, 24.7, "literature"),
        Published("DenseNet-121", "", "", 9 * _M, 6 * _G, 25.0, "literature"),
        Published("MobileNet", "", "", 4_200_000, 570 * _M, 29.4, "literature"),
        Published("DecomposeMe Dec8-512", "", "", None, 450 * _M, 33.2, "literature"),
        Published("CaffeNet (ACDC)", "", "", 9_700_000, None, 43.3, "literature"),
        Published("VGG-16 (TT)", "", "", 18_650_000, None, 32.2, "literature"),
        Published("VGG-19 (TT)", "", "", 24 * _M, None, 31.6, "literature"),
    ),
    ("wrn_28_10", "cifar10"): (Published("WRN-28-10", "", "", 36_500_000, 5_250 * _M, 3.2),),
    ("darts", "cifar10"): (Published("DARTS", "", "", 3_350_000, 540 * _M, 2.83),),
}
_NOTES: dict[tuple[str, str], tuple[str, ...]] = {
    ("wrn_50_2", "imagenet"): ("The authors measured 22.5 % for the base when they ran it themselves.",),
    ("wrn_28_10", "cifar10"): (
        "Below 10 % of the parameters every method is reported within about 1 point of the base; below 3 %, "
        "HashedNet and Tensor-Train are.",
        "CRS decay is reported to help all but HashedNet, which is 0.1 to 0.4 points better without it; "
        "Linear ShuffleNet does not converge without it.",
        "Attention transfer is reported to lower the error of almost every method by more than 1 point; "
        "ACDC with many layers is unstable under it.",
    ),
    ("darts", "cifar10"): (
        "At 20 % of the parameters HashedNet, ShuffleNet and Tensor-Train are reported within 1 point of the "
        "base, ShuffleNet with about 5 times fewer mult-adds.",
    ),
}


def published(network: str, data: str) -> tuple[Published, ...]:
    """The points that belong beside ours, the base network first; none for a network not in the paper.

    >>> from understudy.report import published
    >>> [point.label for point in published("wrn_28_10", "cifar10")], published("resnet20", "cifar10")
    (['WRN-28-10'], ())
    """
    return _POINTS.get((network, data), ())


def published_notes(network: str, data: str) -> tuple[str, ...]:
    """What is reported in words only.

    >>> from understudy.report import published_notes
    >>> published_notes("wrn_50_2", "imagenet")
    ('The authors measured 22.5 % for the base when they ran it themselves.',)
    """
    return _NOTES.get((network, data), ())


def published_beside(result: Result) -> Published | None:
    """The paper's point for the same network and transform with about as many parameters.

    >>> from understudy.experiments import make_grid, new_result, plan_cells
    >>> from understudy.report import published_beside
    >>> students = {"transforms": "low_rank", "params": "17.6M"}
    >>> grid = make_grid("mine", {"recipe": "wrn_50_2_imagenet", "students": students})
    >>> published_beside(new_result("mine", plan_cells(grid)[1])).label
    'RF 17.6M'
    """
    if result.role == "baseline":
        return None
    points = published(result.network, result.data)
    return next((point for point in points if point.compares_with(result)), None)
