"""What a plan says of itself beside its counts: multiples, time, and why a budget cannot be met."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from understudy._util.quantities import format_count, format_share, format_time
from understudy.transforms import get_transform

from .budget import told
from .plan import PlannedLayer
from .planned_time import PlannedTime
from .sites import Site, Sites
from .times import Times

_ABOUT = 1.1  # the model errs by as much


def multiples(layers: Sequence[PlannedLayer], multiple: int) -> str:
    """That ranks are multiples, and how many are not since they are smaller; of other knobs nothing."""
    specs = [layer.spec for layer in layers if layer.spec is not None]
    ranks = [spec.knob for spec in specs if get_transform(spec.transform).has_rank]
    if multiple == 1 or not ranks:
        return ""
    below = sum(rank < multiple for rank in ranks)
    if any(rank > multiple and rank % multiple for rank in ranks):
        return (
            f"not all ranks are multiples of {multiple}: a knob that is asked for by number is taken as it is"
        )
    if below == len(ranks):
        return f"no rank is rounded to a multiple of {multiple}: none of {below} reaches it"
    others = f"; {below} of {len(ranks)} are below it" if below else ""
    return f"ranks above {multiple} are multiples of {multiple}{others}"


def planned_time(survey: Sites, layers: Sequence[PlannedLayer], times: Times) -> PlannedTime:
    """Of the network as it is, and of the student with these layers."""
    before, after = _before_and_after(survey, layers, times)
    whole = times.whole(survey)
    rest = whole - sum(times.site(site) for site in survey.chosen if site.positions is not None)
    return PlannedTime(
        original=times.original(survey),
        student=max(0, whole + after - before),
        rest=max(0, rest),
        is_measured=times.is_measured,
        threads=torch.get_num_threads(),
    )


def pace_remark(survey: Sites, layers: Sequence[PlannedLayer], times: Times) -> str:
    """What is to be said of a student that will be no quicker than its original; mostly nothing."""
    if survey.mult_adds is None:
        return ""
    before, after = _before_and_after(survey, layers, times)
    if _ABOUT * after < before or not before:  # another module reads its weights
        return ""
    threads = torch.get_num_threads()
    how = f"(modelled for {threads} thread{'s' if threads > 1 else ''}; us.speed measures)"
    if after <= _ABOUT * before:
        return (
            "about as quick as the original, perhaps a little slower: for this example its stand-ins take "
            f"about as long as what they stand for {how}"
        )
    return (
        f"smaller, but slower: for this example its stand-ins take about {after / before:.1f} times as long "
        f"as what they stand for {how}"
    )


def _before_and_after(survey: Sites, layers: Sequence[PlannedLayer], times: Times) -> tuple[int, int]:
    """Nanoseconds of what is replaced, and of what stands in for it."""
    sites = {site.path: site for site in survey.chosen}
    before = after = 0
    for layer in layers:
        if layer.spec is not None:
            transform, shape = get_transform(layer.spec.transform), layer.matrix_shape
            before += times.site(sites[layer.path])
            after += times.stand_in(sites[layer.path], transform, layer.way, shape, layer.spec.knob)
    return before, after


def below(label: str, survey: Sites, times: Times, metric: str, budget: int, lowest: int) -> str:
    """Why a budget cannot be met: the cheapest student, and what is in it that is not substituted."""
    text = f"{label} on {survey.model}: "
    if metric == "nanoseconds":
        original, time = times.original(survey), planned_time(survey, (), times)
        how = "measured on this machine" if times.is_measured else "modelled"
        return (
            f"{text}{format_time(budget)} is below what is reachable: {told(metric, lowest)}, which is "
            f"{format_share(lowest, original)} of the original's {format_time(original)}, {how}; "
            f"{format_time(time.rest)} of it lie outside the layers that may be substituted"
        )
    text += f"{told(metric, budget, short=True)} is below what is reachable: {lowest:,}"

    def cost(site: Site) -> int:
        if metric == "mult_adds":
            return site.mult_adds or 0
        return site.params * (site.item_bytes if metric == "bytes" else 1)

    kept = [(cost(site), site) for site in survey.items if site.skip]
    held = sum(held for held, _ in kept)
    if held:
        largest = sorted(kept, key=lambda item: item[0], reverse=True)[:3]
        named = [f"{site.path} {format_count(part)}, {site.skip}" for part, site in largest if part]
        text += f"; of these {held:,} lie in layers that are not substituted ({'; '.join(named)})"
    return text
