"""Results are records: checked whole when they are read, and exact when they are written."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import result, sweep, unfinished

from understudy._util.records import Json, RecordError, from_plain, read_record, to_plain, write_record
from understudy.results import Result, ResultsError, check_names


@dataclasses.dataclass(frozen=True)
class Inner:
    flag: bool
    choice: Literal["a", "b"]


@dataclasses.dataclass(frozen=True)
class Outer:
    text: str
    count: int
    number: float
    either: int | float | None
    inner: Inner | None
    items: tuple[Inner, ...]
    pair: tuple[int, str]
    table: Mapping[str, float]
    anything: Json
    spare: int = 3

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"count is {self.count}, below 0")


numbers = st.floats(allow_nan=False, allow_infinity=False)
inners = st.builds(Inner, st.booleans(), st.sampled_from(["a", "b"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
outers = st.builds(
    Outer, st.text(), st.integers(0), numbers, st.none() | st.integers() | numbers, st.none() | inners,
    st.lists(inners, max_size=2).map(tuple), st.tuples(st.integers(), st.text()),
    st.dictionaries(st.text(), numbers, max_size=2), json_values, st.integers(),
)  # fmt: skip


@given(outers)
def test_a_record_survives_json(record: Outer) -> None:
    assert from_plain(Outer, json.loads(json.dumps(to_plain(record)))) == record


GOOD: dict[str, Any] = {
    "text": "x", "count": 1, "number": 2, "either": None, "inner": {"flag": True, "choice": "a"},
    "items": [{"flag": False, "choice": "b"}], "pair": [1, "y"], "table": {"k": 0.5}, "anything": [None],
    "spare": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": 7}, "text is 7, not text"),
        ({"count": 1.0}, "count is 1.0, not a whole number"),
        ({"count": True}, "count is True, not a whole number"),
        ({"count": -1}, "count is -1, below 0"),
        ({"number": "2"}, "number is '2', not a finite number"),
        ({"number": math.nan}, "number is nan, not a finite number"),
        ({"number": math.inf}, "number is inf, not a finite number"),
        ({"number": True}, "number is True, not a finite number"),
        ({"number": 10**400}, "number is 10+…, not a finite number"),
        ({"number": None}, "number is None, not a finite number"),
        ({"either": "x"}, "either is 'x', not a finite number"),
        ({"inner": 3}, "inner is 3, not a table"),
        ({"inner": {"flag": 1, "choice": "a"}}, r"inner\.flag is 1, not true or false"),
        ({"inner": {"flag": True, "choice": "c"}}, r"inner\.choice is 'c', not one of a, b"),
        ({"inner": {"flag": True}}, r"inner\.choice is missing"),
        ({"items": "none"}, "items is 'none', not a list"),
        ({"items": [GOOD["inner"], {}]}, r"items\[1\]\.flag, items\[1\]\.choice are missing"),
        ({"pair": [1]}, "pair holds 1 values, not 2"),
        ({"pair": ["1", "y"]}, r"pair\[0\] is '1', not a whole number"),
        ({"table": [1]}, r"table is \[1\], not a table"),
        ({"table": {"k": None}}, r"table\.k is None, not a finite number"),
        ({"anything": {"deep": [math.nan]}}, r"anything\.deep\[0\] is nan, not a finite number"),
        ({"anything": object}, "anything is <class 'object'>, not a finite number"),
        ({"txt": 1}, r"txt is unknown \(did you mean 'text'"),
    ],
)
def test_what_is_wrong_with_a_record_is_told_with_its_path(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=f"^{message}"):
        from_plain(Outer, GOOD | changes)


def test_a_field_with_a_default_may_not_be_missing_either() -> None:
    with pytest.raises(RecordError, match="spare is missing"):
        from_plain(Outer, {key: value for key, value in GOOD.items() if key != "spare"})
    with pytest.raises(RecordError, match=r"the record is \[\], not a table"):
        from_plain(Outer, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 2', "is not JSON"),
        ("[]", r"holds \[\], not a table"),
        ("{}", "has format None"),
        ('{"format": 9, "understudy": "7.0"}', r"has format 9, written by understudy 7\.0; .* format 2"),
        ('{"format": true}', "has format True"),
        ('{"format": 2, "flag": true}', "choice is missing"),
    ],
)
def test_a_file_of_another_kind_or_version_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "inner.json").write_text(text)
    with pytest.raises(RecordError, match=rf"inner\.json.*{message}"):
        read_record(Inner, tmp_path / "inner.json", 2)


def test_a_file_holds_a_record_whole_and_no_number_that_is_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "outer.json"
    record = from_plain(Outer, GOOD)
    write_record(path, record, 2)
    assert read_record(Outer, path, 2) == record
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(path, dataclasses.replace(record, number=math.nan), 2)
    assert path.read_bytes() == before


# ---- results -------------------------------------------------------------------------------------------


def test_results_in_every_state_survive_json() -> None:
    for made in [*sweep(("hashed",)), *unfinished()]:
        assert Result.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert not any(made.finished for made in unfinished())


def test_a_result_from_before_baselines_said_what_they_are_a_form_of_is_read() -> None:
    made = result(form_of="")
    content = made.to_dict()
    assert content.pop("form_of") == ""
    assert Result.from_dict(content) == made


def test_costs_as_counted_win_over_those_planned() -> None:
    made = result()
    assert made.costs is not None
    assert made.planned is not None
    assert (made.params, made.mult_adds) == (made.costs.params, made.costs.mult_adds)
    planned = result(state="waiting")
    assert (planned.params, planned.ideal_mult_adds) == (made.planned.params, made.planned.ideal_mult_adds)
    assert (unfinished()[2].params, unfinished()[2].top1) == (None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 1}, "has format 1; this version reads format 2"),
        ({"format": True}, "has format True"),
        ({"role": "judge"}, "role is 'judge', not one of teacher, student, baseline"),
        ({"status": {"state": "done", "reason": ""}}, r"status\.state is 'done', not one of waiting"),
        ({"network": ""}, "neither may be empty"),
        ({"costs": None}, "it is finished: costs and errors belong to what has finished"),
        ({"status": {"state": "failed", "reason": "x"}}, "it is failed: costs and errors belong"),
        ({"errors": {"top1": math.nan, "top5": 1.0, "test_images": 5}}, r"errors\.top1 is nan"),
        ({"costs": {"params": -1, "mult_adds": 1, "ideal_mult_adds": 1, "bytes": 1}}, "costs: params is -1"),
        ({"curve": [3]}, r"curve\[0\] is 3, not a table"),
        ({"recipe": {}}, "recipe is unknown"),
    ],
)
def test_a_bad_result_is_named_and_explained(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ResultsError, match=f"result some-cell:? .*{message}"):
        Result.from_dict(result("some-cell").to_dict() | changes)


def test_two_results_of_one_name_are_refused() -> None:
    with pytest.raises(ResultsError, match="2 results have the name twice"):
        check_names([result("twice"), result("twice", seed=1)])
