"""Where a network can be substituted: model → sites, with the reason for each that is passed over."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import math
from collections.abc import Callable, Iterator, Sequence
from typing import overload

from torch import nn
from torch.nn.parameter import is_lazy

from understudy._util.guard import the_network
from understudy._util.nearest import nearest
from understudy._util.quantities import format_count, format_shape
from understudy._util.text_tables import Shown, Table, table
from understudy.counting.trace import Example, Trace, trace
from understudy.layers.attention import Attention
from understudy.layers.dense import Kind, dense_map
from understudy.layers.geometry import DenseConv
from understudy.layers.layer import Layer
from understudy.layers.opening import norm_params, opened
from understudy.layers.spread import Transposed

from .headers import of_network as bytes_of_network
from .obstacles import kind_of, obstacle, weight_owners

Include = Sequence[str] | Callable[["Site"], bool]


@dataclasses.dataclass(frozen=True)
class Site:
    """One module that holds a weight matrix; `skip` says why it is not substituted, and is None if it is.

    >>> import understudy as us
    >>> first = us.sites(us.create_model("resnet20"))[0]
    >>> first.path, first.kernel, first.skip
    ('conv1', (3, 3), 'the first convolution, excluded by default')
    """

    path: str
    kind: Kind
    type: str
    in_features: int
    out_features: int
    kernel: tuple[int, ...]
    params: int  # of the weight, without the bias
    item_bytes: int  # of each of them
    positions: tuple[int, ...] | None  # output vectors of each call; None without an example
    weight_reads: int  # uses of the weight by another module, as torchvision's Swin does
    mult_adds: int | None
    skip: str | None
    groups: int = 1  # of a convolution
    pixels: tuple[int, ...] | None = None  # input vectors of each call; None without an example
    other_paths: tuple[str, ...] = ()  # where the very same module stands too

    @property
    def area(self) -> int:
        """Taps of the kernel; 1 for a linear layer."""
        return math.prod(self.kernel)

    @property
    def shape(self) -> str:
        """`3×3 160 → 320` or `512 → 10`."""
        return format_shape(self.kernel, self.in_features, self.out_features, self.groups)

    def matches(self, pattern: str) -> bool:
        """Whether a pattern names the module, a module that holds it, or its type."""
        parts = self.path.split(".")
        names = [self.type, *(".".join(parts[: depth + 1]) for depth in range(len(parts)))]
        return any(fnmatch.fnmatchcase(name, pattern) for name in names)


@dataclasses.dataclass(frozen=True, repr=False)
class Sites(Shown, Sequence[Site]):
    """All sites of a network, in the order in which it registers them.

    >>> import understudy as us
    >>> found = us.sites(us.create_model("resnet20"), include=["layer1"])
    >>> len(found), len(found.chosen)
    (20, 6)
    """

    model: str
    items: tuple[Site, ...]
    params: int  # of the whole network
    mult_adds: int | None  # of the whole network
    bytes: int  # of the whole network's tensors, as they are saved
    header_bytes: int  # of their names, shapes and places in the file, at most
    include: tuple[str, ...] = ()  # as asked for
    exclude: tuple[str, ...] = ()

    @property
    def chosen(self) -> list[Site]:
        """Those that will be substituted."""
        return [site for site in self.items if site.skip is None]

    @overload
    def __getitem__(self, index: int) -> Site: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Site, ...]: ...
    def __getitem__(self, index: int | slice) -> Site | tuple[Site, ...]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Site]:
        return iter(self.items)

    def nearest(self, pattern: str) -> str:
        """The paths and types most like a pattern that names nothing, in words."""
        names = list(dict.fromkeys([site.path for site in self] + [site.type for site in self]))
        return f"the nearest are {', '.join(map(repr, nearest(pattern, names) or names[:3]))}"

    def __repr__(self) -> str:
        return f"<Sites: {len(self.chosen)} of {len(self)} sites of {self.model} are substituted>"

    def table(self) -> Table:
        """A row for every site."""
        rows = (
            (
                site.path or "(the network itself)",
                site.type,
                site.shape,
                format_count(site.params),
                format_count(site.mult_adds),
                "yes" if site.skip is None else f"no: {site.skip}",
            )
            for site in self.items
        )
        chosen = self.chosen
        return table(
            ["module", "type", "shape", ">parameters", ">mult-adds", "substituted"],
            rows,
            caption=f"{len(chosen)} of {len(self)} sites are substituted; they hold "
            f"{format_count(sum(site.params for site in chosen))} of {format_count(self.params)} parameters",
            yielding=("type", "mult-adds"),
        )


def sites(
    model: nn.Module,
    example: Example | None = None,
    *,
    include: Include | None = None,
    exclude: Sequence[str] | None = None,
    meta: bool = True,
) -> Sites:
    """List every module with a weight matrix and whether it will be substituted. The model is not changed.

    By default all nn.Linear and convolutions of torch are, weight-normed or not, what computes the same, the
    projections of nn.MultiheadAttention (its q_proj, k_proj, v_proj and out_proj) and the maps of transposed
    convolutions (their `taps`, from a pixel to all that it gives), but for the first convolution and the last
    layer, in the order in which they run on the `example` or, without one, are registered.
    `include` names what is wanted instead, `exclude` what is not: glob patterns on module paths ("layer1",
    "*.conv2") and type names ("Linear"); `include` may also be a function of a Site. With an `example`, an
    input or its shape, the mult-adds of each site are counted.

    >>> import understudy as us
    >>> us.sites(us.create_model("resnet20"))
    <Sites: 18 of 20 sites of CifarResNet are substituted>
    """
    network = opened(the_network(model, lazy=True))  # every map of a closed layer is one by itself
    record = trace(network, example, meta=meta) if example is not None else None
    owners = weight_owners(network)
    norms = norm_params(model)
    places = collections.defaultdict(list)
    for path, module in network.named_modules(remove_duplicate=False):
        places[module].append(path)
    parts: set[nn.Module] = set()  # what belongs to a layer (its factors, its parametrisation) is no site
    found = []
    for path, module in network.named_modules():
        if module not in parts and _holds_matrix(module):
            site = _site(path, module, record, obstacle(path, module, owners))
            params, others = site.params + norms.get(path, 0), tuple(places[module][1:])
            found.append(dataclasses.replace(site, params=params, other_paths=others))
            if _is_layer(module):
                parts.update(module.modules())
    called = {path: place for place, path in enumerate(record.outputs)} if record else {}
    total = sum(parameter.numel() for parameter in model.parameters() if not is_lazy(parameter))
    whole = record.mult_adds.total() if record else None
    everything = Sites(type(model).__name__, tuple(found), total, whole, *bytes_of_network(model))
    selected = _select(everything, include, exclude, called)
    wanted = [site.path for site in selected if not site.skip] if callable(include) else include
    return dataclasses.replace(
        everything, items=selected, include=tuple(wanted or ()), exclude=tuple(exclude or ())
    )


def _holds_matrix(module: nn.Module) -> bool:
    if isinstance(module, Attention):  # its layers do
        return False
    own = module.parameters(recurse=False)
    return _is_layer(module) or any(is_lazy(parameter) or parameter.dim() >= 2 for parameter in own)


def _is_layer(module: nn.Module) -> bool:
    """Whether all that a module holds belongs to one map."""
    return isinstance(module, Layer | Transposed) or kind_of(module) != "other"


def _site(path: str, module: nn.Module, record: Trace | None, skip: str | None) -> Site:
    kernel: tuple[int, ...] = ()
    in_features = out_features = params = 0
    whole = _is_layer(module)  # parts of others are sites themselves
    matrices = [p for p in module.parameters(recurse=whole) if not is_lazy(p) and p.dim() >= 2]
    if isinstance(module, DenseConv | Transposed):
        kernel = module.kernel_size
        in_features, out_features = module.in_channels, module.out_channels
    elif matrices and not isinstance(module, Layer):
        dense = dense_map(module)
        stored = matrices[0].T if dense is not None and dense.transposed else matrices[0]
        out_features, in_features = stored.shape[0], stored.shape[1]
    params = sum(p.numel() for p in matrices)
    positions = pixels = None
    if record is not None:
        pixels = tuple(math.prod(shape) // max(1, in_features) for shape in record.inputs.get(path, []))
        positions = tuple(math.prod(shape) // max(1, out_features) for shape in record.outputs.get(path, []))
    return Site(
        path=path,
        kind=kind_of(module),
        type=type(module).__name__,
        in_features=in_features,
        out_features=out_features,
        kernel=kernel,
        params=params,
        item_bytes=min((p.element_size() for p in matrices), default=0),
        positions=positions,
        weight_reads=record.weight_reads[path] if record else 0,
        mult_adds=record.mult_adds[path] if record else None,
        skip=skip,
        groups=module.groups if isinstance(module, DenseConv | Transposed) else 1,
        pixels=pixels,
    )


def _select(
    found: Sites, include: Include | None, exclude: Sequence[str] | None, called: dict[str, int]
) -> tuple[Site, ...]:
    """The sites with the reason for each that is not wanted."""
    patterns = () if include is None or callable(include) else include
    for label, given in (("include", patterns), ("exclude", exclude or ())):
        if isinstance(given, str):
            raise TypeError(f"{label} is {given!r}; give a list of patterns: [{given!r}]")
        for pattern in given:
            _check_pattern(label, pattern, found)
    by_default = {} if include is not None else _left_out_by_default(found, called)
    chosen = []
    for site in found:
        skip = site.skip or by_default.get(site.path)
        if skip is None and include is not None:
            wanted = include(site) if callable(include) else any(map(site.matches, patterns))
            skip = None if wanted else "not included"
        if skip is None:
            skip = next((f"excluded by {p!r}" for p in exclude or () if site.matches(p)), None)
        chosen.append(dataclasses.replace(site, skip=skip))
    return tuple(chosen)


def _check_pattern(label: str, pattern: object, found: Sites) -> None:
    """Refuse a pattern that names nothing, or that includes only what cannot be substituted."""
    if not isinstance(pattern, str):
        raise TypeError(f"{label} holds {pattern!r}, which is not a pattern")
    named = [site for site in found if site.matches(pattern)]
    if not named:
        raise ValueError(f"{label} pattern {pattern!r} matches no site; {found.nearest(pattern)}")
    by_name = not any(character in pattern for character in "*?[")
    if label == "include" and by_name and all(site.skip for site in named):
        told = "; ".join(f"{site.path or '(the network itself)'}: {site.skip}" for site in named[:3])
        raise ValueError(f"include pattern {pattern!r} names only what cannot be substituted ({told})")


def _left_out_by_default(found: Sites, called: dict[str, int]) -> dict[str, str]:
    """The first convolution and the last layer, as they run or, without an example, as registered."""
    dense = [site for site in found if site.kind != "other" and (not called or site.path in called)]
    dense.sort(key=lambda site: called.get(site.path, 0))
    if len(dense) < 2:
        return {}
    reasons = {dense[-1].path: "the last layer, excluded by default"}
    stem = next((site for site in dense if site.kind != "linear"), None)
    if stem is not None:
        reasons[stem.path] = "the first convolution, excluded by default"
    return reasons
