"""The study's page says what its results say, and its verdicts follow from the numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from synthetic import errors, result, size

import compress
import study
import trained
from study_dense import beside_dense
from study_page import ablations_table, errors_table, filled, progress
from study_runs import Study
from study_verdicts import Finding, findings
from understudy._util.records import write_record
from understudy.experiments.folder import FORMAT, Index, IndexEntry, find_results, read_index, write_result
from understudy.results import Costs, CurvePoint, Result, Speed, Status

SIX = ("low_rank", "tensor_train", "tucker", "acdc", "hashed", "shuffle")


def run(
    structure: str,
    error: float,
    budget: str = "35k",
    *,
    attention: bool = True,
    crs: bool = True,
    mult_adds: int = 6_000_000,
    latency: float = 1.0,
    curve: Sequence[float] = (),
) -> Result:
    dense = structure in ("narrow", "shallow")
    name = f"{structure.replace(':', '-')}-{budget}-{'at-' * attention}{'crs-' * crs}seed-0"
    points = [CurvePoint(e, e, 0.1, 1.0, 1.0, 1.0, test, 1.0, 1.0) for e, test in enumerate(curve)]
    return result(
        name,
        role="baseline" if dense else "student",
        structure="" if dense else structure,
        network="wrn_10_1" if dense else "wrn_10_2",
        budget=size(budget),
        attention=1000.0 * attention,
        decay="crs" if crs else "none",
        errors=errors(error),
        costs=Costs(35_000, mult_adds, mult_adds, 150_000),
        speed=Speed(1000.0, latency, 64, 1),
        curve=tuple(points),
    )


def verdicts(results: Sequence[Result]) -> dict[str, Finding]:
    keys = ("attention", "crs", "hashed", "strong", "front", "stable")
    return dict(zip(keys, findings(Study(results)), strict=True))


def six(**changes: float) -> list[Result]:
    return [run(name, changes.get(name, 15.0)) for name in SIX]


def test_without_runs_everything_is_open() -> None:
    assert {finding.verdict for finding in verdicts([]).values()} == {"open"}
    assert beside_dense(Study([])) == errors_table(Study([])) == ablations_table(Study([])) == []
    assert progress(Study([]), 7).startswith("0 of 7 runs have ended")


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (17.0, "confirmed"),
        (16.5, "confirmed, a hint"),
        (15.8, "not visible at this scale"),
        (13.5, "contradicted, a hint"),
        (13.0, "contradicted"),
    ],
)
def test_attention_transfer_is_judged_by_its_mean_gain(without: float, said: str) -> None:
    found = verdicts([*six(), *(run(name, without, attention=False) for name in SIX)])["attention"]
    assert found.verdict == said
    words = f"{abs(without - 15):.2f} points {'lower' if without > 15 else 'higher'} with it on average"
    assert words in found.numbers
    assert found.numbers.endswith("all six")


def test_what_attention_transfer_gains_of_dense_networks_is_told_beside() -> None:
    dense = [run("narrow", 18.0), run("narrow", 18.5, attention=False)]
    found = verdicts([*six(), *(run(name, 17.0, attention=False) for name in SIX), *dense])["attention"]
    assert found.verdict == "confirmed"
    assert found.numbers.endswith("all six; of dense networks `narrow` 0.50")


@pytest.mark.parametrize(
    ("shuffle", "hashed", "said"),
    [
        (18.0, 13.0, ("confirmed", "confirmed")),
        (15.2, 15.3, ("not visible at this scale", "not visible at this scale")),
        (14.0, 16.0, ("contradicted, a hint", "contradicted, a hint")),
        (12.0, 18.0, ("contradicted", "contradicted")),
    ],
)
def test_crs_decay_is_judged_for_shuffle_and_hashed(
    shuffle: float, hashed: float, said: tuple[str, str]
) -> None:
    found = verdicts([*six(), run("shuffle", shuffle, crs=False), run("hashed", hashed, crs=False)])
    assert (found["crs"].verdict, found["hashed"].verdict) == said
    assert "`shuffle` 0.0 with it, 0.0 without" in found["crs"].numbers
    assert found["attention"].verdict == "open"


def test_a_run_that_diverged_is_told() -> None:
    lost = dataclasses.replace(
        run("tucker", 15.0, crs=False), status=Status("diverged", "nan"), costs=None, errors=None, speed=None
    )
    found = verdicts([*six(), run("shuffle", 18.0, crs=False), lost])
    assert found["crs"].numbers.endswith("`tucker` diverged without it")


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (("hashed", "tensor_train"), "confirmed"),
        (("hashed", "low_rank"), "not visible at this scale"),
        (("low_rank", "tucker", "shuffle"), "contradicted"),
    ],
)
def test_who_holds_out_is_judged_by_the_rise_of_the_error(best: tuple[str, ...], said: str) -> None:
    strong = [run(name, 16.0 if name in best else 20.0, "21k") for name in SIX]
    assert verdicts([*six(), *strong])["strong"].verdict == said
    assert verdicts([*six(), *strong[:3]])["strong"].verdict == "open"
    without_acdc = [one for one in strong if one.structure != "acdc"]
    assert verdicts([*six(), *without_acdc])["strong"].numbers.endswith("; not run: `acdc`")


def test_a_cheaper_and_better_structure_takes_shuffle_off_the_front() -> None:
    cheap = run("shuffle", 17.0, mult_adds=3_000_000)
    others = [run(name, 15.0) for name in SIX[:-1]]
    assert verdicts([*others, cheap])["front"].verdict == "confirmed"
    better = run("low_rank", 15.0, mult_adds=2_000_000)
    assert verdicts([better, *others[1:], cheap])["front"].verdict == "contradicted"
    alike = run("low_rank", 16.8, mult_adds=2_000_000)
    assert verdicts([alike, *others[1:], cheap])["front"].verdict == "not visible at this scale"
    assert verdicts(others)["front"].verdict == "open"


@pytest.mark.parametrize(
    ("rise", "said"),
    [(9.0, "confirmed"), (2.5, "not visible at this scale"), (0.5, "contradicted")],
)
def test_acdc_is_judged_by_its_largest_rise(rise: float, said: str) -> None:
    runs = [run(name, 15.0, curve=(30, 32 if name != "acdc" else 30 + rise, 15)) for name in SIX]
    assert verdicts(runs)["stable"].verdict == said


def beside(*runs: Result, shipped: dict[str, float] | None = None) -> dict[str, list[str]]:
    """By student: the cells of its row after its error, one a cost."""
    rows = [line.strip("| ").split(" | ") for line in beside_dense(Study(runs, shipped))]
    return {f"{name} {budget}": costs for name, budget, _, *costs in rows}


def test_dense_networks_that_cost_no_more_are_the_rivals() -> None:
    found = beside(
        run("low_rank", 14.0, latency=1.05),
        run("tucker", 13.0, mult_adds=11_000_000, latency=3.0),  # no dense network of its cost
        run("shuffle", 16.0, mult_adds=4_000_000, latency=0.5),
        run("low_rank:inside", 15.2, latency=0.5),
        run("narrow", 15.0, latency=1.0),
        run("narrow", 11.0, latency=1.0, attention=False),  # another question
    )
    assert found == {
        "`tucker` 35k": ["**−2.00**", "open", "open", "open"],
        "`low_rank` 35k": ["**−1.00**", "**−1.00**", "**−1.00**", "open"],
        "`low_rank:inside` 35k": ["+0.20", "+0.20", "open", "open"],
        "`shuffle` 35k": ["+1.00", "open", "open", "open"],
    }


def test_students_of_every_budget_and_decay_stand_beside_dense_networks() -> None:
    found = beside(
        run("hashed", 14.0),
        run("hashed", 12.0, crs=False),
        run("hashed", 18.0, "21k"),
        run("hashed", 10.0, attention=False),  # has no teacher
        run("narrow", 15.0),
    )
    assert {name: costs[0] for name, costs in found.items()} == {
        "`hashed`, without CRS decay 35k": "**−3.00**",
        "`hashed` 35k": "**−1.00**",
        "`hashed` 21k": "+3.00",
    }


def test_a_cheaper_dense_network_that_errs_less_settles_it() -> None:
    [costs] = beside(run("low_rank", 14.0, latency=2.3), run("narrow", 13.0, latency=1.2)).values()
    assert costs[2] == "+1.00"
    [costs] = beside(run("low_rank", 14.0, latency=2.3), run("narrow", 13.5, latency=1.2)).values()
    assert costs[2] == "open"


def test_who_errs_less_than_a_dearer_dense_network_errs_less_than_an_equal_one() -> None:
    def dense(error: float, latency: float) -> Result:
        return dataclasses.replace(run("narrow", error, latency=latency), network=f"net_{latency}")

    student = run("low_rank", 14.0, latency=1.0)
    for rivals, said in (
        ([dense(16.0, 1.2)], "**−2.00** or less"),
        ([dense(16.0, 1.2), dense(14.5, 0.5)], "**−2.00** or less"),
        ([dense(16.0, 1.2), dense(13.0, 2.0)], "**−2.00** or less"),
        ([dense(14.2, 1.2)], "−0.20 or less"),
        ([dense(13.8, 1.2)], "open"),
        ([dense(16.0, 1.2), dense(12.9, 0.5)], "+1.10"),
    ):
        [costs] = beside(student, *rivals).values()
        assert costs[2] == said


def test_of_several_seeds_means_are_compared() -> None:
    other = dataclasses.replace(run("narrow", 17.0), name="again", seed=1)
    [costs] = beside(run("low_rank", 14.0), run("narrow", 15.0), other).values()
    assert costs[0] == "**−2.00**"


def test_a_dense_network_of_unknown_latency_is_no_rival() -> None:
    untimed = dataclasses.replace(run("narrow", 10.0), speed=None)
    [costs] = beside(run("low_rank", 14.0), run("shallow", 15.0), untimed).values()
    assert costs[2] == "**−1.00**"


def test_in_onnx_runtime_networks_are_compared_by_their_own_times() -> None:
    runs = [run("low_rank", 14.0), run("tucker", 13.0), run("narrow", 15.0, latency=9.0)]
    times = {runs[0].name: 0.26, runs[1].name: 0.60, runs[2].name: 0.25}
    found = beside(*runs, shipped=times)
    assert found["`low_rank` 35k"][2:] == ["**−1.00** or less", "**−1.00**"]
    assert found["`tucker` 35k"][2:] == ["**−2.00** or less", "open"]  # as a file, none is as slow
    assert (
        errors_table(Study(runs, times))[0] == "| `tucker` | 13.00 | 35,000 | 6.00M | 1.00 | 0.60 | 1,000 |"
    )


def test_the_tables_have_a_line_for_every_structure_and_budget() -> None:
    told = Study(
        [
            run("shuffle", 16.0),
            dataclasses.replace(run("shuffle", 17.0), name="again", seed=1),
            run("shuffle", 18.5, crs=False),
            run("shuffle", 20.0, "21k"),
            run("narrow", 15.0),
            run("narrow", 15.5, attention=False),
        ]
    )
    assert errors_table(told) == [
        "| `narrow` | 15.00 | 35,000 | 6.00M | 1.00 |  | 1,000 |",
        "| `shuffle` | 16.50 (16.00 to 17.00) | 35,000 | 6.00M | 1.00 |  | 1,000 |",
        "| `shuffle` | 20.00 | 35,000 | 6.00M | 1.00 |  | 1,000 |",
    ]
    assert ablations_table(told) == [
        "| `shuffle` | 35k | 16.50 (16.00 to 17.00) |  | 18.50 |",
        "| `narrow` | 35k | 15.00 | 15.50 |  |",
    ]
    assert progress(told, 9) == (
        "6 of 9 runs have ended, in 0 hours of one core, pauses included, with 2 seeds:\n\n"
        "- students of 58k: none\n"
        "- students of 35k: `shuffle`\n"
        "- students of 21k: `shuffle`\n"
        "- without attention transfer: none\n"
        "- without CRS decay: `shuffle`\n"
        "- dense networks: `wrn_10_1`\n"
    )


def test_cells_that_are_measured_are_found_again() -> None:
    measured = trained.committed()
    assert len(compress.keys(measured)) == len(measured)
    assert compress.keys(measured) <= {cell.key for cell in trained.cells()}


def test_trained_networks_have_a_row_for_every_method_and_budget() -> None:
    cell = {"network": "wrn_16_2", "metric": "params", "method": "btt", "share": 0.5}
    made = {"commit": "1c13014cd85d", "score": {"top1": 91.0}, "recovered": {"top1": 90.0}}
    older = {"commit": trained.OLDER[0], "score": {"top1": 90.04}, "recovered": {"top1": 92.5}}
    done = [
        {**cell, **older},
        {**cell, "share": 0.15, "refused": "btt on WideResNet: 10 parameters is below what is reachable"},
        {**cell, "metric": "mult_adds", **made},
        {**cell, "metric": "mult_adds", "share": 0.3, "refused": "0.4 of 75.2 % are left at 50 %"},
        {**cell, **older, "method": "torch_pruning"},
    ]
    assert trained.lines(done) == [
        "| wrn_16_2 | parameters | `btt` | 90.0 → 92.5† |  | out of reach |",
        "| wrn_16_2 | parameters | `torch_pruning` | 90.0 → 92.5 |  |  |",
        "| wrn_16_2 | mult-adds | `btt` | 91.0 → 90.0 | nothing left |  |",
    ]


def test_students_that_have_no_more_left_than_pruning_are_named() -> None:
    def cell(method: str, share: float, left: float) -> dict[str, object]:
        told = {"network": "resnet56", "metric": "mult_adds", "method": method, "share": share}
        return {**told, "recovered": {"top1": left}}

    pruned = [cell("torch_pruning", 0.5, 80.0), cell("torch_pruning", 0.3, 70.0)]
    ahead = [cell("btt", 0.5, 90.0), cell("btt", 0.15, 10.0)]  # beside nothing at 15 %
    said = "students have more left than pruning at the same share"
    assert trained.beside_pruning([*pruned, *ahead]) == f"After recovery 1 of 1 {said}.\n"
    behind = [cell("tucker", 0.5, 80.0), cell("tucker", 0.3, 60.0)]
    assert trained.beside_pruning([*pruned, *ahead, *behind]) == (
        f"After recovery 1 of 3 {said}; not `tucker` on resnet56 by mult-adds at 50, 30 %.\n"
    )


@pytest.mark.parametrize(("left", "tried"), [(3.9, True), (3.1, False)])
def test_what_has_next_to_nothing_left_is_not_tried_at_a_smaller_share(left: float, tried: bool) -> None:
    cell = compress.Cell("efficientnet_lite0", "hashed", 0.3, updates=64)
    done = {**dataclasses.asdict(cell), "dense": {"top1": 75.0}, "recovered": {"top1": left}}
    at_half = {**done, "share": 0.5}
    assert bool(trained.why_not(cell, [at_half])) != tried
    others = [{**done, "share": 0.15}, {**at_half, "method": "btt"}, {**at_half, "metric": "mult_adds"}]
    assert not trained.why_not(cell, others)
    assert not trained.why_not(cell, [{**dataclasses.asdict(cell), "share": 0.5, "refused": "below reach"}])


def test_a_page_without_its_tables_is_refused() -> None:
    with pytest.raises(ValueError, match="no table between <!-- errors -->"):
        filled("# Study\n", [], {}, 0)


def test_the_page_and_the_report_are_those_of_the_results() -> None:
    page = study.PAGE.read_text(encoding="utf-8")
    assert filled(page, study.kept(), study.shipped(), study.cells()) == page
    assert trained.filled(page, trained.committed()) == page
    assert study.report(study.kept()) == study.REPORT.read_text(encoding="utf-8")


def test_what_is_settled_is_taken_over_without_its_paths(tmp_path: Path) -> None:
    done = run("tucker", 15.0)
    done = dataclasses.replace(done, indifferent={"teacher": "/home/me/teacher.safetensors"})
    waiting = result("shuffle-35k-at-crs-seed-0", state="waiting")
    sweep, into = tmp_path / "sweep", tmp_path / "into"
    (sweep / "results").mkdir(parents=True)
    entries = tuple(IndexEntry(one.name, one.id) for one in (done, waiting))
    write_record(sweep / "grid.json", Index("0.2.0", "study", "identity", entries), FORMAT)
    for one in (done, waiting):
        write_result(sweep, one)
    study.take(sweep, into)
    [taken] = find_results(into).results
    assert read_index(into) == read_index(sweep)
    assert taken == dataclasses.replace(done, indifferent={"teacher": "teacher.safetensors"})
