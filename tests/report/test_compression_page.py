"""The card and the page of a compressed network: what they say, and that no name gets out of its place."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from understudy._util.provenance import Machine
from understudy._util.records import RecordError
from understudy.compressions import (
    FILE,
    Compressed,
    Footprint,
    Latency,
    LayerShare,
    Looked,
    Quality,
    Recovery,
    Refused,
    Skipped,
    Student,
    Tried,
)
from understudy.report import write_compression
from understudy.report.card import best_student, card, loading_code
from understudy.report.page.compression import compression_page
from understudy.report.read.compression_tables import student_table

EVIL = "</script><img src=x onerror=alert(1)>|`*'\""


def quality(accuracy: float | None = 90.0, agreement: float | None = 95.0) -> Quality:
    return Quality(500, accuracy, accuracy, agreement, 0.98)


def student(name: str = "low_rank-50", **changes: object) -> Student:
    made = Student(
        name=name,
        folder="",
        transform="low_rank",
        budget="at most 50 % of the parameters",
        costs=Footprint(500, 4_000, 3_900, 2_500),
        quality=quality(),
        latency=Latency(0.8, 1.0, 1),
        steps=(Tried("fitted to the weights alone", 0.2, True), Tried("layer after layer", None, False)),
        layers=(
            LayerShare("conv1", "3×3 16 → 16", "low_rank, rank 8, unfolded", 100, 40, 0.02, ""),
            LayerShare("conv2", "16 → 16", "dense", 100, 100, None, "stays dense"),
        ),
        remarks=("spent where it matters",),
        seconds=3.0,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def compressed(**changes: object) -> Compressed:
    made = Compressed(
        understudy="0.2.0",
        commit="abc",
        machine=Machine("x86_64", 2, "cpu", "2.13", "3.11", 1),
        network="resnet20",
        options={"classes": 10},
        weights="w.safetensors",
        weights_digest="sha256:1",
        data="cifar10",
        input_shape=(1, 3, 32, 32),
        mean=(0.5,),
        std=(0.25,),
        seed=0,
        original=Footprint(1_000, 8_000, 8_000, 5_000),
        quality=quality(92.0, 100.0),
        calibration=Looked(64, 2, ("idle",), ("short",)),
        skipped=(Skipped("stem", "3×3 3 → 16", "the first convolution"),),
        students=(student(),),
        refused=(Refused("acdc-1", "acdc", "at most 1 %", "below reach"),),
        notes=("a note",),
        seconds=3.0,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_a_record_goes_to_its_file_and_back_and_another_version_is_refused(tmp_path: Path) -> None:
    recovered = student(recovery=Recovery(3, 1e-3, 60.0, quality(91.0), True))
    made = compressed(students=(student("a"), recovered))
    made.save(tmp_path)
    assert Compressed.load(tmp_path) == made
    content = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    (tmp_path / FILE).write_text(json.dumps({**content, "format": 99}), encoding="utf-8")
    with pytest.raises(RecordError, match="has format 99, written by understudy"):
        Compressed.load(tmp_path)
    with pytest.raises(ValueError, match="there is no student"):
        compressed(students=())


def test_a_student_is_judged_by_the_most_telling_measure_that_is_known() -> None:
    assert compressed().measure == "accuracy"
    unlabelled = compressed(quality=quality(None, 100.0), students=(student(quality=quality(None)),))
    assert unlabelled.measure == "agreement"
    assert unlabelled.score(unlabelled.students[0].final) == 95
    vectors = compressed(quality=quality(None, None), students=(student(quality=quality(None, None)),))
    assert vectors.measure == "cosine"
    assert vectors.score(vectors.students[0].final) == 98


def test_recovery_counts_only_where_it_was_kept() -> None:
    kept, undone = (
        student(recovery=Recovery(3, 1e-3, 60.0, quality(80.0), is_kept)) for is_kept in (True, False)
    )
    assert kept.final.accuracy == 80
    assert undone.final.accuracy == 90
    assert best_student(compressed(students=(kept, undone))) is undone
    small = student("small", costs=Footprint(10, 40, 39, 25), quality=quality(91.5))
    assert best_student(compressed(students=(undone, small, student(quality=quality(91.9))))) is small
    assert "undone, for the outputs came no nearer" in card(compressed(students=(undone,)))


def test_a_recovery_that_was_undone_is_nowhere_shown_as_the_student() -> None:
    undone = student(recovery=Recovery(3, 1e-3, 60.0, quality(80.0), False))
    kept = student("kept", recovery=Recovery(3, 1e-3, 60.0, quality(91.0), True))
    page = compression_page(compressed(students=(undone, kept)), [])
    drawn = json.loads(re.findall(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)[0])
    assert [one["after"] and one["after"]["accuracy"] for one in drawn["students"]] == [None, 91.0]
    assert [dict(one["facts"])["after recovery"] for one in drawn["students"]] == ["80.00, undone", "91.00"]
    rows = student_table(compressed(students=(undone, kept))).rows
    assert [row[-1].text for row in rows] == ["–", "80.00, undone", "91.00"]
    assert "Hollow" not in compression_page(compressed(students=(undone,)), [])


def test_the_card_says_what_it_is_how_to_load_it_and_how_it_was_made() -> None:
    text = card(compressed())
    assert "500 parameters, 50.0 % of the original's; top-1 accuracy 90.00 % (original 92.00 %)" in text
    assert "us.load('student.safetensors', dense)" in text
    assert "never ran on the data: fitted plainly" in text
    assert "saw fewer vectors than it has dimensions: regularised" in text
    assert "not made: below reach" in text
    code = loading_code(compressed(input_shape=None), student(folder="low_rank-50"))
    assert "'low_rank-50/student.safetensors'" in code
    assert "torch" not in code


def test_no_name_gets_out_of_its_place(tmp_path: Path) -> None:
    layer = LayerShare(EVIL, EVIL, EVIL, 100, 40, 0.02, EVIL)
    evil = student(EVIL, folder=EVIL, transform=EVIL, budget=EVIL, layers=(layer,), remarks=(EVIL,))
    made = compressed(
        network=EVIL, data=EVIL, weights=EVIL, notes=(EVIL,), students=(evil, student()),
        refused=(Refused(EVIL, EVIL, EVIL, EVIL),), skipped=(Skipped(EVIL, EVIL, EVIL),),
    )  # fmt: skip
    page = compression_page(made, [EVIL])
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert page.count("<script") == 2
    write_compression(made, tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "<img" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    fence = "```"
    ticks = card(compressed(network=f"a{fence}b"))
    assert "````python" in ticks


def test_the_page_has_a_bar_for_every_layer_and_reaches_nowhere() -> None:
    page = compression_page(compressed(), ["README.md"])
    assert page.count("<svg class='bar") == 3  # two shares, one error: what never ran has none
    assert "M0 1H44.0V11H0Z" in page  # 40 % of 110
    assert "default-src &#x27;none&#x27;" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "<select" not in page
    several = compression_page(compressed(students=(student("a"), student("b"))), [])
    assert "<option value='1'>b</option>" in several
