"""What a stand-in for one site costs, way by way: arithmetic on shapes, no tensor is made."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import zlib
from collections.abc import Mapping, Sequence

from understudy.layers.replacement import Replacement, Spec, Way, depthwise_taps, matrix_in_features
from understudy.transforms import Transform
from understudy.transforms.dense import Dense
from understudy.transforms.registry import with_two_factors
from understudy.transforms.two_factors import Waist

from .headers import of_stand_in
from .plan import PlannedLayer
from .sites import Site
from .spend import Ladder, highest_within, rising_along
from .times import MODELLED, Times

_TIMED_KNOBS = 48
_MANY_KNOBS = 4096  # a family with more has one order, whose cost rises
LEAST_SAVING = 0.05  # a stand-in that saves less of what it stands for is not worth its loss


@dataclasses.dataclass(frozen=True)
class Pricing:
    """One site, the transform that may stand in for it, and the way it is wrapped."""

    site: Site
    transform: type[Transform]
    way: Way
    seed: int
    options: dict[str, str]
    multiple: int = 1  # of which ranks above it are multiples
    times: Times = MODELLED

    @property
    def shape(self) -> tuple[int, int]:
        """in × out of the structured matrix, of one group."""
        site = self.site
        in_features = matrix_in_features(self.way, site.in_features // site.groups, site.kernel)
        return in_features, site.out_features // site.groups

    @property
    def is_closed_form(self) -> bool:
        """Whether one decomposition tells what it loses at every knob."""
        return self.transform.is_closed_form and self.way != "inside"

    @property
    def fitted_shape(self) -> tuple[int, int]:
        """in × out of the matrix that it is fitted to, of one group."""
        in_features, out_features = self.shape
        return in_features * (self.site.area if self.way == "inside" else 1), out_features

    def waist(self, knob: int) -> Waist:
        """What lies between the factors of one group, where it is taken inside."""
        return with_two_factors(self.transform).waist(*self.shape, knob)

    def taps(self, knob: int) -> int:
        """Parameters of the depthwise convolution, where there is one."""
        site = self.site
        return depthwise_taps(self.transform, self.way, self.shape, knob, groups=site.groups, area=site.area)

    def params(self, knob: int) -> int:
        """Parameters of the stand-in, without the bias."""
        return self.taps(knob) + self.site.groups * self.transform.params(*self.shape, knob)

    def mult_adds(self, knob: int) -> int:
        """As executed over all calls; where another module reads the weight, each read forms it."""
        assert self.site.positions is not None
        forming = self.site.groups * self.transform.forming_mult_adds(*self.shape, knob)
        if self.way == "inside":
            return self.inside_mult_adds(knob) + self.site.weight_reads * self.site.area * forming
        area = self.site.area if self.way == "unfolded" else 1
        called = sum(
            self.site.groups * self.transform.executed_mult_adds(*self.shape, knob, positions, area)
            + positions * self.taps(knob)
            for positions in self.site.positions
        )
        return called + self.site.weight_reads * forming

    def inside_mult_adds(self, knob: int) -> int:
        """The way in at every input pixel, the taps and the way out at every output pixel."""
        waist = self.waist(knob)
        coming, going = sum(self.site.pixels or ()), sum(self.site.positions or ())
        return self.site.groups * (coming * waist.before + going * waist.after) + going * self.taps(knob)

    def cost(self, metric: str, knob: int) -> int:
        """Parameters, bytes, mult-adds or nanoseconds of the stand-in."""
        if metric == "mult_adds":
            return self.mult_adds(knob)
        if metric == "nanoseconds":
            return self.times.stand_in(self.site, self.transform, self.way, self.shape, knob)
        return self.params(knob) if metric == "params" else self.bytes(knob)

    def bytes(self, knob: int) -> int:
        """Of the stand-in's parameters, and of what else is saved with them."""
        index = self.site.groups * self.transform.index_bytes(*self.shape, knob)
        return self.params(knob) * self.site.item_bytes + index + self.header_bytes

    @functools.cached_property
    def header_bytes(self) -> int:
        """What a file says of the stand-in, at most: of the largest knob, as no other needs more digits."""
        site, knobs = self.site, self.transform.knobs(*self.shape)
        spec = Spec(self.transform.name, max(knobs), _layer_seed(self.seed, site.path), self.options)
        shape = site.kind, site.in_features, site.out_features, site.kernel
        return of_stand_in(
            Replacement(site.path, *shape, self.way, spec, groups=site.groups), site.other_paths
        )

    def dense_cost(self, metric: str) -> int:
        """Parameters, bytes, mult-adds or nanoseconds of the layer as it is."""
        if metric == "mult_adds":
            return self.site.mult_adds or 0
        if metric == "nanoseconds":
            return self.times.site(self.site)
        return self.site.params * (self.site.item_bytes if metric == "bytes" else 1)

    def form_mult_adds(self) -> int:
        """Mult-adds of the same way with a dense matrix; of factors, with the dense kernel that they make."""
        if self.way == "inside":
            return self.dense_cost("mult_adds")
        in_features, out_features = self.shape
        taps = self.site.in_features * self.site.area if self.way == "separable" else 0
        return sum(self.site.positions or ()) * (self.site.groups * in_features * out_features + taps)

    def rising(self, metric: str) -> Sequence[int]:
        """The knobs in whose order the cost never falls: one that costs more than a later one is left out."""
        knobs = self.transform.knobs(*self.shape)
        if self.multiple > 1 and self.transform.has_rank:
            knobs = [knob for knob in knobs if self.rounded(knob) == knob]
        if metric == "nanoseconds" and knobs:
            step = -(-len(knobs) // _TIMED_KNOBS)  # each is looked at stage by stage
            knobs = sorted({knobs[0], *knobs[::-step]}, key=knobs.index)
            return rising_along(knobs, lambda knob: self.cost(metric, knob))
        rises = self.transform.mult_adds_rise and self.way != "unfolded"  # patches rule orders out
        if metric != "mult_adds" or rises or len(knobs) > _MANY_KNOBS:
            return knobs
        return rising_along(knobs, self.mult_adds)

    def worthwhile(self, metric: str) -> Sequence[int]:
        """The knobs that are worth their price, cheapest first.

        A stand-in saves some of the layer, and costs no more than the dense matrix in the same way would.
        """
        knobs = self.rising(metric)
        kept = 1 - LEAST_SAVING
        limits = [highest_within(knobs, self.params, kept * self.site.params)]
        if self.transform is not Dense and self.way != "inside":  # which are the dense matrix, and no matrix
            entries = self.site.groups * self.shape[0] * self.shape[1]
            fixed = self.taps(knobs[0]) if knobs else 0
            limits.append(highest_within(knobs, self.params, fixed + kept * entries))
        if metric == "mult_adds":
            most = min(kept * self.dense_cost(metric), self.form_mult_adds())
            limits.append(highest_within(knobs, self.mult_adds, most))
        if metric in ("bytes", "nanoseconds"):
            most = kept * self.dense_cost(metric)
            limits.append(highest_within(knobs, lambda knob: self.cost(metric, knob), most))
        return knobs[: min(limits) + 1]

    def rounded(self, knob: int) -> int:
        """A rank brought down to a multiple of what is asked for, unless it is below that."""
        if not self.transform.has_rank or knob < self.multiple:
            return knob
        return knob - knob % self.multiple

    def affordable(self) -> int:
        """How many of the knobs, from the cheapest on, have no more parameters than the dense layer."""
        return highest_within(self.transform.knobs(*self.shape), self.params, self.site.params) + 1

    def why_dense(self) -> str:
        """Why no knob is worth its price."""
        if not self.transform.knobs(*self.shape):
            return "shape refused"
        if not self.affordable():
            return "structure would cost more"
        return f"structure would save less than {100 * LEAST_SAVING:g} %"

    def warning(self, knob: int) -> str:
        """What is to be said of a knob that was asked for by number; mostly nothing."""
        in_features, out_features = self.shape
        entries = in_features * out_features * (self.site.area if self.way == "inside" else 1)
        if self.transform is Dense or self.transform.params(*self.shape, knob) <= entries:
            return ""
        return f"more parameters than a dense matrix {in_features} → {out_features}"

    def ladder(self, metric: str, *, published: bool) -> Ladder:
        """The worthwhile knobs and the dense layer.

        The setting shared by all layers is the published normalised knob, or else a share of the dense cost.
        """
        legal, knobs = self.transform.knobs(*self.shape), self.worthwhile(metric)
        dense = self.dense_cost(metric)

        def cost(knob: int) -> int:
            return self.cost(metric, knob)

        def by_scale(scale: float) -> int:
            if not legal:
                return 0
            place = legal.index(self.transform.knob_at(*self.shape, scale))
            return max(0, bisect.bisect_right(knobs, place, key=legal.index) - 1)

        def by_share(share: float) -> int:
            return len(knobs) if share >= 1 else max(0, highest_within(knobs, cost, share * dense))

        return Ladder(knobs, cost, dense, by_scale if published else by_share)

    def ideal_mult_adds(self, knob: int) -> int:
        """All that does not depend on the input done ahead."""
        if self.way == "inside":
            return self.inside_mult_adds(knob)
        vector = self.site.groups * self.transform.ideal_mult_adds(*self.shape, knob) + self.taps(knob)
        return sum(self.site.positions or ()) * vector

    def layer(self, knob: int | None, note: str) -> PlannedLayer:
        """The record of a choice; no knob is the dense layer."""
        site = self.site
        dense = dataclasses.replace(left_alone(site, note), way=self.way)
        if knob is None:
            return dense
        notes = [note, "another module reads its weight, which forms it" if site.weight_reads else ""]
        made = dataclasses.replace(
            dense,
            spec=Spec(self.transform.name, knob, _layer_seed(self.seed, site.path), self.options),
            params=self.params(knob),
            note="; ".join(filter(None, notes)),
        )
        if site.positions is None:
            return made
        return dataclasses.replace(
            made,
            mult_adds=self.mult_adds(knob),
            ideal_mult_adds=self.ideal_mult_adds(knob),
            matrix_mult_adds=self.form_mult_adds(),
        )


def left_alone(site: Site, note: str = "no pattern names it") -> PlannedLayer:
    """The record of a site that stays as it is."""
    return PlannedLayer(
        path=site.path,
        kind=site.kind,
        in_features=site.in_features,
        out_features=site.out_features,
        kernel=site.kernel,
        way="pointwise" if site.area == 1 else "unfolded",
        spec=None,
        dense_params=site.params,
        params=site.params,
        dense_mult_adds=site.mult_adds,
        mult_adds=site.mult_adds,
        ideal_mult_adds=site.mult_adds,
        matrix_mult_adds=site.mult_adds,
        note=note,
        groups=site.groups,
    )


def _layer_seed(seed: int, path: str) -> int:
    """A seed of its own for every layer, the same on every machine."""
    return zlib.crc32(f"{seed}:{path}".encode())


def dense_notes(
    pricings: Mapping[str, Pricing],
    ladders: Sequence[Ladder],
    knobs: Mapping[str, int | None],
    chosen: str,
) -> dict[str, str]:
    """Why layers stay dense: no knob is worth its price, or else for the reason they were chosen by."""
    return {
        path: "stays dense: " + (chosen if ladder.knobs else pricing.why_dense())
        for (path, pricing), ladder in zip(pricings.items(), ladders, strict=True)
        if knobs[path] is None
    }
