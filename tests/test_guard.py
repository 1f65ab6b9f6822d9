"""Every public function that takes a network answers an odd one with one sentence, or with what was asked."""

from __future__ import annotations

import inspect
import math
import pickle
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import understudy as us
from understudy._util.guard import the_network

X = torch.ones(4, 8)
NAMES = ("model", "models", "student", "teacher")  # of parameters that are networks


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))


PLAN = us.plan(plain(), "low_rank", knob=2)
CALLS: dict[str, Callable[[Any, Path], object]] = {
    "AttentionTransfer": lambda model, _: us.AttentionTransfer(model, plain(), taps=["0"]),
    "SelfGuidance": lambda model, _: us.SelfGuidance(model).close(),
    "calibrate": lambda model, _: us.calibrate(model, [X]),
    "compare": lambda model, _: us.compare(model, ratio=0.9),
    "compress": lambda model, _: us.compress(model, ratio=0.9, data=[X]),
    "compression": lambda model, _: us.compression(model, ratio=0.9, data=[X]),
    "cost": lambda model, _: us.cost(model, X),
    "example_input": lambda model, _: us.example_input("wrn_10_1", model),
    "export": lambda model, folder: us.export(model, folder / "made.pt2", X),
    "frobenius_decay": lambda model, _: us.frobenius_decay(model, 0.1),
    "load": lambda model, folder: us.load(folder / "plain.safetensors", model),
    "load_weights": lambda model, folder: us.load_weights(model, folder / "plain.safetensors"),
    "lower": lambda model, _: us.lower(model),
    "merge": lambda model, _: us.merge(model),
    "parameter_groups": lambda model, _: us.parameter_groups(model, 0.1),
    "plan": lambda model, _: us.plan(model, "low_rank", knob=2),
    "save": lambda model, folder: us.save(model, folder / "made.safetensors"),
    "sites": lambda model, _: us.sites(model),
    "speed": lambda model, _: us.speed(model, X, seconds=0.001),
    "stand_ins": lambda model, _: [*us.stand_ins(model)],
    "substitute": lambda model, _: us.substitute(model, PLAN),
    "substitute_": lambda model, _: us.substitute_(model, PLAN),
    "tune": lambda model, _: us.tune(model, X, seconds=0.001),
    "weight_decay_groups": lambda model, _: us.weight_decay_groups(model, 0.1),
}
RUN = {"calibrate", "compress", "compression", "export", "speed", "tune"}
COPIED = RUN - {"speed"} | {"SelfGuidance", "load", "lower", "merge", "substitute", "substitute_"}
BY_STRUCTURE = {"compare", "example_input", "plan", "sites", "stand_ins"}  # also of a shape that is not known


def takes_a_network(name: str) -> bool:
    public = getattr(us, name)
    is_record = inspect.isclass(public) and (
        issubclass(public, Exception) or "__dataclass_fields__" in vars(public)
    )
    if not callable(public) or is_record:
        return False
    return any(parameter in NAMES for parameter in inspect.signature(public).parameters)


def test_the_list_of_functions_is_whole() -> None:
    assert {name for name in us.__all__ if takes_a_network(name)} == CALLS.keys()


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made: nn.Module = torch.jit.script(plain())
    return made


def lazy() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.LazyLinear(8), nn.Linear(8, 2))


def dotted() -> nn.Module:
    made = plain()
    made._modules["a.b"] = nn.Linear(2, 2)
    return made


def normed() -> nn.Module:
    made = plain()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(made[2])
    return made


def eight_bits() -> nn.Module:
    return plain().to(torch.float8_e4m3fn)


ODD: dict[str, tuple[Callable[[], Any], set[str], str]] = {  # who refuses it, and in which words
    "a name": (lambda: "wrn_10_1", {*CALLS}, "is a str, not a torch.nn.Module"),
    "none": (lambda: None, {*CALLS}, "is a NoneType, not a torch.nn.Module"),
    "a class": (lambda: nn.Linear, {*CALLS}, "is the class Linear: make a network of it"),
    "a tensor": (lambda: X, {*CALLS}, "is a Tensor, not a torch.nn.Module"),
    "scripted": (scripted, {*CALLS}, "is a ScriptModule"),
    "partly scripted": (lambda: nn.Sequential(scripted()), {*CALLS}, "holds '0', a ScriptModule"),
    "dotted": (dotted, {*CALLS}, "has a part named 'a.b'"),
    "lazy": (lazy, CALLS.keys() - BY_STRUCTURE, "'1.weight' of Sequential is unknown before its first call"),
    "meta": (lambda: plain().to("meta"), RUN | {"save", "load_weights"}, "is on the meta device"),
    "eight bits": (eight_bits, RUN, "is torch.float8_e4m3fn, with which torch does not compute"),
    "normed": (normed, COPIED, "'2.weight' of Sequential is computed and kept as a plain tensor"),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_network_is_worked_with_or_refused_in_one_sentence(kind: str, tmp_path: Path) -> None:
    make, refusing, words = ODD[kind]
    us.save(plain(), tmp_path / "plain.safetensors")
    for name, call in CALLS.items():
        before = sorted(tmp_path.iterdir())
        try:
            call(make(), tmp_path)
        except (TypeError, ValueError) as error:
            said, last = str(error), traceback.extract_tb(error.__traceback__)[-1].filename
            assert "\n" not in said.strip() or name not in refusing, (name, said)
            assert Path(last).is_relative_to(Path(us.__file__).parent), (name, last, said)
            assert (words in said) >= (name in refusing), (name, said)
            assert sorted(tmp_path.iterdir()) == before, name
        else:
            assert name not in refusing, name


def test_what_a_wrong_argument_is_called_is_its_name() -> None:
    with pytest.raises(TypeError, match=r"^teacher is a int"):
        us.AttentionTransfer(plain(), 3, taps=["0"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^models\['small'\] is a int"):
        us.speed({"small": 3}, X)  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"create_model\(\) makes one by name"):
        us.plan("wrn_10_1", "low_rank", ratio=0.5)  # type: ignore[arg-type]


def test_a_network_that_can_be_worked_with_is_given_back() -> None:
    model = pickle.loads(pickle.dumps(plain()))
    assert the_network(model, copied=True, run=True) is model


@pytest.mark.parametrize("amount", [math.nan, math.inf, -1.0, True, "0.1", None])
def test_an_amount_that_is_none_is_refused(amount: Any) -> None:
    model, teacher = plain(), plain()
    calls: dict[str, Callable[[], object]] = {
        "weight_decay": lambda: us.weight_decay_groups(model, amount),
        "weight_decay ": lambda: us.parameter_groups(model, amount),
        "weight_decay  ": lambda: us.frobenius_decay(model, amount),
        "beta": lambda: us.AttentionTransfer(model, teacher, taps=["0"], beta=amount),
        "seconds": lambda: us.speed(model, X, seconds=amount),
        "seconds ": lambda: us.tune(model, X, seconds=amount),
    }
    if amount is not None:
        calls["learning_rate"] = lambda: us.parameter_groups(model, 0.1, learning_rate=amount)
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"^{name.strip()} is .*, not a"):
            call()
    assert not any(module._forward_hooks for module in (*model.modules(), *teacher.modules()))
