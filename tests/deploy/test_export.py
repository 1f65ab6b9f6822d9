"""Export: files for other runtimes, as small as the student, checked where they run."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import understudy as us
from representatives import NAMES
from understudy.deploy import constants, formats, slim
from understudy.deploy import export as export_module
from understudy.deploy.graph import capture
from understudy.deploy.runtimes import imported, opened, target_of
from understudy.deploy.samples import Verdict, judge, read_samples

pytestmark = [
    # The exporters call what they deprecate themselves, also while modules are imported.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
FAMILIES = [name for name in NAMES if name != "dense"]  # of every other one the contract tells
INSIDE = ("low_rank", "shuffle", "btt")  # with the depthwise part between their factors


class Families(nn.Module):
    """A convolution and a linear layer for every family."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.kernels = nn.ModuleDict({name: nn.Conv2d(width, width, 3, padding=1) for name in FAMILIES})
        self.inside = nn.ModuleDict({name: nn.Conv2d(width, width, 3, padding=1) for name in INSIDE})
        self.linears = nn.ModuleDict({name: nn.Linear(width, width) for name in FAMILIES})

    def forward(self, x: Tensor) -> Tensor:
        for name in FAMILIES:
            x = x + torch.relu(self.kernels[name](x))
        for name in INSIDE:
            x = x + torch.relu(self.inside[name](x))
        x = x.mean((2, 3))
        for name in FAMILIES:
            x = x + self.linears[name](x)
        return x


def families() -> nn.Module:
    model = Families()
    asked = {f"*.{name}": name for name in FAMILIES}
    plan = us.plan(model, asked, scale=0.3, spatial="unfolded", include=["kernels", "linears"])
    assert {*plan.transforms} == {*FAMILIES}
    student = us.substitute(model, plan)
    asked = {f"*.{name}": name for name in INSIDE}
    plan = us.plan(student, asked, scale=0.3, spatial="inside", include=["inside"])
    assert {layer.way for layer in plan if layer.spec} == {"inside"}
    return us.substitute(student, plan).eval()


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).eval()


X = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def limit(model: nn.Module) -> float:
    return 4 * sum(parameter.numel() for parameter in model.parameters()) * 1.1 + 65536


def test_every_family_is_in_an_onnx_file_as_small_as_its_parameters_and_right_for_any_batch(
    tmp_path: Path,
) -> None:
    student = families()
    done = us.export(student, tmp_path / "student.onnx", (1, 24, 6, 6))
    assert done.error < 1e-4
    assert done.bytes <= limit(student)
    model = imported("onnx").load(str(done.path))
    largest = max(parameter.numel() for parameter in student.parameters())
    assert max(len(tensor.raw_data) for tensor in model.graph.initializer) <= 4 * largest
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}  # no operator of anyone's own
    assert [path.name for path in tmp_path.iterdir()] == ["student.onnx"]
    assert ports(model.graph.input) == {"x": ["batch", 24, 6, 6]}
    assert ports(model.graph.output) == {"output": ["batch", 24]}


def ports(values: Any) -> dict[str, list[int | str]]:
    """Names and axes of what goes in or comes out."""
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in values
    }


class Results(nn.Module):
    """Results of every kind, some called as an argument or a parameter is."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor, mask: Tensor) -> dict[str, Any]:
        y = x * self.output + mask
        return {"logits": y, "x": x, "hidden": [y + 1, None, (torch.cat([y, y]),)], "output": y - 1}


def test_files_call_inputs_outputs_and_the_batch_what_people_call_them(tmp_path: Path) -> None:
    x = torch.ones(2, 4)
    formats.write(capture(Results(), {"x": x, "mask": x}), tmp_path / "named.onnx", "onnx", "Results")
    graph = imported("onnx").load(str(tmp_path / "named.onnx")).graph
    assert ports(graph.input) == {"x": ["batch", 4], "mask": ["batch", 4]}
    assert ports(graph.output) == {
        "logits": ["batch", 4],
        "x_": ["batch", 4],
        "hidden_0": ["batch", 4],
        "hidden_2_0": ["2*batch", 4],
        "output_": ["batch", 4],
    }
    made = opened(tmp_path / "named.onnx", "onnx")({"x": x, "mask": 2 * x})
    assert [float(each.flatten()[0]) for each in made] == [3, 1, 4, 3, 2]


def test_a_file_of_torch_export_and_one_of_openvino_agree_with_pytorch(tmp_path: Path) -> None:
    student = us.substitute(small(), us.plan(small(), "hashed", ratio=0.5, include=["3"]))
    for name in ("student.pt2", "STUDENT.XML"):
        done = us.export(student, tmp_path / name, X)
        assert done.path == tmp_path / name
        assert done.error < 1e-4
        assert done.bytes <= limit(student), name
    assert {path.name for path in tmp_path.iterdir()} == {"student.pt2", "STUDENT.XML", "STUDENT.bin"}


def test_openvino_runs_a_file_of_onnx_that_holds_every_family_within_the_bound(tmp_path: Path) -> None:
    student = families()
    done = us.export(
        student, tmp_path / "student.onnx", (1, 24, 6, 6), format="openvino", original=families()
    )
    assert (done.format, done.path.name) == ("openvino", "student.onnx")
    assert done.error < 1e-4
    assert done.bytes <= limit(student)
    assert done.original_bytes
    assert done.original_bytes <= limit(student)
    assert [path.name for path in tmp_path.iterdir()] == ["student.onnx"]
    assert "student.onnx (openvino)" in str(done)


def test_a_deep_network_of_small_layers_is_a_small_file_for_openvino_too(tmp_path: Path) -> None:
    model = us.create_model("wrn_16_1").eval()
    student = us.substitute(model, us.plan(model, "hashed", ratio=0.15))
    done = us.export(student, tmp_path / "student.onnx", (2, 3, 32, 32), format="openvino")
    assert done.bytes <= limit(student)
    assert done.error < 1e-4


@pytest.mark.parametrize("suffix", ["onnx", "xml", "pt2"])
def test_the_index_of_hashed_is_the_same_in_every_runtime(suffix: str, tmp_path: Path) -> None:
    wide = nn.Sequential(nn.Linear(96, 160), nn.ReLU(), nn.Linear(160, 40))  # more cubes than are folded
    plan = us.plan(wide, "hashed", ratio=0.2, include=["*"])  # matrices would be more than four times as much
    student = us.substitute(wide, plan)
    done = us.export(student, tmp_path / f"student.{suffix}", (2, 96))
    assert done.error < 1e-4
    assert suffix == "pt2" or done.bytes <= limit(student)


@pytest.mark.parametrize("family", ["hashed", "acdc", "toeplitz_like", "ldr", "block_circulant"])
def test_layers_of_one_kind_compute_their_weights_together(family: str, tmp_path: Path) -> None:
    counts = []
    for layers in (2, 4):
        torch.manual_seed(0)
        parts = [part for _ in range(layers) for part in (nn.Conv2d(24, 24, 3), nn.ReLU())]
        model = nn.Sequential(*parts).eval()
        plan = us.plan(model, family, scale=0.3, spatial="unfolded", include=["*"])
        student = us.substitute(model, plan, init="fresh").eval()
        assert len(plan) == layers
        done = us.export(student, tmp_path / f"{layers}.onnx", (2, 24, 12, 12))
        assert done.error < 1e-4
        counts.append(len(imported("onnx").load(str(done.path)).graph.node))
    assert counts[1] - counts[0] <= 6, "two more layers are two more convolutions and little beside them"


def test_larger_layers_and_others_compute_their_weights_by_themselves() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(320, 320, bias=False) for _ in range(2)), nn.Linear(320, 8)).eval()
    student = us.substitute(model, us.plan(model, "hashed", ratio=0.2, include=["*"]))
    program = capture(student, (2, 320))
    lookups = [node for node in program.graph.nodes if "index_select" in str(node.target)]
    assert len(lookups) == 3 * 5


@pytest.mark.parametrize("family", ["acdc", "low_rank_sparse", "toeplitz_like"])
def test_runtimes_form_matrices_of_halves_ahead(family: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 40)).eval()
    student = us.substitute(model, us.plan(model, family, ratio=0.5, include=["*"]))
    done = us.export(student, tmp_path / "half.onnx", (2, 48), dtype="float16")
    runtime = imported("onnxruntime")
    options = runtime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3  # it warns that such a file is for one machine
    runtime.InferenceSession(str(done.path), options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in imported("onnx").load(options.optimized_model_filepath).graph.node]
    assert sum(kind in ("MatMul", "Gemm", "FusedGemm") for kind in kinds) == 2
    assert not {"ScatterElements", "CumSum", "Cos"} & {*kinds}


def test_files_of_pytorch_hold_what_it_would_compute_in_every_call(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 40)).eval()
    student = us.substitute(model, us.plan(model, "hashed", ratio=0.5, include=["*"]))
    done = us.export(student, tmp_path / "student.pt2", (2, 48))
    assert done.error < 1e-5
    called = {str(node.target) for node in torch.export.load(done.path).graph.nodes}
    assert {name for name in called if name.startswith("aten")} == {
        "aten.linear.default",
        "aten.relu.default",
    }


def wide(*names: str, ratio: float) -> nn.Module:
    """1×1 convolutions that are wide enough for structure to pay in a runtime, one for each transform."""
    torch.manual_seed(0)
    kernels = {name: nn.Conv2d(192, 192, 1) for name in names}
    model = nn.Sequential(*(part for kernel in kernels.values() for part in (kernel, nn.ReLU()))).eval()
    asked = {str(2 * place): name for place, name in enumerate(kernels)}
    return us.substitute(model, us.plan(model, asked, ratio=ratio, include=[*asked])).eval()


def test_slices_of_channels_are_groups_of_convolutions_that_a_file_holds_once(tmp_path: Path) -> None:
    student = wide("tensor_train", "tucker", ratio=0.1)
    done = us.export(student, tmp_path / "student.onnx", (8, 192, 16, 16))
    assert done.bytes <= limit(student)
    graph = imported("onnx").load(str(done.path)).graph
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    assert sum(formats._groups(node) > 1 for node in convolutions) >= 2  # of both layers
    assert sum(len(node.input) > 2 for node in convolutions) == 2  # biases of the network, and none of zeros
    used = {value for node in graph.node for value in node.input}
    assert used >= {tensor.name for tensor in graph.initializer}


def small_layers(name: str, depth: int, ratio: float) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range(depth))).eval()
    return us.substitute(model, us.plan(model, name, ratio=ratio, include=["*"], spatial="unfolded")).eval()


@pytest.mark.parametrize(("name", "most"), [("hashed", 4000), ("low_rank_sparse", 2000)])
def test_two_layers_are_few_bytes_more_than_their_parameters_in_an_onnx_file(
    name: str, most: int, tmp_path: Path
) -> None:
    student = small_layers(name, 2, 0.5)
    done = us.export(student, tmp_path / "small.onnx", (1, 16, 4, 4))
    assert done.bytes - 4 * done.params < most
    proto = imported("onnx").load(str(done.path))
    graph = proto.graph
    assert not any(node.name for node in graph.node)
    inner = {name for node in graph.node for name in node.output} - {value.name for value in graph.output}
    assert max(map(len, inner)) <= 2
    assert sum(each.name.endswith(".bias") for each in graph.initializer) == 2
    assert {each.name for each in graph.initializer} <= {each for node in graph.node for each in node.input}


def test_what_one_reshape_or_transpose_reads_is_held_so_and_idle_reshapes_are_gone() -> None:
    ir = imported("onnx_ir")
    text = """
        <ir_version: 8, opset_import: ["": 18]>
        f (float[2, 3] x) => (float[2, 3] y)
        <float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[6] v = {1, 2, 3, 4, 5, 6}, int64[2] s = {2, 3}>
        { a = Transpose<perm=[1, 0]>(w)  b = Reshape(v, s)  c = Reshape(x, s)  d = Add(a, b)  y = Mul(c, d) }
    """
    onnx = imported("onnx")
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    slim.hold_as_read_(model.graph)
    assert [node.op_type for node in model.graph] == ["Add", "Mul"]
    held = {name: value.const_value.numpy().tolist() for name, value in model.graph.initializers.items()}
    assert held == {"w": [[1, 3, 5], [2, 4, 6]], "v": [[1, 2, 3], [4, 5, 6]]}


def test_attributes_that_a_file_leaves_out_are_those_that_say_nothing() -> None:
    onnx = imported("onnx")
    text = """
        <ir_version: 8, opset_import: ["": 18]>
        f (float[1, 2, 4, 4] input) => (float[1, 2, 4, 4] output)
        <float[2, 2, 3, 3] layer_weight, int64[4] plain = {1, 2, 4, 4}, int64[4] empty = {1, 2, 4, 0}>
        {
            inner = Conv<strides=[1, 1], dilations=[1, 1], pads=[1, 1, 1, 1], group=1>(input, layer_weight)
            moved = Reshape<allowzero=1>(inner, plain)
            none = Reshape<allowzero=1>(inner, empty)
            softened = Softmax<axis=1>(moved)
            output = LeakyRelu<alpha=0.01>(softened)
        }
    """
    proto = onnx.parser.parse_model(text)
    slim.slim_onnx_(proto)
    said = [[attribute.name for attribute in node.attribute] for node in proto.graph.node]
    assert said == [["pads"], [], ["allowzero"], ["axis"], []]
    assert proto.graph.node[0].input[0] == "input"
    assert proto.graph.node[-1].output[0] == "output"


def test_a_file_of_openvino_states_shapes_of_inputs_and_constants_alone(tmp_path: Path) -> None:
    student = small_layers("tucker", 2, 0.3)
    done = us.export(student, tmp_path / "student.xml", (1, 16, 4, 4))
    text = done.path.read_text(encoding="utf-8")
    for unsaid in ("<dim>", " />", 'strides="1', 'dilations="1', '="0, 0', "auto_pad", "<data/>", 'name="4"'):
        assert unsaid not in text
    network = imported("openvino").Core().read_model(str(done.path))
    assert str(network.outputs[0].get_partial_shape()) == "[?,16,4,4]"


def test_openvino_is_told_the_strides_of_all_but_convolutions(tmp_path: Path) -> None:
    pools = (nn.MaxPool2d(2, 1), nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1), nn.LocalResponseNorm(3))
    done = us.export(nn.Sequential(nn.Conv2d(3, 8, 3), *pools).eval(), tmp_path / "pools.xml", X)
    assert done.error < 1e-4


def test_a_file_of_openvino_computes_no_shapes(tmp_path: Path) -> None:
    student = wide("tucker", ratio=0.1)
    done = us.export(student, tmp_path / "student.xml", (8, 192, 16, 16))
    assert done.error < 1e-4
    text = done.path.read_text(encoding="utf-8")
    assert "ShapeOf" not in text
    assert "\n\t" not in text
    assert done.bytes <= limit(student)


def test_a_file_of_openvino_names_what_goes_in_and_out_and_holds_small_constants_once(tmp_path: Path) -> None:
    layers = nn.Sequential(nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 96))
    student = us.substitute(layers, us.plan(layers, "hashed", ratio=0.5, include=["*"]))
    done = us.export(student, tmp_path / "student.xml", (2, 96))
    network = imported("openvino").Core().read_model(str(done.path))
    assert all(port.get_names() for port in (*network.inputs, *network.outputs))
    inner = [node for node in network.get_ops() if node.get_type_name() not in ("Parameter", "Result")]
    small = [node.get_data() for node in inner if node.get_type_name() == "Constant"]
    held = [(str(value.dtype), value.shape, value.tobytes()) for value in small if value.size <= 64]
    assert len(held) == len(set(held)) > 1


def test_what_the_quantiser_raises_is_an_export_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no scales for node 3\nand more")

    monkeypatch.setattr("onnxruntime.quantization.quantize_static", fails)
    with pytest.raises(us.ExportError, match=r"cannot make .* eight-bit: no scales for node 3$"):
        us.export(small(), tmp_path / "eight.onnx", X, int8=[X])
    assert not list(tmp_path.iterdir())


def test_openvino_folds_no_random_numbers_and_no_types_that_numpy_lacks() -> None:
    openvino = imported("openvino")
    ops = openvino.opset13
    whole = ops.constant([2, 3], openvino.Type.i64)
    brief = ops.constant([1.0, 2.0], openvino.Type.bf16)
    drawn = ops.random_uniform(
        whole, ops.constant(0.0, openvino.Type.f32), ops.constant(1.0, openvino.Type.f32), "f32", 1, 1
    )
    network = openvino.Model([ops.add(whole, whole), ops.add(brief, brief), drawn], [])
    constants.hold_constants_(network)
    assert [result.input_value(0).get_node().get_type_name() for result in network.get_results()] == [
        "Constant",
        "Add",
        "RandomUniform",
    ]


def test_openvino_holds_what_takes_fewer_bytes_than_the_text_that_computes_it() -> None:
    openvino = imported("openvino")
    ops = openvino.opset13
    x = ops.parameter([9])
    powers = ops.convert(ops.range(ops.constant(0), ops.constant(9), ops.constant(1), "i64"), "f32")
    squares = ops.add(ops.multiply(powers, powers), powers)  # read in two ways, and small
    table = ops.multiply(ops.unsqueeze(powers, ops.constant(0)), ops.constant(np.ones((999, 1), np.float32)))
    results = [ops.add(x, squares), ops.subtract(x, squares), ops.maximum(x, powers), ops.divide(x, table)]
    network = openvino.Model(results, [x])
    taken = np.arange(9, dtype=np.float32) + 1
    before = openvino.compile_model(network, "CPU")([taken])
    constants.hold_constants_(network)
    kinds = [node.get_type_name() for node in network.get_ordered_ops()]
    assert kinds.count("Multiply") == 1, "the table is computed, and nothing else"
    assert not {"Range", "Convert", "Unsqueeze"} & {*kinds}
    assert sorted(
        node.get_byte_size() for node in network.get_ops() if node.get_type_name() == "Constant"
    ) == [
        36,  # the powers, that the table reads as a row
        36,
        36,
        999 * 4,
    ]
    after = openvino.compile_model(network, "CPU")([taken])
    assert all((ours == theirs).all() for ours, theirs in zip(after.values(), before.values(), strict=True))


def test_openvino_runs_norms_as_a_product_and_a_sum(tmp_path: Path) -> None:
    norms = [nn.BatchNorm2d(6), nn.BatchNorm1d(6)]
    generator = torch.Generator().manual_seed(0)
    for norm in norms:
        for each in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
            assert each is not None
            each.copy_(0.5 + torch.rand(6, generator=generator))
    model = nn.Sequential(norms[0], nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), norms[1]).eval()
    done = us.export(model, tmp_path / "norms.xml", (2, 6, 5, 5))
    assert done.error < 1e-6
    text = done.path.read_text(encoding="utf-8")
    assert "BatchNormInference" not in text
    assert text.count('type="Const" version="opset1"><data element_type="f32"') == 4


def test_small_deep_networks_are_small_files_of_openvino_where_few_nodes_compute_a_layer(
    tmp_path: Path,
) -> None:
    model = us.create_model("wrn_16_1").eval()
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    student = us.substitute(model, us.plan(model, "block_circulant", ratio=0.15, example=x))
    assert us.export(student, tmp_path / "student.xml", x).bytes <= limit(student)


def test_eight_bits_are_of_weights_also_where_a_graph_would_compute_them(tmp_path: Path) -> None:
    x = torch.randn(8, 192, 4, 4, generator=torch.Generator().manual_seed(1))
    student = wide("tensor_train", "tucker", "hashed", ratio=0.4)
    eight = us.export(student, tmp_path / "eight.onnx", x, int8=[x])
    onnx = imported("onnx")
    weights = [
        onnx.numpy_helper.to_array(tensor)
        for tensor in onnx.load(str(eight.path)).graph.initializer
        if tensor.data_type == onnx.TensorProto.INT8
    ]
    params = sum(parameter.numel() for parameter in student.parameters())
    assert sum(weight.size for weight in weights) > params / 2
    assert max(abs(weight.astype(int)).max() for weight in weights) <= 64  # sums fit every processor
    assert eight.bytes < 4 * params
    assert eight.error < 0.1


class Branches(nn.Module):
    """Weights that only a branch reads, and an output that is constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        chosen = torch.cond(x.sum() > 0, lambda x: self.first(x), lambda x: self.second(x), (x,))
        assert isinstance(chosen, Tensor)
        return chosen, torch.zeros_like(x)


def test_what_a_branch_or_an_output_alone_reads_is_in_the_file(tmp_path: Path) -> None:
    assert us.export(Branches().eval(), tmp_path / "branches.onnx", (2, 16)).error < 1e-4


def test_eight_bits_leave_out_grouped_transposed_convolutions(tmp_path: Path) -> None:
    x = torch.randn(4, 16, 4, 4, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.ConvTranspose2d(16, 16, 2, stride=2, groups=4), nn.ReLU()).eval()
    assert us.export(model, tmp_path / "eight.onnx", x, int8=[x]).error < 0.1


def test_half_precision_is_half_the_file_and_eight_bits_a_quarter(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 256), nn.ReLU(), nn.Linear(256, 10)).eval()
    single = us.export(model, tmp_path / "original.onnx", X, original=small())
    assert single.speedup is not None
    assert single.original_bytes is not None
    assert single.original_bytes < single.bytes
    assert "original" in str(single)
    half = us.export(model, tmp_path / "half.onnx", X, dtype="float16")
    right = model(X).argmax(1)
    wrong = (model(X + 0.1).argmax(1) + torch.tensor([0, 0, 1])) % 10
    eight = us.export(model, tmp_path / "eight.onnx", X, int8=[(X, right), (X + 0.1, wrong)])
    assert half.bytes < 0.55 * single.bytes
    assert eight.bytes < 0.35 * single.bytes
    assert single.error < 1e-5 < half.error < 2e-2
    assert eight.float_error is not None
    assert eight.float_error < 1e-4 < eight.error < 0.2
    assert eight.agreement is not None
    assert eight.accuracy is not None
    assert abs(eight.accuracy - 5 / 6) <= 1 - eight.agreement + 1e-9
    assert (eight.samples, eight.judged, eight.float_accuracy) == (6, "calibration", 5 / 6)
    assert "of 6 calibration samples" in str(eight)
    assert "before eight bits 83.3 %" in str(eight)
    assert "class" not in str(half)


class Difference(nn.Module):
    """One number for each sample, of two inputs that differ in size."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 16))

    def forward(self, large: Tensor, small: Tensor) -> Tensor:
        return (large - small) @ self.weight


def test_batches_to_calibrate_by_are_paired_with_the_inputs_by_name(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    large, small = 100 * torch.randn(32, 16, generator=generator), torch.randn(32, 16, generator=generator)
    example = {"large": large[:2], "small": small[:2]}
    batch = {"labels": torch.zeros(32), "small": small, "large": large}
    both: list[Any] = [batch, (batch, torch.zeros(32))]
    done = us.export(Difference(), tmp_path / "eight.onnx", example, int8=iter(both), test=iter([batch]))
    assert done.error < 0.1
    assert done.agreement == 1
    assert (done.samples, done.judged, done.accuracy) == (32, "test", None)


def test_labels_of_batches_are_read_and_counted_wherever_they_are_classes() -> None:
    x, y = torch.eye(4) + 1, torch.tensor([0, 1, 2, 0])
    pairs: list[Any] = [(x, y), {"labels": y, "x": x}, ({"x": x}, y), x, (x, y.float()), (x, y[:, None])]
    examples: list[Any] = [x, {"x": x}, {"x": x}, x, x, x]
    read = [
        read_samples("int8", [pair], example, 4)[0] for pair, example in zip(pairs, examples, strict=True)
    ]
    assert [each.labels is not None for each in read] == [True] * 3 + [False] * 3
    assert read_samples("int8", [(x, y)], x, None)[0].labels is None
    file = judge(lambda _: [torch.eye(4).roll(1, 1)], nn.Identity(), read[:1])
    assert file == Verdict(samples=4, agreement=0, float_accuracy=0.75, accuracy=0.25)
    same: Any = lambda given: [given]  # noqa: E731
    assert judge(same, nn.Identity(), [read[0], read[3]]).accuracy is None  # for half have no labels


def test_eight_bits_that_are_not_finite_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    runs: Iterator[Any] = iter([model, lambda x: model(x) * torch.nan])

    def opening(*_: object) -> Any:
        runner = next(runs)
        return lambda batch: [runner(batch).detach()]

    monkeypatch.setattr(export_module, "opened", opening)
    monkeypatch.setattr(export_module, "write", lambda *_: None)
    monkeypatch.setattr(export_module, "quantise_", lambda *_: None)
    with pytest.raises(us.ExportError, match="of eight bits, Sequential gives outputs that are not finite"):
        us.export(model, tmp_path / "eight.onnx", X, int8=[X])


def test_an_example_of_several_named_inputs_is_exported(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 3)

        def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
            return {"logits": self.head(self.embed(ids) * mask[..., None])}

    example = {"ids": torch.arange(10).reshape(2, 5), "mask": torch.ones(2, 5)}
    for dtype in ("float32", "float16"):
        assert us.export(Two(), tmp_path / f"{dtype}.pt2", example, dtype=dtype).error < 2e-2


class Unheard(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.linalg.householder_product(x.flatten(2), x.flatten(2)[..., 0, :])
        return out


def test_an_operation_that_onnx_cannot_express_is_named(tmp_path: Path) -> None:
    with pytest.raises(us.ExportError, match=r"ONNX cannot express aten\.linalg_householder_product"):
        us.export(Unheard(), tmp_path / "unheard.onnx", (2, 3, 1, 3))
    assert not list(tmp_path.iterdir())


def test_operations_of_every_namespace_are_named_and_colours_left_out(tmp_path: Path) -> None:
    class Bessel(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = torch.special.bessel_j0(x)
            return out

    with pytest.raises(us.ExportError, match=r"^ONNX cannot express prims\.bessel_j0, which Bessel uses$"):
        us.export(Bessel(), tmp_path / "bessel.onnx", (2, 4))
    below = RuntimeError("\x1b[96mno shape\x1b[0m\nand more")
    above = RuntimeError("\x1b[96mThis is step 3/3\x1b[0m of exporting")
    above.__cause__ = below
    assert formats._reason(above, "Net") == "Net cannot be written as ONNX: no shape"
    assert formats._reason(RuntimeError("torchvision::nms not found"), "Net").endswith(
        ": torchvision::nms not found"
    )
    unknown = RuntimeError(
        "No ONNX function found for <OpOverload(op='torchvision::nms', overload='default')>"
    )
    assert "cannot express torchvision.nms" in formats._reason(unknown, "Net")


def test_a_network_that_looks_at_values_says_in_one_sentence_that_it_is_not_one_graph(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if float(x.sum()) > 0 else -x

    words = "Looks cannot be captured as one graph for any batch: which operations it runs depends on values"
    with pytest.raises(us.ExportError, match=words) as raised:
        us.export(Looks(), tmp_path / "looks.pt2", X)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_an_original_that_does_not_take_the_example_is_refused_without_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        ValueError, match=r"original does not take the example: Linear cannot run on .*8, 8\)"
    ):
        us.export(small(), tmp_path / "student.pt2", X, original=nn.Linear(3, 4))
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


class Times(nn.Module):
    """A product with a constant."""

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (torch.tensor(torch.nan), "gives NaN, or infinities alone, .* that are not finite cannot be checked"),
        (torch.tensor([1, torch.nan]), "outputs that are not finite cannot be checked"),
        (torch.tensor(torch.inf), "outputs that are not finite cannot be checked"),
        (torch.ones(0), "gives no tensor with a number in it"),
    ],
)
def test_what_cannot_be_checked_is_not_exported(tmp_path: Path, factor: Tensor, words: str) -> None:
    with pytest.raises(us.ExportError, match=words):
        us.export(Times(factor), tmp_path / "times.pt2", torch.ones(2, 1))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "asked", "wanted"),
    [
        ("a.onnx", None, ("a.onnx", "onnx")),
        ("A.ONNX", None, ("A.ONNX", "onnx")),
        ("A.Xml", "openvino", ("A.Xml", "openvino")),
        ("model", "openvino", ("model.xml", "openvino")),
        ("model", "torch-export", ("model.pt2", "torch-export")),
        ("model.onnx", "openvino", ("model.onnx", "openvino")),
        ("a.bin", "openvino", r"a\.bin does not end in \.xml or \.onnx, as files of the format openvino do"),
        ("model.onnx", "torch-export", r"model\.onnx does not end in \.pt2, as files of"),
        ("v1.5", "onnx", r"v1\.5 does not end in \.onnx"),
        ("model", None, r"model does not say its format: end it in \.onnx \(onnx\)"),
        ("", "onnx", "does not end in"),
    ],
)
def test_a_suffix_is_that_of_the_format(name: str, asked: str | None, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        assert target_of(Path(name), asked) == (Path(wanted[0]), wanted[1])
        return
    with pytest.raises(ValueError, match=wanted):
        target_of(Path(name), asked)


def test_a_name_without_a_suffix_gets_one_and_the_result_says_so(tmp_path: Path) -> None:
    done = us.export(Times(torch.tensor(2.0)), tmp_path / "model", (1, 2), format="torch-export")
    assert [done.path] == [tmp_path / "model.pt2"] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "arguments", "error", "match"),
    [
        ("a.txt", {}, ValueError, r"a\.txt does not say its format: end it in \.onnx \(onnx\)"),
        ("a.onnx", {"format": "tflite"}, ValueError, "'tflite' is not one of onnx, openvino, torch-export"),
        ("a.onnx", {"dtype": "int4"}, ValueError, "'int4' is not one of float32, float16"),
        ("a.onnx", {"int8": []}, ValueError, "int8 holds no batch: it takes a list of batches"),
        ("a.onnx", {"int8": True}, TypeError, r"int8 is a bool: it takes a list .* int8=\[x1, x2\]"),
        ("a.onnx", {"int8": "x"}, TypeError, "int8 is a str: it takes"),
        ("a.onnx", {"int8": X}, TypeError, "int8 is one batch: it takes a list of batches"),
        ("a.onnx", {"int8": (3, 4)}, ValueError, r"int8\[0\] is not given as the example is"),
        (
            "a.onnx",
            {"int8": [X, X[:, :, 1:]]},
            ValueError,
            r"int8\[1\] is of shape \(3, 3, 7, 8\), the example",
        ),
        ("a.onnx", {"int8": [X.int()]}, ValueError, r"is of torch.int32, the example of torch.float32"),
        ("a.onnx", {"int8": [X * torch.nan]}, ValueError, r"int8\[0\] holds NaN or infinities"),
        ("a.onnx", {"int8": [X.to("meta")]}, ValueError, "is a shape, or all zero"),
        ("a.onnx", {"int8": [(X, torch.tensor([0, 1]))]}, ValueError, "has 2 labels for 3 samples"),
        (
            "a.onnx",
            {"int8": [(X, torch.tensor([0, 1, 10]))]},
            ValueError,
            r"labels of 0\.\.10, .* classes 0\.\.9",
        ),
        ("a.onnx", {"int8": [X], "test": [X[:, :2]]}, ValueError, r"test\[0\] is of shape \(3, 2, 8, 8\)"),
        ("a.onnx", {"test": [X]}, ValueError, "test is what eight bits are judged by: give batches"),
        ("a.onnx", {"example": X[:0]}, ValueError, r"holds no sample: it is of shape \(0, 3, 8, 8\)"),
        ("a.onnx", {"example": {"x": torch.tensor(1.0)}}, ValueError, "no tensor with an axis of samples"),
        ("a.onnx", {"int8": [(2, 3, 8, 8)]}, ValueError, "a shape, or all zero"),
        ("a.onnx", {"int8": [(X, X, X)]}, ValueError, "not given as the example is: it holds other"),
        ("a.pt2", {"int8": [X]}, ValueError, "int8 is for the format onnx, not torch-export"),
        ("no/a.onnx", {}, FileNotFoundError, "no folder .*no to write a.onnx to"),
        ("there.onnx", {}, FileExistsError, "there.onnx exists"),
        ("a.onnx", {"example": (2, 4, 8, 8)}, ValueError, r"Sequential cannot run on .* \[\(2, 4, 8, 8\)\]"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    (tmp_path / "there.onnx").touch()
    with pytest.raises(error, match=match):
        us.export(small(), tmp_path / name, arguments.pop("example", X), **arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["there.onnx"]


@pytest.mark.parametrize(("name", "extra"), [("a.onnx", "onnx"), ("a.xml", "openvino")])
def test_a_runtime_that_is_not_installed_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, extra: str
) -> None:
    def missing(module: str) -> Any:
        if module in ("onnxruntime", "openvino") or (extra == "openvino" and module == "onnx"):
            raise ImportError(module)
        return builtins.__import__(module)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ImportError, match=rf"pip install 'understudy\[{extra}\]'"):
        us.export(small(), tmp_path / name, X)


def test_a_file_whose_outputs_are_others_is_refused_and_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "opened", lambda *_: lambda batch: [torch.zeros(len(batch), 10)])
    with pytest.raises(us.ExportError, match="of its largest output off PyTorch's, more than 1e-04"):
        us.export(small(), tmp_path / "wrong.pt2", X)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [0, 1], ids=["the first batch", "the second"])
def test_a_file_that_gives_nan_in_any_output_of_any_batch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return 2 * x, x + 1

    def spoiling(batch: Tensor) -> list[Tensor]:
        first, second = Twice()(batch)
        return [first, second * float("nan") if len(batch) == len(X) + wrong else second]

    monkeypatch.setattr(export_module, "opened", lambda *_: spoiling)
    with pytest.raises(us.ExportError, match="is inf of its largest output off"):
        us.export(Twice(), tmp_path / "wrong.pt2", X)


def test_outputs_that_are_infinite_in_both_are_the_same() -> None:
    wanted = torch.tensor([4.0, -torch.inf, torch.nan, 2.0])
    near = torch.tensor([4.0, -torch.inf, torch.nan, 1.0])
    assert export_module.output_error([near], [wanted]) == 0.25
    assert export_module.output_error([wanted[1:3]], [wanted[1:3]]) == 0
    for other in (torch.inf, torch.nan, 0.0):
        got = torch.tensor([4.0, other, torch.nan, 2.0])
        assert export_module.output_error([got], [wanted]) == torch.inf


def test_what_a_runtime_raises_is_an_error_of_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> list[Tensor]:
        raise RuntimeError("NOT_IMPLEMENTED : no kernel\nmore")

    monkeypatch.setattr(export_module, "opened", lambda *_: broken)
    with pytest.raises(us.ExportError, match=r"PyTorch cannot run Sequential: NOT_IMPLEMENTED : no kernel$"):
        us.export(small(), tmp_path / "wrong.pt2", X)
    (tmp_path / "empty.onnx").write_bytes(b"no graph")
    with pytest.raises(us.ExportError, match=r"ONNX Runtime cannot run empty\.onnx"):
        opened(tmp_path / "empty.onnx", "onnx")


def test_a_network_in_double_precision_becomes_one_in_single_precision(tmp_path: Path) -> None:
    done = us.export(small().double(), tmp_path / "single.onnx", X.double())
    assert done.error < 1e-4
    assert done.bytes < 8 * done.params


def test_an_encoder_with_a_mask_of_padding_is_exported(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1)

        def forward(self, x: Tensor, padding: Tensor) -> Tensor:
            out: Tensor = self.encoder(x, src_key_padding_mask=padding)
            return out

    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    done = us.export(Masked(), tmp_path / "masked.onnx", {"x": torch.randn(2, 5, 16), "padding": padding})
    assert done.error < 1e-4
    assert torch.backends.mha.get_fastpath_enabled()
