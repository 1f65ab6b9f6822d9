"""Networks by name: built in, from the three libraries, from any factory; and an input for each."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import understudy as us
from understudy import UnknownModelError
from understudy.networks import models, nets
from understudy.networks.trained import published_model

# ---- built in --------------------------------------------------------------------------------------------


def test_the_names_are_sorted_and_every_one_is_made() -> None:
    names = us.list_models()
    assert names == sorted(names)
    assert {"darts", "resnet20", "resnet56", "wrn_16_1", "wrn_28_10", "wrn_50_2"} <= set(names)
    with torch.device("meta"):
        for name in names:
            model = us.create_model(name)
            example = us.example_input(name, model)
            assert isinstance(example, torch.Tensor)
            assert example.shape == (1, *nets.input_shape(name))


def test_wide_networks_of_other_depths_and_widths_are_built_in() -> None:
    with torch.device("meta"):
        assert isinstance(us.create_model("wrn_10_3"), nets.WideResNet)


def test_options_go_to_the_network() -> None:
    with torch.device("meta"):
        model = us.create_model("wrn_16_1", classes=100)
    assert model.get_parameter("head.weight").shape == (100, 64)


@pytest.mark.parametrize(
    ("name", "near"),
    [("wrn_28-10", "wrn_28_10"), ("resnet5", "resnet56"), ("dart", "darts"), ("wrn_27_10", "wrn_28_10")],
)
def test_an_unknown_name_is_refused_with_the_nearest_and_the_other_forms(name: str, near: str) -> None:
    with pytest.raises(UnknownModelError, match=rf"no network '{name}' \(did you mean .*{near}") as caught:
        us.create_model(name)
    for form in ("timm:NAME", "torchvision:NAME", "transformers:NAME", "package.module:factory"):
        assert form in str(caught.value)


@pytest.mark.parametrize("name", ["", "timm:", "no such thing", "wrn_16_0"])
def test_what_is_no_name_at_all_is_refused(name: str) -> None:
    with pytest.raises(UnknownModelError, match="no network"):
        us.create_model(name)


# ---- libraries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("timm:resnet10t", {"num_classes": 7}),
        ("torchvision:squeezenet1_1", {"num_classes": 7}),
        (
            "transformers:distilbert",
            {
                "dim": 16,
                "hidden_dim": 32,
                "n_layers": 1,
                "n_heads": 2,
                "vocab_size": 50,
                "max_position_embeddings": 16,
            },
        ),
    ],
)
def test_a_network_of_a_library_is_made_with_its_options(name: str, options: dict[str, Any]) -> None:
    model = us.create_model(name, **options)
    assert isinstance(model, nn.Module)
    sizes = {tuple(parameter.shape) for parameter in model.parameters()}
    assert any(7 in size for size in sizes) or (50, 16) in sizes


@pytest.mark.parametrize(
    ("name", "near"),
    [("timm:resnet81", "resnet18"), ("torchvision:resnet81", "resnet18"), ("timm:vit_tiny", "vit")],
)
def test_an_unknown_name_of_a_library_is_refused_with_the_nearest(name: str, near: str) -> None:
    library, _, rest = name.partition(":")
    with pytest.raises(
        UnknownModelError, match=rf"{library} has no network '{rest}' \(did you mean .*{near}"
    ):
        us.create_model(name)


@pytest.mark.parametrize(
    ("reached", "proxies", "asked"),
    [(False, {}, {"local_files_only": True}), (True, {}, {}), (False, {"https": "http://proxy"}, {})],
    ids=["offline", "online", "behind a proxy"],
)
def test_a_hub_that_cannot_be_reached_is_not_asked_again_and_again(
    monkeypatch: pytest.MonkeyPatch, reached: bool, proxies: dict[str, str], asked: dict[str, bool]
) -> None:
    import transformers

    def connect(place: tuple[str, int], timeout: float) -> contextlib.nullcontext[None]:
        assert place[1] == 443
        assert timeout <= 5
        if not reached:
            raise OSError("no network here")
        return contextlib.nullcontext()

    seen: list[dict[str, object]] = []

    def look(_name: str, **options: object) -> None:
        seen.append(options)
        raise OSError("nothing found")

    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setattr("urllib.request.getproxies", lambda: proxies)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", look)
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", look)
    with pytest.raises(UnknownModelError, match="nothing found"):
        us.create_model("transformers:nope")
    with pytest.raises(ValueError, match="nothing found"):
        published_model("transformers:nope")
    assert seen == [asked, asked]


def test_an_unknown_model_type_of_transformers_is_refused_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import transformers

    def offline(*_args: object, **_options: object) -> None:
        raise OSError("no network here")

    monkeypatch.setattr(models, "hub_options", lambda _: {})
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", offline)
    with pytest.raises(UnknownModelError, match=r"no model type or folder 'berd' \(did you mean .*bert"):
        us.create_model("transformers:berd")


@pytest.mark.parametrize(
    ("name", "extra"),
    [("timm:resnet18", "vision"), ("torchvision:resnet18", "vision"), ("transformers:bert", "text")],
)
def test_a_library_that_is_not_installed_is_an_error_that_names_the_extra(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = name.partition(":")[0]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ImportError, match=rf"{library} cannot be imported .*pip install 'understudy\[{extra}\]'"
    ):
        us.create_model(name)


def test_builds_that_do_not_fit_are_named_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("understudy.networks.models.importlib.import_module", fail)
    for library in ("torchvision", "timm"):  # which imports it
        with pytest.raises(
            ImportError, match=r"torchvision .* do not fit \(operator .*: their builds"
        ) as caught:
            us.create_model(f"{library}:resnet18")
        assert torch.__version__ in str(caught.value)
        assert "understudy[" not in str(caught.value)


def test_only_built_in_networks_are_made_without_weights() -> None:
    with models.weightless("wrn_10_1"):
        assert us.create_model("wrn_10_1").get_parameter("head.weight").is_meta
    with models.weightless("torch.nn:Linear"):
        assert not us.create_model("torch.nn:Linear", in_features=1, out_features=1).weight.is_meta


# ---- factories -------------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of somebody's own."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "nets.py").write_text(
        "from torch import nn\n"
        "def perceptron(width=8):\n    return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))\n"
        "def number():\n    return 7\n"
        "constant = 7\n"
        "def needs(width):\n    return nn.Linear(width, width)\n"
        "def fails():\n    raise RuntimeError('out of luck')\n"
    )
    (package / "broken.py").write_text("import no_such_dependency\n")
    (package / "torn.py").write_text("def perceptron(:\n")
    (package / "beside.py").write_text("from widths import WIDTH\nfrom nets import perceptron\n"
                                       "def make():\n    return perceptron(WIDTH)\n")  # fmt: skip
    (package / "widths.py").write_text("WIDTH = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("mine")
def test_a_factory_is_called_with_the_options() -> None:
    assert us.create_model("mine.nets:perceptron").get_parameter("0.weight").shape == (8, 4)
    assert us.create_model("mine.nets:perceptron", width=5).get_parameter("0.weight").shape == (5, 4)


@pytest.mark.usefixtures("mine")
def test_a_factory_may_lie_in_a_file_and_use_what_lies_beside_it() -> None:
    before = list(sys.path)
    assert us.create_model("./mine/nets.py:perceptron", width=5).get_parameter("0.weight").shape == (5, 4)
    assert us.create_model("mine/beside.py:make").get_parameter("0.weight").shape == (3, 4)
    assert sys.path == before


def test_a_class_is_a_factory_too() -> None:
    assert type(us.create_model("torch.nn:Linear", in_features=3, out_features=2)) is nn.Linear


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.nets:perceptron", "no module 'nowhere.nets' for 'nowhere.nets:perceptron'"),
        ("mine.nests:perceptron", "no module 'mine.nests' for 'mine.nests:perceptron'"),
        ("mine.nets:perceptrons", r"mine.nets:perceptrons does not exist \(did you mean 'perceptron'"),
        ("mine.nets:number", "mine.nets:number gave a int, not a torch.nn.Module"),
        ("mine.nets:constant", "mine.nets:constant is no function or class"),
        ("mine.broken:perceptron", "no_such_dependency"),
        (":perceptron", "perceptron"),
        (".nets:perceptron", "perceptron"),
        ("./mine/nest.py:perceptron", "no file .*nest.py for"),
        ("mine/nets.py:perceptrons", "did you mean 'perceptron'"),
        ("mine/broken.py:perceptron", "broken.py cannot be imported: No module named 'no_such_dependency'"),
        ("mine/torn.py:perceptron", "torn.py cannot be imported: .*line 1"),
    ],
)
def test_a_factory_that_is_none_is_refused_and_named(name: str, words: str) -> None:
    with pytest.raises(UnknownModelError, match=words):
        us.create_model(name)


@pytest.mark.usefixtures("mine")
def test_a_factory_that_needs_options_says_which() -> None:
    with pytest.raises(UnknownModelError, match=r"mine\.nets:needs cannot be called: .*width"):
        us.create_model("mine.nets:needs")


@pytest.mark.usefixtures("mine")
def test_an_error_inside_a_factory_is_its_own() -> None:
    with pytest.raises(RuntimeError, match="out of luck"):
        us.create_model("mine.nets:fails")


# ---- examples --------------------------------------------------------------------------------------------


def shape_of(name: str, model: nn.Module, shape: tuple[int, ...] | None = None) -> tuple[int, ...]:
    example = us.example_input(name, model, shape)
    tensor = example if isinstance(example, torch.Tensor) else next(iter(example.values()))  # type: ignore[union-attr]
    assert tensor.is_meta
    return tuple(tensor.shape)


def test_an_example_has_the_shape_the_network_is_made_for() -> None:
    with torch.device("meta"):
        assert shape_of("wrn_50_2", us.create_model("wrn_50_2")) == (1, 3, 224, 224)
        assert shape_of("timm:resnet10t", us.create_model("timm:resnet10t")) == (1, 3, 176, 176)
    squeeze = us.create_model("torchvision:squeezenet1_1")
    assert shape_of("torchvision:squeezenet1_1", squeeze) == (1, 3, 224, 224)
    assert shape_of("torchvision:inception_v3", squeeze) == (1, 3, 299, 299)


def test_an_example_of_text_is_a_mapping_of_tokens() -> None:
    options = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "vocab_size": 50,
    }
    model = us.create_model("transformers:bert", **options)
    example: Any = us.example_input("transformers:bert", model)
    assert example.keys() == {"input_ids"}
    assert (example["input_ids"].shape, example["input_ids"].dtype) == ((1, 128), torch.long)
    assert shape_of("transformers:bert", model, (17,)) == (1, 17)
    assert us.cost(model, us.example_input("transformers:bert", model, (5,))).mult_adds > 0


def test_an_example_has_the_shape_that_is_asked_for() -> None:
    with torch.device("meta"):
        assert shape_of("wrn_16_1", us.create_model("wrn_16_1"), (3, 40, 24)) == (1, 3, 40, 24)
    assert shape_of("torch.nn:ReLU", nn.ReLU(), (7,)) == (1, 7)


def test_a_factory_needs_a_shape() -> None:
    with pytest.raises(ValueError, match=r"the input shape of 'torch\.nn:ReLU' is not known: give one"):
        us.example_input("torch.nn:ReLU", nn.ReLU())
