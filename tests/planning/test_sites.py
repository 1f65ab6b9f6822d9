"""Sites: what is found, why the rest is passed over, what it costs now, and that looking changes nothing."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

import understudy as us
from reading import ReadingAttention, reading_encoder
from snapshots import snapshot
from understudy.planning.sites import Site


class Small(nn.Module):
    """A stem, a block of three convolutions of which one is depthwise and one grouped, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.block = nn.Sequential(
            nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.Conv2d(16, 16, 3, padding=1, groups=16),
            nn.Conv2d(16, 24, 1, groups=2),
            nn.Conv2d(24, 12, (3, 1), dilation=(2, 1)),
        )
        self.hidden = nn.Linear(12, 20)
        self.head = nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(torch.relu(self.stem(x))).mean(dim=(2, 3))
        logits: Tensor = self.head(torch.relu(self.hidden(x)))
        return logits


IMAGE = torch.zeros(2, 3, 16, 16)


def by_path(model: nn.Module, example: Any = None, **filters: Any) -> dict[str, Site]:
    return {site.path: site for site in us.sites(model, example, **filters)}


def chosen(model: nn.Module, **filters: Any) -> list[str]:
    return [site.path for site in us.sites(model, **filters).chosen]


def reason(module: nn.Module, path: str = "0") -> str:
    """Why the first layer of a network is passed over, everything being asked for."""
    network = nn.Sequential(module, nn.Linear(4, 4))
    skip = by_path(network, include=["*"])[path].skip
    assert skip is not None, "the site was chosen"
    return skip


# ---- what is chosen --------------------------------------------------------------------------------------


def test_all_dense_layers_but_the_first_convolution_and_the_last_layer_are_chosen() -> None:
    found = by_path(Small())
    assert [path for path, site in found.items() if site.skip is None] == [
        "block.0",
        "block.3",
        "block.4",
        "hidden",
    ]
    assert found["stem"].skip == "the first convolution, excluded by default"
    assert found["head"].skip == "the last layer, excluded by default"


def test_a_network_of_linear_layers_has_no_first_convolution_to_exclude() -> None:
    assert chosen(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 2))) == ["0", "1"]


def test_a_convolution_over_time_is_a_first_convolution_too() -> None:
    assert chosen(
        nn.Sequential(nn.Linear(4, 5), nn.Conv1d(5, 6, 3), nn.Conv1d(6, 6, 3), nn.Linear(6, 2))
    ) == ["0", "2"]


def test_a_lone_layer_is_chosen_though_it_is_first_and_last() -> None:
    assert chosen(nn.Sequential(nn.Conv2d(4, 8, 3))) == ["0"]
    assert chosen(nn.Linear(4, 8)) == [""]


def test_modules_without_a_matrix_are_no_sites() -> None:
    assert "block.1" not in by_path(Small())
    assert len(us.sites(nn.Sequential(nn.ReLU(), nn.BatchNorm1d(4)))) == 0


def test_a_site_knows_its_shape() -> None:
    found = by_path(Small())
    assert found["block.4"] == Site(
        path="block.4",
        kind="conv2d",
        type="Conv2d",
        in_features=24,
        out_features=12,
        kernel=(3, 1),
        params=24 * 12 * 3,
        item_bytes=4,
        positions=None,
        weight_reads=0,
        mult_adds=None,
        skip=None,
    )
    assert (found["block.4"].area, found["block.4"].shape) == (3, "3×1 24 → 12")
    assert (found["hidden"].area, found["hidden"].shape) == (1, "12 → 20")
    assert [found[path].kind for path in ("stem", "hidden")] == ["conv2d", "linear"]


def test_the_sites_behave_as_a_sequence() -> None:
    survey = us.sites(Small())
    assert len(survey) == 7
    assert survey[0].path == "stem"
    assert [site.path for site in survey[-2:]] == ["hidden", "head"]
    assert survey[0] in survey
    assert survey.params == sum(parameter.numel() for parameter in Small().parameters())


# ---- why a module is passed over -------------------------------------------------------------------------


class Scaled(nn.Linear):
    """Computes in its own way."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Standardised(nn.Conv2d):
    """Overrides the inner step of a convolution only."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out: Tensor = super()._conv_forward(input, weight - weight.mean(), bias)
        return out


class Renamed(nn.Linear):
    """A subclass that computes as its parent does."""


class Bare(nn.Module):
    """A matrix of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(4, 6))


def lazy_linear() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that lazy modules are new
        return nn.LazyLinear(4)


def legacy_weight_norm(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and still in many networks
        return nn.utils.weight_norm(module)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Conv2d(4, 4, 3, groups=4), "already depthwise"),
        (nn.Conv2d(4, 8, 3, groups=4), "already depthwise"),
        (nn.Conv1d(4, 4, 3, groups=4), "already depthwise"),
        (nn.Embedding(4, 4), "embedding"),
        (nn.EmbeddingBag(4, 4), "embedding"),
        (ReadingAttention(4, 2), "ReadingAttention computes in its own way"),
        (nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 3)), "its weight is computed from"),
        (nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)), "its weight is computed from"),
        (legacy_weight_norm(nn.Linear(4, 4)), "its weight is computed from weight_g, weight_v"),
        (Scaled(4, 4), "Scaled computes in its own way"),
        (Standardised(4, 4, 3), "Standardised computes in its own way"),
        (lazy_linear(), "its shape is not known before its first call"),
        (nn.Linear(4, 4, dtype=torch.complex64), "its weight is torch.complex64, not floating point"),
        (
            nn.Bilinear(4, 4, 4),
            "torch.nn.modules.linear.Bilinear is neither torch's Linear nor a convolution",
        ),
        (nn.Conv3d(4, 4, 3, groups=4), "already depthwise"),
        (nn.LSTM(4, 4), "LSTM is neither torch's Linear nor a convolution"),
        (Bare(), "Bare is neither torch's Linear nor a convolution"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_substituted_is_passed_over_with_the_reason(module: nn.Module, words: str) -> None:
    assert words in reason(module)


def test_a_forward_that_was_patched_onto_an_instance_is_its_own_way_too() -> None:
    module = nn.Linear(4, 4)
    module.forward = functools.partial(Scaled.forward, module)  # type: ignore[method-assign, arg-type]
    assert "in its own way" in reason(module)


def test_a_weight_that_others_have_quantised_or_sharded_is_passed_over() -> None:
    module = nn.Linear(4, 4)
    halves = TwoTensor(torch.zeros(4, 4), torch.zeros(4, 4))
    module.weight = nn.Parameter(halves)
    assert reason(module) == "its weight is a TwoTensor, not a plain tensor: make stand-ins before that"


def test_an_output_projection_of_attention_is_a_site_though_it_is_a_subclass() -> None:
    found = by_path(nn.Sequential(nn.MultiheadAttention(4, 2), nn.Linear(4, 4)))
    assert found["0.out_proj"].skip is None
    assert found["0.out_proj"].type == "NonDynamicallyQuantizableLinear"


def test_a_subclass_that_computes_as_its_parent_does_is_chosen() -> None:
    assert chosen(nn.Sequential(Renamed(4, 4), nn.Linear(4, 4))) == ["0"]


def test_tied_weights_are_passed_over_on_both_sides_with_the_other_named() -> None:
    embedding, decoder = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
    decoder.weight = embedding.weight
    twin = nn.Linear(4, 4)
    other = nn.Linear(4, 4)
    other.weight = twin.weight
    found = by_path(nn.Sequential(embedding, twin, other, decoder), include=["*"])
    assert found["1"].skip == "its weight is shared with 2"
    assert found["2"].skip == "its weight is shared with 1"
    assert found["3"].skip == "its weight is shared with 0"


def test_a_weight_that_is_also_a_parameter_of_the_network_itself_is_passed_over() -> None:
    first = nn.Linear(4, 4)
    network = nn.Sequential(first, nn.Linear(4, 4))
    network.register_parameter("kept", first.get_parameter("weight"))
    assert by_path(network)["0"].skip == "its weight is shared with the network itself"


def test_a_tied_bias_is_not_torn_apart() -> None:
    network = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    network[1].bias = network[0].bias
    found = by_path(network)
    assert [found[path].skip for path in ("0", "1")] == [
        "its bias is shared with 1",
        "its bias is shared with 0",
    ]
    plan = us.plan(network, "low_rank", knob=1)
    student = us.substitute(network, plan)
    assert sum(parameter.numel() for parameter in student.parameters()) == plan.params


def test_a_shared_module_is_one_site() -> None:
    shared = nn.Linear(4, 4)
    assert list(by_path(nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(4, 2)))) == ["0", "3"]


@pytest.mark.parametrize("spatial", ["separable", "unfolded"])
def test_what_is_already_substituted_is_one_site_and_passed_over(spatial: Any) -> None:
    student = us.substitute(Small(), us.plan(Small(), "low_rank", knob=2, spatial=spatial))
    found = by_path(student, IMAGE)
    assert {path for path, site in found.items() if site.skip == "already substituted"} == {
        "block.0",
        "block.3",
        "block.4",
        "hidden",
    }
    assert list(found) == list(by_path(Small()))
    layer = student.get_submodule("block.0")
    assert found["block.0"].params == sum(parameter.numel() for parameter in layer.parameters())


# ---- filters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        (["stem"], ["stem"]),
        (["head"], ["head"]),
        (["block"], ["block.0", "block.3", "block.4"]),
        (["block.*"], ["block.0", "block.3", "block.4"]),
        (["*.4"], ["block.4"]),
        (["h*"], ["hidden", "head"]),
        (["Linear"], ["hidden", "head"]),
        (["Conv2d"], ["stem", "block.0", "block.3", "block.4"]),
        (["*Conv*", "head"], ["stem", "block.0", "block.3", "block.4", "head"]),
        (["*"], ["stem", "block.0", "block.3", "block.4", "hidden", "head"]),
    ],
)
def test_include_names_paths_ancestors_and_types(include: list[str], expected: list[str]) -> None:
    assert chosen(Small(), include=include) == expected


@pytest.mark.parametrize(
    ("exclude", "expected"),
    [
        (["hidden"], ["block.0", "block.3", "block.4"]),
        (["block"], ["hidden"]),
        (["block.[0-3]"], ["block.4", "hidden"]),
        (["Linear"], ["block.0", "block.3", "block.4"]),
        (["*"], []),
    ],
)
def test_exclude_names_paths_ancestors_and_types(exclude: list[str], expected: list[str]) -> None:
    assert chosen(Small(), exclude=exclude) == expected


def test_exclude_wins_over_include_and_each_says_so() -> None:
    found = by_path(Small(), include=["block", "hidden"], exclude=["*.4"])
    assert found["block.0"].skip is None
    assert found["block.4"].skip == "excluded by '*.4'"
    assert found["head"].skip == "not included"
    assert found["block.2"].skip == "already depthwise"


@pytest.mark.parametrize("word", ["include", "exclude"])
def test_a_pattern_that_matches_nothing_names_the_nearest_paths(word: str) -> None:
    with pytest.raises(
        ValueError, match=rf"{word} pattern 'hiden' matches no site; the nearest are 'hidden'"
    ):
        by_path(Small(), **{word: ["stem", "hiden"]})


def test_a_pattern_for_a_misspelt_type_names_the_type() -> None:
    with pytest.raises(ValueError, match="'Linear'"):
        us.sites(Small(), include=["linear"])


def test_a_layer_that_is_named_and_cannot_be_substituted_is_an_error_with_the_reason() -> None:
    words = r"include pattern 'block.2' names only what cannot be substituted \(block.2: already depthwise\)"
    with pytest.raises(ValueError, match=words):
        us.sites(Small(), include=["block.2", "Conv2d"])
    assert "block.0" in chosen(Small(), include=["Conv2d"])


def test_what_is_wanted_may_be_said_by_a_function_of_the_site() -> None:
    found = us.sites(Small(), include=lambda site: site.params > 500)
    assert [site.path for site in found.chosen] == ["block.0", "block.4"]
    assert found.include == ("block.0", "block.4")


class Casting(nn.Linear):
    """As timm's and several of transformers' linear layers do."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x.to(self.weight.dtype), self.weight, self.bias)


class ByHand(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Shifted(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


class NoisyInTraining(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(x, training=self.training))


class Backwards(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class WithoutItsBias(nn.Linear):
    """Which whoever calls it adds."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight)


class InDouble(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x.double(), self.weight.double(), self.bias.double())


class SameIfOdd(nn.Conv2d):
    """As several networks of others that were first TensorFlow's."""

    def forward(self, x: Tensor) -> Tensor:
        missing = [-side % 2 for side in x.shape[2:]]
        return super().forward(nn.functional.pad(x, (0, missing[1], 0, missing[0])) if any(missing) else x)


class Mirrored(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.weight.transpose(0, 1), self.bias, self.stride, self.padding)


class Unstrided(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.weight, self.bias, padding=1)[..., ::2, ::2]


class Through(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.weight, self.bias, self.stride, self.padding)


@pytest.mark.parametrize(
    ("layer", "is_its_own"),
    [
        (Backwards(4, 4), True),
        (WithoutItsBias(4, 4), True),
        (WithoutItsBias(4, 4, bias=False), False),
        (InDouble(4, 4), True),
        (SameIfOdd(4, 4, 2, stride=2), True),
        (Mirrored(4, 4, 3), True),
        (Unstrided(4, 4, 3, stride=2, padding=1), True),
        (Through(4, 8, 3, stride=2, padding=1), False),
        (Through(4, 8, 3, padding=1, padding_mode="reflect"), True),
        (Through(4, 8, 3, dilation=2), True),
    ],
)
def test_a_subclass_is_passed_over_unless_its_product_is_that_of_its_parent(
    layer: nn.Module, is_its_own: bool
) -> None:
    skip = by_path(nn.Sequential(layer, nn.Linear(4, 4)), include=["*"])["0"].skip
    assert skip == (f"{type(layer).__name__} computes in its own way" if is_its_own else None)


@pytest.mark.parametrize("subclass", [Casting, ByHand])
def test_a_subclass_that_only_casts_or_passes_through_is_a_site(subclass: type[nn.Linear]) -> None:
    model = nn.Sequential(subclass(16, 16), nn.Linear(16, 4))
    assert chosen(model, include=[subclass.__name__]) == ["0"]
    x = torch.randn(3, 16)
    student = us.substitute(model, us.plan(model, "low_rank", knob=7, include=["0"]))
    assert not torch.equal(student(x), model(x))


@pytest.mark.parametrize("subclass", [Doubled, Shifted, NoisyInTraining])
def test_a_subclass_that_computes_anything_else_is_passed_over(subclass: type[nn.Linear]) -> None:
    assert reason(subclass(4, 4)) == f"{subclass.__name__} computes in its own way"


@pytest.mark.parametrize("word", ["include", "exclude"])
def test_a_pattern_in_place_of_a_list_is_refused_with_the_list_to_write(word: str) -> None:
    with pytest.raises(TypeError, match=rf"{word} is 'stem'; give a list of patterns: \['stem'\]"):
        by_path(Small(), **{word: "stem"})


# ---- counts ----------------------------------------------------------------------------------------------


def test_the_mult_adds_of_each_site_are_those_of_its_shape() -> None:
    found = by_path(Small(), IMAGE)
    assert {path: (site.positions, site.mult_adds) for path, site in found.items()} == {
        "stem": ((2 * 16 * 16,), 2 * 16 * 16 * 8 * 3 * 9),
        "block.0": ((2 * 8 * 8,), 2 * 8 * 8 * 16 * 8 * 9),
        "block.2": ((2 * 8 * 8,), 2 * 8 * 8 * 16 * 9),
        "block.3": ((2 * 8 * 8,), 2 * 8 * 8 * 24 * 16 // 2),
        "block.4": ((2 * 4 * 8,), 2 * 4 * 8 * 12 * 24 * 3),
        "hidden": ((2,), 2 * 12 * 20),
        "head": ((2,), 2 * 20 * 10),
    }
    survey = us.sites(Small(), IMAGE)
    assert survey.mult_adds == sum(site.mult_adds or 0 for site in found.values())


def test_a_site_that_is_called_twice_has_two_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Linear(4, 4)
            self.unused = nn.Linear(4, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.shared(self.shared(x)[:3]))
            return logits

    found = by_path(Twice(), torch.zeros(5, 4))
    assert (found["shared"].positions, found["shared"].mult_adds) == ((5, 3), 8 * 16)
    assert (found["unused"].positions, found["unused"].mult_adds) == ((), 0)


def test_a_single_vector_is_an_example_too() -> None:
    found = by_path(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), torch.zeros(4))
    assert [site.mult_adds for site in found.values()] == [24, 12]


def test_a_weight_read_by_its_parent_is_counted_as_read() -> None:
    network = reading_encoder(8)
    found = by_path(network, torch.zeros(1, 5, 8), include=["*"])
    assert (found["self_attn.out_proj"].weight_reads, found["self_attn.out_proj"].positions) == (1, ())
    assert (found["linear1"].weight_reads, found["linear1"].positions) == (0, (5,))


@pytest.mark.parametrize(
    "module",
    [
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
        legacy_weight_norm(nn.Linear(4, 4)),
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)),
    ],
    ids=["weight_norm", "legacy_weight_norm", "spectral_norm"],
)
def test_a_network_with_computed_weights_can_be_counted(module: nn.Module) -> None:
    survey = us.sites(nn.Sequential(module, nn.Linear(4, 4)), torch.zeros(3, 4))
    assert (survey.mult_adds or 0) >= 2 * 3 * 16


def test_an_example_of_the_wrong_shape_is_named() -> None:
    with pytest.raises(ValueError, match=r"Small cannot run on an example of shape \[\(2, 4, 16, 16\)\]"):
        us.sites(Small(), torch.zeros(2, 4, 16, 16))


# ---- nothing is changed, and it prints -------------------------------------------------------------------


@pytest.mark.parametrize("meta", [True, False])
def test_looking_changes_nothing(meta: bool) -> None:
    model = Small()
    model.block[1].eval()
    model.hidden.weight.requires_grad_(False)
    model.hidden.register_forward_hook(lambda *_: None)
    model.stem.register_forward_pre_hook(lambda *_: None)
    before = snapshot(model)
    us.sites(model, IMAGE, meta=meta)
    us.sites(model)
    with pytest.raises(ValueError, match="cannot run"):
        us.sites(model, torch.zeros(1), meta=meta)
    assert snapshot(model) == before


def test_looking_works_without_weights() -> None:
    with torch.device("meta"):
        model = Small()
    assert us.sites(model, IMAGE) == us.sites(Small(), IMAGE)


def test_the_sites_print_as_a_table_with_every_reason() -> None:
    text = str(us.sites(Small(), IMAGE))
    lines = text.splitlines()
    assert "module" in lines[0]
    assert "substituted" in lines[0]
    assert any(
        "block.4" in line and "3×1 24 → 12" in line and "864" in line and "yes" in line for line in lines
    )
    assert "no: already depthwise" in text
    assert "no: the first convolution, excluded by default" in text
    assert "4 of 7 sites" in text
    assert max(map(len, lines)) <= 140


def test_the_network_itself_prints_under_a_name() -> None:
    assert "(the network itself)" in str(us.sites(nn.Linear(4, 8)))


def test_what_is_left_out_by_default_follows_the_order_of_the_calls_where_it_is_known() -> None:
    class Backwards(nn.Module):
        """Registers its layers in the other order."""

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 10)
            self.body = nn.Linear(8, 8)
            self.start = nn.Linear(4, 8)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(self.body(self.start(x)))
            return y

    assert [site.path for site in us.sites(Backwards(), torch.zeros(1, 4)).chosen] == ["body", "start"]
