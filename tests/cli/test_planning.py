"""The command: every subcommand, every budget, and one clear line with exit code 2 for bad input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import understudy as us
from command import Result, Run
from understudy.planning import planner
from understudy.planning.stopwatch import Passed

TRANSFORMS = us.list_transforms()


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of somebody's own, in the folder where the command runs."""
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "import torch\n"
        "def perceptron():\n    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2))\n"
        "def needs(width):\n    return nn.Linear(width, width)\n"
        "class Failing(nn.Module):\n    def forward(self, x):\n        raise RuntimeError('out of\\nluck')\n"
        "constant = 7\n"
        "class Inverting(nn.Module):\n    def forward(self, x):\n        return torch.linalg.inv(x)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def assert_fits(result: Result) -> None:
    assert result.code == 0, result.err
    assert all(line == line.rstrip() for line in result.out.splitlines()), "lines are padded"
    assert result.err == ""


# ---- what it shows ---------------------------------------------------------------------------------------


def test_transforms_are_listed_with_their_mathematics(run: Run) -> None:
    result = run("transforms")
    assert_fits(result)
    for name, transform in ((name, us.get_transform(name)) for name in us.list_transforms()):
        line = next(line for line in result.out.splitlines() if line.startswith(f"  {name} "))
        assert transform.knob_name in line
    assert "W = U V, rank r." in result.text
    assert "r (in + out) parameters" in result.text


def test_what_is_piped_is_as_wide_as_columns_says(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        for arguments in (("transforms",), ("sites", "wrn_16_1"), (*PLAN, "-t", "shuffle", "--knob", "3")):
            lines = run(*arguments).out.splitlines()
            assert max(map(len, lines)) <= width
        assert len([line for line in lines if line.startswith("  stage2.0.shortcut ")]) == 1  # not broken


def test_sites_are_listed_with_their_reasons(run: Run) -> None:
    result = run("sites", "wrn_16_1")
    assert_fits(result)
    assert "stage2.0.conv1" in result.out
    assert "no: the first convolution, excluded by default" in result.text
    assert "no: the last layer, excluded by default" in result.text


def test_sites_take_filters_and_a_shape(run: Run) -> None:
    result = run("sites", "wrn_16_1", "--include", "stage1", "--include", "stage2", "--exclude", "*.shortcut")
    assert_fits(result)
    assert "no: not included" in result.text
    assert "no: excluded by '*.shortcut'" in result.text
    assert run("sites", "wrn_16_1", "--input", "3,64,64").out != run("sites", "wrn_16_1").out


@pytest.mark.parametrize(
    ("budget", "option"),
    [
        ({"params": "40k"}, ("--params", "40k")),
        ({"mult_adds": "5M"}, ("--mult-adds", "5M")),
        ({"ratio": 0.2}, ("--ratio", "0.2")),
        ({"scale": 0.3}, ("--scale", "0.3")),
        ({"knob": 4}, ("--knob", "4")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_plan_is_made_for_every_kind_of_budget(
    budget: dict[str, object], option: tuple[str, str], run: Run, tmp_path: Path
) -> None:
    result = run("plan", "wrn_16_1", "--transform", "low_rank", *option, "--json", tmp_path / "plan.json")
    assert_fits(result)
    with torch.device("meta"):
        model = us.create_model("wrn_16_1")
    wanted = us.plan(model, "low_rank", example=us.example_input("wrn_16_1", model), **budget)  # type: ignore[arg-type]
    assert us.Plan.load(tmp_path / "plan.json") == wanted
    assert f"{wanted.params:,} parameters" in result.text
    assert all(layer.path in result.out for layer in wanted.layers)


def test_a_plan_takes_the_other_options(run: Run, tmp_path: Path) -> None:
    result = run(
        *("plan", "wrn_16_1", "-t", "hashed", "--ratio", "0.5", "--spatial", "unfolded", "--seed", "3"),
        *("--option", "indexing=independent", "--exclude", "*.shortcut", "--input", "3,16,16"),
        *("--json", tmp_path / "plan.json"),
    )
    assert_fits(result)
    plan = us.Plan.load(tmp_path / "plan.json")
    assert plan.request.spatial == "unfolded"
    assert not [layer.path for layer in plan.layers if layer.path.endswith("shortcut")]
    assert {layer.way for layer in plan.layers} == {"unfolded"}
    specs = [layer.spec for layer in plan.layers if layer.spec is not None]
    assert {spec.options["indexing"] for spec in specs} == {"independent"}
    with torch.device("meta"):
        model = us.create_model("wrn_16_1")
    other = us.plan(model, "hashed", ratio=0.5, seed=3, spatial="unfolded", exclude=["*.shortcut"])
    assert [layer.spec and layer.spec.seed for layer in other.layers] == [spec.seed for spec in specs]


def test_convolutions_are_taken_inside_where_asked_and_a_transform_that_cannot_be_is_refused(
    run: Run,
) -> None:
    assert "inside" in run("plan", "wrn_16_1", "-t", "shuffle", "--knob", "2", "--spatial", "inside").out
    refused = run("plan", "wrn_16_1", "-t", "hashed", "--ratio", "0.5", "--spatial", "inside")
    assert refused.code == 2
    assert "hashed cannot be taken inside" in refused.err


def test_a_plan_has_a_transform_for_each_pattern_and_is_saved_before_it_is_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("plan", "wrn_16_1", "-t", "*.conv1=shuffle", "-t", "*.conv2=low_rank", "--ratio", "20%")
    result = run(*arguments)
    assert "*.conv1=shuffle, *.conv2=low_rank for WideResNet, at most 20 % of the parameters" in result.out

    def closed(_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("understudy.cli.planning.show", closed)
    run(*arguments, "--json", tmp_path / "plan.json")
    assert us.Plan.load(tmp_path / "plan.json").transforms == ("shuffle", "low_rank")


def test_all_transforms_are_shown_side_by_side(run: Run, tmp_path: Path) -> None:
    result = run("plan", "wrn_50_2", "--all", "--params", "17.6M", "--json", tmp_path / "all.json")
    assert_fits(result)
    lines = result.out.splitlines()
    records = json.loads((tmp_path / "all.json").read_text())
    assert list(records) == TRANSFORMS
    for name in TRANSFORMS:
        row = next(line for line in lines if line.startswith(f"  {name} "))
        if name == "dense":
            assert "17.60M parameters is below what is reachable" in row
            assert "28,712,104" in records[name]["unreachable"]
        else:
            plan = us.Plan.from_json(json.dumps(records[name]))
            assert f"{plan.params:,}" in row
            assert plan.params <= 17_600_000
    assert "68,883,240" in result.out


@pytest.mark.parametrize(
    "option", [("--scale", "0.2"), ("--mult-adds", "10M"), ("--ratio", "0.2"), ("--knob", "2")]
)
def test_all_transforms_are_shown_for_every_kind_of_budget(option: tuple[str, str], run: Run) -> None:
    result = run("plan", "wrn_16_1", "--all", *option)
    assert_fits(result)
    assert all(re.search(rf"^  {name} ", result.out, re.MULTILINE) for name in TRANSFORMS)


def test_an_option_of_one_transform_does_not_stop_the_others(run: Run) -> None:
    assert_fits(run("plan", "wrn_16_1", "--all", "--ratio", "0.2", "--option", "indexing=independent"))


def test_cost_counts_the_dense_network(run: Run) -> None:
    result = run("cost", "wrn_16_1")
    assert_fits(result)
    assert "175,066 parameters" in result.text
    assert run("cost", "wrn_16_1", "--input", "3,64,64").out != result.out


def test_a_budget_of_time_is_one_of_the_network_itself_as_it_runs_here(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def time_pass(model: nn.Module, *_: object) -> Passed:
        measured.append(any(parameter.is_meta for parameter in model.parameters()))
        return Passed(2_000_000, 1_000_000, {}, {})

    monkeypatch.setattr(planner, "time_pass", time_pass)
    asked = ("plan", "wrn_10_1", "-t", "low_rank", "--latency", "100ms")
    assert "of the original's 2 ms, measured on this machine with" in run(*asked).text
    assert measured == [False]
    monkeypatch.setattr("understudy.cli.planning._MOST_TIMED", 1000)
    assert ", not measured; " in run(*asked).text
    assert measured == [False]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_cost_counts_a_plan_as_the_plan_says(transform: str, run: Run, tmp_path: Path) -> None:
    assert_fits(run("plan", "wrn_16_1", "-t", transform, "--scale", "0.3", "--json", tmp_path / "plan.json"))
    plan = us.Plan.load(tmp_path / "plan.json")
    result = run("cost", "wrn_16_1", "--plan", tmp_path / "plan.json")
    assert_fits(result)
    assert f"{plan.params:,} parameters; {plan.mult_adds:,} mult-adds as executed" in result.text


@pytest.mark.usefixtures("mine")
def test_a_network_of_ones_own_is_named_by_its_factory(run: Run) -> None:
    result = run("sites", "my_networks:perceptron", "--input", "4")
    assert_fits(result)
    assert "2 of 3 sites" in result.text


def test_a_network_of_timm_is_named_by_its_library(run: Run) -> None:
    result = run("plan", "timm:resnet10t", "-t", "low_rank", "--ratio", "0.3", "--input", "3,64,64")
    assert_fits(result)
    assert "low_rank for ResNet" in result.text


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version") == Result(0, f"{us.__version__}\n", "")


@pytest.mark.parametrize("command", ["transforms", "sites", "plan", "cost"])
def test_every_command_explains_itself(command: str, run: Run) -> None:
    result = run(command, "--help")
    assert result.code == 0
    assert f"understudy {command}" in result.text


# ---- bad input -------------------------------------------------------------------------------------------

PLAN = ("plan", "wrn_16_1")


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sites", "wrn_16_11x"), "no network 'wrn_16_11x' (did you mean 'wrn_16_1'"),
        (("sites", "timm:resnet81"), "timm has no network 'resnet81' (did you mean"),
        (("sites", "torchvision:resnet81"), "torchvision has no network 'resnet81' (did you mean"),
        (("sites", "nowhere:thing", "--input", "3"), "no module 'nowhere'"),
        (
            ("sites", "my_networks:perceptrons", "--input", "3"),
            "my_networks:perceptrons does not exist (did you",
        ),
        (("sites", "my_networks:perceptron"), "the input shape of 'my_networks:perceptron' is not known"),
        (("sites", "my_networks:constant", "--input", "3"), "my_networks:constant"),
        (("sites", "my_networks:needs", "--input", "3"), "my_networks:needs"),
        (
            ("sites", "my_networks:Failing", "--input", "3"),
            "Failing cannot run on an example of shape [(1, 3)]: out of",
        ),
        (("sites", ".relative:thing", "--input", "3"), "relative"),
        (("sites", ":thing", "--input", "3"), "thing"),
        (("sites", "wrn_16_1", "--input", "3,x"), "--input '3,x' is not a shape such as 3,224,224"),
        (("sites", "wrn_16_1", "--input", "0,32,32"), "--input '0,32,32' is not a shape"),
        (("sites", "wrn_16_1", "--input", ""), "is not a shape"),
        (("sites", "wrn_16_1", "--input", "4,32,32"), "cannot run on an example of shape [(1, 4, 32, 32)]"),
        (("sites", "wrn_16_1", "--include", "stagee1"), "include pattern 'stagee1' matches no site"),
        (("sites", "wrn_16_1", "--exclude", "stagee1"), "exclude pattern 'stagee1' matches no site"),
        (PLAN, "give either --transform NAME or --all"),
        ((*PLAN, "--all", "-t", "low_rank", "--ratio", "0.1"), "give either --transform NAME or --all"),
        (
            (*PLAN, "-t", "low_rank"),
            "give exactly one of params, mult_adds, bytes, ratio, scale, knob and latency; got none",
        ),
        ((*PLAN, "-t", "low_rank", "--ratio", "0.1", "--knob", "1"), "got ratio and knob"),
        ((*PLAN, "-t", "low-rank", "--ratio", "0.1"), "did you mean 'low_rank'"),
        (
            (*PLAN, "-t", "low_rank", "-t", "Linear=hashed", "--ratio", "0.1"),
            "--transform low_rank beside others",
        ),
        ((*PLAN, "-t", "*.conv9=hashed", "--ratio", "0.1"), "the pattern '*.conv9' of hashed names no site"),
        ((*PLAN, "-t", "low_rank", "--ratio", "much"), "ratio 'much' is not a number such as 0.3 or 30%"),
        ((*PLAN, "-t", "low_rank", "--params", "lots"), "'lots' is not a count"),
        ((*PLAN, "-t", "low_rank", "--params", "1"), "1 parameters is below what is reachable:"),
        ((*PLAN, "-t", "low_rank", "--mult-adds", "1"), "1 mult-adds is below what is reachable:"),
        ((*PLAN, "-t", "low_rank", "--ratio", "7"), "ratio '7' is not in 0..1"),
        ((*PLAN, "-t", "low_rank", "--scale", "7"), "scale '7' is not in 0..1"),
        ((*PLAN, "-t", "low_rank", "--knob", "99"), "stage1.0.conv1: rank 99 is not in 1..16 for 16 → 16"),
        ((*PLAN, "-t", "low_rank", "--ratio", "0.1", "--option", "x"), "--option 'x' is not NAME=VALUE"),
        ((*PLAN, "-t", "low_rank", "--ratio", "0.1", "--option", "x=1"), "low_rank has no option 'x'"),
        ((*PLAN, "--all", "--ratio", "0.1", "--option", "x=1"), "no transform has an option x"),
        ((*PLAN, "--all", "--params", "lots"), "'lots' is not a count"),
        ((*PLAN, "--all", "--knob", "0"), "knob '0' is not"),
        (("cost", "wrn_16_1", "--plan", "missing.json"), "missing.json"),
        (("cost", "wrn_16_1", "--plan", "my_networks.py"), "not a plan"),
        (("cost", "my_networks:Inverting", "--input", "3,3"), "no mult-add rule for aten.linalg_inv_ex"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_ends_with_one_line_and_exit_code_2(
    arguments: tuple[str, ...], words: str, run: Run
) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert words in result.err
    assert result.err.startswith("error: ")
    assert len(result.err.splitlines()) == 1
    assert result.out == ""


@pytest.mark.parametrize("which", [("--all",), ("-t", "low_rank")], ids=" ".join)
def test_a_folder_that_is_missing_ends_with_one_line_and_exit_code_2(
    which: tuple[str, ...], run: Run
) -> None:
    result = run(*PLAN, *which, "--ratio", "0.1", "--json", "no/such/folder/plan.json")
    assert result.code == 2
    assert "no folder no/such/folder to write plan.json to" in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.usefixtures("mine")
def test_a_plan_for_another_network_ends_with_one_line_and_exit_code_2(run: Run, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    us.plan(model, "low_rank", knob=1).save(tmp_path / "other.json")
    result = run("cost", "wrn_16_1", "--plan", tmp_path / "other.json")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: the plan does not fit WideResNet: no module '0'")
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("library", "extra"), [("timm", "vision"), ("torchvision", "vision"), ("transformers", "text")]
)
def test_a_missing_library_ends_with_the_extra_to_install(
    library: str, extra: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    result = run("sites", f"{library}:anything")
    assert result.code == 2
    assert f"pip install 'understudy[{extra}]'" in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("sites",),
        ("sight", "wrn_16_1"),
        ("sites", "wrn_16_1", "--colour", "red"),
        (*PLAN, "-t", "low_rank", "--spatial", "round", "--ratio", "0.1"),
    ],
    ids=" ".join,
)
def test_a_call_that_cannot_be_read_ends_with_the_usage_and_exit_code_2(
    arguments: tuple[str, ...], run: Run
) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert "Usage" in result.err + result.out
    assert "Traceback" not in result.err


# ---- as a process ----------------------------------------------------------------------------------------


def process(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "error",
        "PYTHONIOENCODING": "utf-8",
    }
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, encoding="utf-8", check=False
    )


@pytest.mark.usefixtures("mine")
def test_the_installed_command_finds_a_factory_in_the_folder_where_it_runs(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("understudy")
    done = process(str(script), "sites", "my_networks:perceptron", "--input", "4", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of 3 sites" in " ".join(done.stdout.split())


def test_the_package_runs_as_a_module_and_an_error_shows_no_traceback(tmp_path: Path) -> None:
    done = process(sys.executable, "-m", "understudy", "sites", "wrn_28", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: no network 'wrn_28' (did you mean 'wrn_")
    assert len(done.stderr.splitlines()) == 1
