"""Files: what is saved is what is loaded, the file is small, whole or absent, and nothing is pickled."""

from __future__ import annotations

import dataclasses
import json
import stat
import struct
from pathlib import Path
from typing import Any, get_args

import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor, nn

import understudy as us
from representatives import NAMES
from snapshots import snapshot
from understudy.planning.request import Spatial
from understudy.students import tensors as on_disk
from understudy.students.tensors import FileError
from understudy.transforms.hashed import Hashed
from understudy.transforms.two_factors import TwoFactors

SPATIAL: tuple[Spatial, ...] = get_args(Spatial)


class Small(nn.Module):
    """Convolutions over images and time, a normalisation with buffers, two linear layers."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.square = nn.Conv2d(8, width, 3, padding=1)
        self.point = nn.Conv2d(width, width, 1, bias=False)
        self.over_time = nn.Conv1d(width, 12, 3)
        self.hidden = nn.Linear(12, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.point(torch.relu(self.square(torch.relu(self.norm(self.stem(x))))))
        y: Tensor = self.head(torch.relu(self.hidden(self.over_time(x.flatten(2)).mean(dim=2))))
        return y


def image() -> Tensor:
    return torch.linspace(-1, 1, 2 * 3 * 6 * 6).reshape(2, 3, 6, 6)


def student(transform: str, spatial: Spatial = "separable", **options: Any) -> nn.Module:
    model = Small()
    return us.substitute(model, us.plan(model, transform, scale=0.4, spatial=spatial, **options)).eval()


@pytest.mark.parametrize("init", ["project", "fresh"])
@pytest.mark.parametrize(
    ("transform", "spatial"),
    [
        (name, spatial)
        for name in NAMES
        for spatial in SPATIAL
        if spatial != "inside" or issubclass(us.get_transform(name), TwoFactors)
    ],
)
def test_what_is_saved_is_what_is_loaded(transform: str, spatial: Spatial, init: Any, tmp_path: Path) -> None:
    model = Small()
    plan = us.plan(model, transform, scale=0.4, spatial=spatial, seed=7)
    saved = us.substitute(model, plan, init=init).eval()
    with torch.no_grad():  # as after training: neither a projection nor a fresh draw
        for parameter in saved.parameters():
            parameter.mul_(1.1)
    us.save(saved, tmp_path / "student.safetensors")
    loaded = us.load(tmp_path / "student.safetensors", Small()).eval()
    assert torch.equal(loaded(image()), saved(image()))
    assert loaded.state_dict().keys() == saved.state_dict().keys()
    assert [type(module) for module in loaded.modules()] == [type(module) for module in saved.modules()]
    assert us.cost(loaded, image()) == us.cost(saved, image())


@pytest.mark.parametrize("indexing", ["balanced", "independent"])
def test_the_index_of_hashed_weights_is_not_stored_and_comes_back(indexing: str, tmp_path: Path) -> None:
    saved = student("hashed", seed=3, options={"indexing": indexing})
    us.save(saved, tmp_path / "student")
    with safe_open(tmp_path / "student", framework="pt") as file:
        assert not [key for key in file.keys() if key.endswith((".index", ".order"))]  # noqa: SIM118
    loaded = us.load(tmp_path / "student", Small())
    pairs = zip(saved.modules(), loaded.modules(), strict=True)
    for one, other in ((a, b) for a, b in pairs if isinstance(a, Hashed)):
        assert isinstance(other, Hashed)
        assert (other.indexing, other.seed) == (indexing, one.seed)
        assert torch.equal(one.index, other.index)


def test_an_index_is_drawn_once_when_a_file_is_loaded_and_no_weight_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    us.save(student("hashed"), tmp_path / "file")
    drawn: list[str] = []
    draw_index, sample = Hashed._draw_index_, Hashed.sample

    def index(self: Hashed) -> None:
        drawn.extend([] if self.weight.is_meta else ["index"])
        draw_index(self)

    def weight(self: Hashed, *arguments: Any) -> Tensor:
        drawn.append("weight")
        return sample(self, *arguments)

    monkeypatch.setattr(Hashed, "_draw_index_", index)
    monkeypatch.setattr(Hashed, "sample", weight)
    us.load(tmp_path / "file", Small())
    assert drawn == ["index"] * 4


@pytest.mark.parametrize("spatial", ["separable", "unfolded"])
def test_how_a_layer_runs_is_saved_with_it_where_it_was_set(spatial: Spatial, tmp_path: Path) -> None:
    saved = student("low_rank", spatial)
    plain = us.cost(saved, image())
    square, hidden = (layer for path, layer in us.stand_ins(saved) if path in ("square", "hidden"))
    dearest = max(square.transform.legal_orders, key=lambda order: order.mult_adds(72))
    square.execution = us.Execution(order=dearest.name, layout="rows", recompute=False)
    us.save(saved, tmp_path / "file")
    loaded = us.load(tmp_path / "file", Small()).eval()
    layers = dict(us.stand_ins(loaded))
    assert layers["square"].execution == square.execution
    assert layers["hidden"].execution == hidden.execution == us.Execution()
    assert torch.equal(loaded(image()), saved(image()))
    assert us.cost(loaded, image()) == us.cost(saved, image())
    assert us.cost(saved, image()).mult_adds != plain.mult_adds  # it is counted as it runs
    header = json.loads(safe_header(tmp_path / "file"))
    assert [layer["path"] for layer in header["layers"] if "execution" in layer] == ["square"]


def test_an_execution_that_a_file_asks_for_in_vain_is_refused(tmp_path: Path) -> None:
    saved = student("low_rank")
    us.save(saved, tmp_path / "file")
    header = json.loads(safe_header(tmp_path / "file"))
    header["layers"][0]["execution"] = dataclasses.asdict(us.Execution(order="U,V"))
    on_disk.write_tensors(tmp_path / "other", safetensors.torch.load_file(tmp_path / "file"), header)
    with pytest.raises(ValueError, match="order 'U,V' of low_rank is not one of 'formed', 'V,U'"):
        us.load(tmp_path / "other", Small())


def safe_header(path: Path) -> str:
    with safe_open(path, framework="pt") as file:
        return str(file.metadata()["understudy"])


def test_a_hashed_file_is_smaller_than_the_dense_one_by_its_ratio(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 256), nn.Linear(256, 256), nn.Linear(256, 256), nn.Linear(256, 8))
    plan = us.plan(model, "hashed", ratio=0.1)
    us.save(model, tmp_path / "dense")
    us.save(us.substitute(model, plan), tmp_path / "hashed")
    sizes = {name: (tmp_path / name).stat().st_size for name in ("dense", "hashed")}
    assert sizes["hashed"] / sizes["dense"] == pytest.approx(0.1, rel=0.1)


def test_a_network_that_is_not_substituted_is_saved_and_loaded_too(tmp_path: Path) -> None:
    model = Small().eval()
    us.save(model, tmp_path / "dense")
    assert torch.equal(us.load(tmp_path / "dense", Small()).eval()(image()), model(image()))


def test_a_merged_student_loads_as_a_plain_network(tmp_path: Path) -> None:
    merged = us.merge(student("low_rank"))
    us.save(merged, tmp_path / "merged")
    assert torch.equal(us.load(tmp_path / "merged", Small()).eval()(image()), merged(image()))


def test_a_path_may_be_text_and_a_file_is_replaced(tmp_path: Path) -> None:
    us.save(Small(), str(tmp_path / "file"))
    saved = student("low_rank")
    us.save(saved, str(tmp_path / "file"))
    assert torch.equal(us.load(str(tmp_path / "file"), Small()).eval()(image()), saved(image()))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_loading_leaves_the_dense_network_and_the_random_state_alone(tmp_path: Path) -> None:
    us.save(student("hashed"), tmp_path / "file")
    model = Small()
    before = snapshot(model)
    loaded = us.load(tmp_path / "file", model)
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.zero_()
    assert snapshot(model) == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("transform", NAMES)
def test_every_floating_type_is_kept(transform: str, dtype: torch.dtype, tmp_path: Path) -> None:
    saved = student(transform).to(dtype)
    us.save(saved, tmp_path / "file")
    loaded = us.load(tmp_path / "file", Small().to(dtype)).eval()
    assert {parameter.dtype for parameter in loaded.parameters()} == {dtype}
    assert torch.equal(loaded(image().to(dtype)), saved(image().to(dtype)))


# ---- tensors under two names -----------------------------------------------------------------------------


class Tied(nn.Module):
    """An embedding whose weight is the decoder's, and a layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.hidden = nn.Linear(8, 8)
        self.again = self.hidden
        self.decoder = nn.Linear(8, 11, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        y: Tensor = self.decoder(self.again(self.hidden(self.embedding(tokens))))
        return y


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    model = Tied()
    saved: Any = us.substitute(model, us.plan(model, "low_rank", knob=2))
    us.save(saved, tmp_path / "file")
    with safe_open(tmp_path / "file", framework="pt") as file:
        keys = set(file.keys())
    assert keys == {"embedding.weight", "hidden.transform.u", "hidden.transform.v", "hidden.bias"}
    loaded: Any = us.load(tmp_path / "file", Tied())
    tokens = torch.arange(11)[None]
    assert torch.equal(loaded(tokens), saved(tokens))
    assert loaded.embedding.weight is loaded.decoder.weight
    assert loaded.hidden is loaded.again


def test_tensors_that_share_memory_without_being_one_are_saved_and_loaded(tmp_path: Path) -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            table = torch.arange(12.0).reshape(3, 4)
            self.register_buffer("table", table)
            self.register_buffer("first_row", table[0])
            self.register_buffer("flipped", table.T)
            self.layer = nn.Linear(4, 4)

    us.save(Views(), tmp_path / "file")
    loaded = us.load(tmp_path / "file", Views())
    assert all(
        torch.equal(one, other) for one, other in zip(loaded.buffers(), Views().buffers(), strict=True)
    )


# ---- whole or not at all ---------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_tensors: object, filename: str, metadata: object = None) -> None:  # noqa: ARG001
        Path(filename).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(on_disk, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        us.save(Small(), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_keeps_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    us.save(Small(), tmp_path / "file")
    before = (tmp_path / "file").read_bytes()

    def full(_tensors: object, filename: str, metadata: object = None) -> None:  # noqa: ARG001
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(on_disk, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        us.save(student("low_rank"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_reader_of_the_older_file_still_reads_it_whole(tmp_path: Path) -> None:
    us.save(Small(), tmp_path / "file")
    before = (tmp_path / "file").read_bytes()
    with (tmp_path / "file").open("rb") as reader:
        us.save(student("low_rank"), tmp_path / "file")
        assert reader.read() == before


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        us.save(Small(), tmp_path / "nowhere" / "file")


def test_a_saved_file_may_be_read_by_whoever_may_read_a_new_file(tmp_path: Path) -> None:
    us.save(Small(), tmp_path / "file")
    (tmp_path / "plain").write_bytes(b"")
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("file", "plain")}
    assert modes["file"] == modes["plain"]


def test_what_a_file_cannot_hold_is_refused_and_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"'0\.weight' is torch\.complex128, which understudy does not store"
    ):
        us.save(nn.Sequential(nn.Linear(3, 3, dtype=torch.complex128)), tmp_path / "file")

    class Stateful(nn.Module):
        def get_extra_state(self) -> dict[str, int]:
            return {"steps": 3}

    with pytest.raises(ValueError, match=r"'0\._extra_state' is dict"):
        us.save(nn.Sequential(Stateful()), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


# ---- other files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_refused_and_named(share: float, tmp_path: Path) -> None:
    us.save(student("low_rank"), tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(data[: int(share * len(data))])
    with pytest.raises(ValueError, match="cut is not a whole safetensors file"):
        us.load(tmp_path / "cut", Small())


@pytest.mark.parametrize(
    "data", [b"x" * 1000, b"{}", b"PK\x03\x04" + bytes(500)], ids=["text", "json", "zip"]
)
def test_another_kind_of_file_is_refused_and_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(data)
    with pytest.raises(ValueError, match="other is not a whole safetensors file"):
        us.load(tmp_path / "other", Small())


def test_a_pickled_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save(Small().state_dict(), tmp_path / "pickled.pt")
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        us.load(tmp_path / "pickled.pt", Small())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        us.load(tmp_path / "nothing", Small())


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    for version in (3, 5):
        header = json.dumps({"version": version, "layers": [], "aliases": {}})
        safetensors.torch.save_file(Small().state_dict(), tmp_path / "other", metadata={"understudy": header})
        with pytest.raises(FileError, match=f"other has version {version}; this understudy reads version 4"):
            us.load(tmp_path / "other", Small())


HASHED = {"transform": "hashed", "knob": 20, "seed": 0, "options": {"indexing": "balanced"}}
LAYER = {
    "path": "hidden", "kind": "linear", "in_features": 12, "out_features": 16, "kernel": [],
    "way": "pointwise", "groups": 1, "spec": HASHED,
}  # fmt: skip
HEADER = {"kind": "student", "version": 4, "layers": [], "aliases": {}}


def with_layer(**changes: Any) -> dict[str, Any]:
    return HEADER | {"layers": [LAYER | changes]}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", "not JSON"),
        ("no json", "not JSON"),
        ("[]", "not a table"),
        ("{}", "has version None"),
        ("[" * 100_000, "nested more than 32 deep"),
        ('{"version": 1e999}', "not a finite number"),
        ({"version": 4}, "missing"),
        (HEADER | {"kind": "calibration"}, "it is a calibration, not a network"),
        (HEADER | {"layers": [{}]}, "missing"),
        (HEADER | {"layers": 7}, "layers is 7, not a list"),
        (HEADER | {"aliases": {"a": "b"}}, "'a' cannot be another name of 'b'"),
        (HEADER | {"aliases": {"hidden.bias": "head.bias"}}, "cannot be another name"),
        (HEADER | {"aliases": {"a": 7}}, "aliases.a is 7, not text"),
        (with_layer(path=7), r"layers\[0\].path is 7, not text"),
        (with_layer(path="a.b"), "no module 'a.b'"),
        (with_layer(kernel=[3]), "a linear has no kernel of 1 sizes"),
        (with_layer(in_features=10**12), "are not in 1..16777216"),
        (with_layer(in_features=24), "is a linear with weight"),
        (with_layer(spec=HASHED | {"seed": 2**63}), "seed 9223372036854775808 is not a whole number"),
        (with_layer(spec=HASHED | {"seed": 0.5}), "seed is 0.5, not a whole number"),
        (with_layer(spec=HASHED | {"options": {"indexing": "odd"}}), "option indexing of hashed is 'odd'"),
        (with_layer(spec=HASHED | {"options": {"colour": "red"}}), "no such option"),
        (with_layer(spec=HASHED | {"knob": 193}), "weights 193 is not in"),
        (HEADER | {"layers": [LAYER] * 60_000}, "two stand-ins have one path"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_broken_header_is_refused_and_the_file_named(header: Any, words: str, tmp_path: Path) -> None:
    path, tensors = tmp_path / "broken", Small().state_dict()
    if isinstance(header, str):
        safetensors.torch.save_file(tensors, path, metadata={"understudy": header})
    else:
        on_disk.write_tensors(path, tensors, header)
    with pytest.raises(FileError, match=words) as told:
        us.load(path, Small())
    assert "broken" in str(told.value)
    assert len(str(told.value)) < 500


def test_a_flipped_bit_anywhere_in_a_file_is_noticed(tmp_path: Path) -> None:
    us.save(student("hashed", seed=3), tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    for place in range(8, len(data), max(1, len(data) // 150)):
        for bit in (0, 6):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            (tmp_path / "flipped").write_bytes(flipped)
            with pytest.raises(FileError, match="flipped"):
                us.load(tmp_path / "flipped", Small())


def test_the_digest_is_checked_unless_it_is_not_asked_for(tmp_path: Path) -> None:
    saved = student("low_rank")
    us.save(saved, tmp_path / "file")
    data = bytearray((tmp_path / "file").read_bytes())
    data[-1] ^= 1  # the exponent of the last number
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(FileError, match="file is not as it was written: its digest differs"):
        us.load(tmp_path / "file", Small())
    us.load(tmp_path / "file", Small(), verify=False)


def test_a_type_that_lies_is_refused_even_unverified(tmp_path: Path) -> None:
    us.save(Small(), tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(data.replace(b'"F32"', b'"I32"'))
    with pytest.raises(FileError, match="digest"):
        us.load(tmp_path / "file", Small())
    with pytest.raises(FileError, match=r"is torch\.int32, not torch\.float32"):
        us.load(tmp_path / "file", Small(), verify=False)


def test_nan_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    model = Small()
    with torch.no_grad():
        model.head.bias[3] = torch.nan
    us.save(model, tmp_path / "file")
    with pytest.raises(FileError, match=r"'head\.bias' holds NaN"):
        us.load(tmp_path / "file", Small())
    assert us.load(tmp_path / "file", Small(), allow_nan=True).get_parameter("head.bias")[3].isnan()


@pytest.mark.parametrize("path", [None, 7, "a\0b"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(FileError, match="is not a path"):
        us.load(path, Small())


def test_a_hashed_seed_is_in_one_place(tmp_path: Path) -> None:
    saved = student("hashed", seed=3)
    us.save(saved, tmp_path / "file")
    with safe_open(tmp_path / "file", framework="pt") as file:
        assert not [key for key in file.keys() if key.endswith("_extra_state")]  # noqa: SIM118
    assert (tmp_path / "file").stat().st_size == us.cost(saved, image()).bytes


def test_columns_of_a_sparse_part_that_point_nowhere_are_refused(tmp_path: Path) -> None:
    us.save(student("low_rank_sparse"), tmp_path / "file")
    tensors = safetensors.torch.load_file(tmp_path / "file")
    name = next(key for key in tensors if key.endswith("_extra_state"))
    for state in (torch.full_like(tensors[name], 999), tensors[name][:1], tensors[name].float()):
        header = json.loads(safe_header(tmp_path / "file"))
        on_disk.write_tensors(tmp_path / "odd", {**tensors, name: state}, header)
        with pytest.raises(FileError, match="odd"):
            us.load(tmp_path / "odd", Small())


def test_plain_safetensors_of_others_load_into_the_dense_network(tmp_path: Path) -> None:
    model = Small()
    safetensors.torch.save_file(model.state_dict(), tmp_path / "plain")
    loaded = us.load(tmp_path / "plain", Small())
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())


# ---- another network -------------------------------------------------------------------------------------


def test_loading_into_a_network_with_other_shapes_is_refused(tmp_path: Path) -> None:
    us.save(student("low_rank"), tmp_path / "file")
    with pytest.raises(
        ValueError, match=r"does not fit Small: 'square' is a conv2d with weight \(24, 8, 3, 3\)"
    ):
        us.load(tmp_path / "file", Small(width=24))


def test_loading_into_a_network_with_other_paths_is_refused(tmp_path: Path) -> None:
    us.save(student("low_rank"), tmp_path / "file")
    with pytest.raises(ValueError, match="does not fit Sequential: no module 'square'"):
        us.load(tmp_path / "file", nn.Sequential(nn.Linear(3, 3)))


def test_loading_into_a_student_is_refused(tmp_path: Path) -> None:
    us.save(student("low_rank"), tmp_path / "file")
    with pytest.raises(ValueError, match="already substituted"):
        us.load(tmp_path / "file", student("low_rank"))


def test_loading_a_dense_file_into_another_dense_network_is_refused_and_says_what_differs(
    tmp_path: Path,
) -> None:
    us.save(Small(), tmp_path / "file")
    with pytest.raises(FileError, match=r"file does not fit Small: .*square\.weight") as told:
        us.load(tmp_path / "file", Small(width=24))
    assert "\n" not in str(told.value)


def test_loading_into_a_network_without_weights_gives_one_with_them(tmp_path: Path) -> None:
    saved = student("hashed")
    us.save(saved, tmp_path / "file")
    with torch.device("meta"):
        model = Small()
    loaded = us.load(tmp_path / "file", model).eval()
    assert torch.equal(loaded(image()), saved(image()))


# ---- nothing is pickled ----------------------------------------------------------------------------------


def test_the_file_holds_tensors_and_text_only(tmp_path: Path) -> None:
    us.save(student("hashed"), tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    about = json.loads(header.pop("__metadata__")["understudy"])
    assert [layer["path"] for layer in about["layers"]] == ["square", "point", "over_time", "hidden"]
    assert all(set(entry) == {"dtype", "shape", "data_offsets"} for entry in header.values())
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(data) - 8 - length


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("a pickle was made or read")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    saved = student("hashed")
    us.save(saved, tmp_path / "file")
    assert torch.equal(us.load(tmp_path / "file", Small()).eval()(image()), saved(image()))


def test_tied_weights_are_one_parameter_in_a_network_that_had_none(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        words, head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        head.weight = words.weight
        return nn.ModuleDict({"words": words, "head": head})

    us.save(tied(), tmp_path / "file")
    with torch.device("meta"):
        weightless = tied()
    loaded = us.load(tmp_path / "file", weightless)
    assert loaded.get_parameter("head.weight") is loaded.get_parameter("words.weight")


def test_places_that_name_no_row_are_refused(tmp_path: Path) -> None:
    saved = student("pivoted", "unfolded")
    next(layer for _, layer in us.stand_ins(saved)).transform.get_buffer("places")[0] = 10**6
    us.save(saved, tmp_path / "file")
    with pytest.raises(FileError, match="places do not name each of"):
        us.load(tmp_path / "file", Small())
