"""Networks side by side: what the table and the page say, and that they say so whoever is ahead."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from test_compression_page import EVIL, compressed

import demo
from understudy._util.provenance import Machine
from understudy._util.records import RecordError
from understudy.comparisons import FILE, Call, Comparison, Contender, Role
from understudy.report import write_comparison
from understudy.report.comparison import comparison_section
from understudy.report.read.comparison import beside_rivals, claims, comparison_table, limits


def contender(role: Role, params: int, error: float, *best_ms: float) -> Contender:
    calls = tuple(Call(batch, ms, 2 * ms, 100) for batch, ms in zip((1, 64), best_ms, strict=False))
    return Contender(role, f"the {role}", params, 4 * params, error, 10.0, calls)


def comparison(**changes: object) -> Comparison:
    made = Comparison(
        understudy="0.2.0",
        commit=None,
        machine=Machine("x86_64", 2, "cpu", "2.13", "3.11", 1),
        runtime="ONNX Runtime 1",
        data="digits",
        test_samples=500,
        seed=0,
        contenders=(
            contender("original", 1_000, 2.0, 1.0, 30.0),
            contender("compressed", 100, 9.0),
            contender("student", 100, 2.5, 0.5, 6.0),
            contender("narrower", 99, 3.0, 0.4, 7.0),
            contender("taught", 99, 2.2, 0.4, 5.0),
        ),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def with_student(**changes: object) -> Comparison:
    return comparison(
        contenders=tuple(
            dataclasses.replace(one, **changes) if one.role == "student" else one  # type: ignore[arg-type]
            for one in comparison().contenders
        )
    )


def test_a_row_says_what_a_network_costs_and_how_it_answers() -> None:
    made = comparison_table(comparison())
    assert made.columns[-2:] == (">ms, batch 1", ">ms, batch 64")
    rows = [[entry.text for entry in row] for row in made.rows]
    assert rows[1][4:] == ["9.0 %", "10 s", "–", "–"]  # it is as quick as the student
    assert rows[2][:4] == ["student, recovered", "the student", "100", "400 B"]
    assert rows[2][4:] == ["2.5 %", "10 s", "0.500 / 1.000", "6.000 / 12.000"]


@pytest.mark.parametrize(
    ("recovery", "label"),
    [("kept", "student, recovered"), ("undone", "student, its recovery undone"), ("none", "student")],
)
def test_a_student_is_called_recovered_only_where_it_is(recovery: str, label: str) -> None:
    assert comparison_table(comparison(recovery=recovery)).rows[2][0].text == label


def test_only_calls_that_gain_less_than_is_saved_are_a_limit() -> None:
    slower, quicker = Call(1, 0.5, 0.6, 9), Call(64, 1.0, 1.1, 9)
    assert "10.0 times fewer parameters and is not as many times quicker: 2.0 × with batch 1. " in " ".join(
        limits(with_student(calls=(slower, quicker)))
    )
    quickest = with_student(calls=(Call(1, 0.05, 0.06, 9), quicker))
    assert "times quicker" not in " ".join(limits(quickest))


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({}, []),
        ({"params": 1_000}, ["fewer parameters"]),
        ({"bytes": 4_001}, ["a smaller file"]),
        ({"calls": (Call(1, 0.5, 2.1, 9), Call(64, 6.0, 7.0, 9))}, ["quicker with batch 1"]),
        ({"calls": (Call(1, 0.5, 0.6, 9), Call(64, 30.0, 31.0, 9))}, ["quicker with batch 64"]),
        ({"error": 2.6}, ["an error at most 0.5 points higher"]),
    ],
)
def test_a_claim_that_is_not_held_is_said_so(changes: dict[str, object], lost: list[str]) -> None:
    found = with_student(**changes)
    assert [claim.what for claim in claims(found) if not claim.is_held] == lost
    assert sum(str(claim).startswith("NO: ") for claim in claims(found)) == len(lost)
    assert comparison_section(found).count("✗") == len(lost)


def test_a_dense_network_of_the_same_size_is_named_where_it_is_ahead() -> None:
    alone, taught = beside_rivals(comparison())
    assert (
        "Beside narrower dense (the narrower): the student is ahead in error, latency with batch 64 " in alone
    )
    assert "the student is ahead in nothing (error 2.5 % against 2.2 %; batch 1: 0.500 against" in taught
    assert "it is quicker here (the narrower, the taught)" in " ".join(limits(comparison()))
    quickest = with_student(calls=(Call(1, 0.1, 0.1, 9), Call(64, 1.0, 1.0, 9)))
    assert "it is quicker here" not in " ".join(limits(quickest))


def test_the_page_is_that_of_the_compression_with_the_comparison_first(tmp_path: Path) -> None:
    found = comparison(contenders=(*comparison().contenders[:-1],), runtime=EVIL, data=EVIL)
    page = write_comparison(found, compressed(), tmp_path, ["student.onnx"]).read_text(encoding="utf-8")
    assert "<img" not in page
    assert page.index("Where structure does not help") < page.index("Trade-off") < page.index("student.onnx")
    assert "10.0 ×" in page


def test_a_comparison_goes_to_its_file_and_back_and_a_lame_one_is_refused(tmp_path: Path) -> None:
    comparison().save(tmp_path)
    assert Comparison.load(tmp_path) == comparison()
    text = (tmp_path / FILE).read_text(encoding="utf-8")
    (tmp_path / FILE).write_text(text.replace('"narrower"', '"student"'), encoding="utf-8")
    with pytest.raises(RecordError, match="of each network one is needed, not original, compressed, student"):
        Comparison.load(tmp_path)
    with pytest.raises(ValueError, match="not timed with the same batches"):
        with_student(calls=(Call(1, 0.5, 0.6, 9),))


def test_the_section_of_the_demo_says_who_is_ahead() -> None:
    text = demo.section([comparison(), comparison()])
    for line in (
        "| student, recovered | 100 | 400 B | 2.5 ± 0.0 % | 10 s | 0.50 / 1.00 ms | 6.00 / 12.00 ms |",
        "| student, nothing trained | 100 | 400 B | 9.0 ± 0.0 % | 10 s |  |  |",
        "| original | 0.50 / 0.50 of it | 0.20 / 0.20 of it | +0.5 points |",
        "| narrower dense | 1.25 / 1.25 of it | 0.86 / 0.86 of it | −0.5 points |",
    ):
        assert f"{line}\n" in text
    assert "No result" in demo.filled("<!-- demo -->\n\nold\n<!-- end of demo -->", [])
