"""Grids: how many cells, what each is called, what each is, and files that are refused."""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from understudy.experiments import Cell, Grid, GridError, grid_names, load_grid, make_grid, new_result
from understudy.experiments.cell_costs import PlannedCell
from understudy.networks import smaller
from understudy.planning.budget import Budget
from understudy.planning.request import Request

TABLE: dict[str, Any] = {"recipe": "demo", "students": [{"transforms": ["low_rank"], "params": ["24k"]}]}


def grid(**changes: Any) -> Grid:
    return make_grid("test", {**TABLE, **changes})


def students(*blocks: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"transforms": ["low_rank"], "params": "24k", **block} for block in blocks]


def without_budget(**block: Any) -> list[dict[str, Any]]:
    return [{"transforms": ["low_rank"], **block}]


def by_name(made: Grid) -> dict[str, Cell]:
    return {cell.name: cell for cell in made.cells}


def some(values: list[Any]) -> st.SearchStrategy[list[Any]]:
    """A few of them, in any order."""
    return st.lists(st.sampled_from(values), min_size=1, unique_by=str)


PATTERNS = {"Linear": "shuffle", "*.conv2": "low_rank"}
BLOCKS = st.fixed_dictionaries(
    {
        "transforms": some(["low_rank", "hashed", PATTERNS, {"Linear": "tucker"}]),
        "attention": some([True, False]),
        "crs": some([True, False]),
        "seeds": some([0, 1, 5]),
    }
)
BUDGETS = st.one_of(
    st.fixed_dictionaries({"params": some(["24k", "30k", 40_000])}),
    st.fixed_dictionaries({"mult_adds": some(["0.3M", "500k"])}),
    st.fixed_dictionaries({"ratio": some([0.1, "20%"])}),
    st.fixed_dictionaries({"scale": some([0, 0.25, 1])}),
    st.fixed_dictionaries({"knob": some([1, 2])}),
)


@settings(max_examples=40, deadline=None)
@given(BLOCKS, BUDGETS)
def test_a_block_is_the_product_of_its_lists(block: dict[str, Any], budget: dict[str, Any]) -> None:
    lists = [*block.values(), *budget.values()]
    made = grid(students=[block | budget])
    assert len(made.cells) == 1 + len(list(itertools.product(*lists)))
    assert [cell.role for cell in made.cells] == ["teacher"] + ["student"] * (len(made.cells) - 1)
    assert len({cell.id for cell in made.cells}) == len(made.cells)
    names = [cell.name for cell in made.cells]
    assert len({name.lower() for name in names}) == len(names)
    assert all(Path(name).name == name and set(name) <= set(SAFE) for name in names)


SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"


@settings(max_examples=25, deadline=None)
@given(BLOCKS, st.randoms(use_true_random=False))
def test_the_order_in_which_things_are_written_changes_nothing(block: dict[str, Any], random: Any) -> None:
    def shuffled(content: Any) -> Any:
        if isinstance(content, dict):
            items = [(key, shuffled(value)) for key, value in content.items()]
            return dict(random.sample(items, len(items)))
        return random.sample(content, len(content)) if isinstance(content, list) else content

    table = {
        "recipe": "demo",
        "settings": {"epochs": 3, "batch_size": 32},
        "teacher": {"epochs": 4, "seed": 2},
        "students": [block | {"params": ["24k", "30k"]}, {"transforms": "acdc", "ratio": 0.3}],
    }
    first, second = make_grid("one", table), make_grid("two", shuffled(copy.deepcopy(table)))
    assert first.identity == second.identity
    assert {cell.name: cell.id for cell in first.cells} == {cell.name: cell.id for cell in second.cells}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"settings": {"epochs": 13}}, False),
        ({"seeds": [1]}, False),
        ({"teacher": {"epochs": 13}}, False),
        ({"networks": "wrn_10_1"}, False),
        ({"settings": {"checkpoint_seconds": 1.0}}, True),
        ({"settings": {"workers": 2}}, True),
        ({"unreachable": "skip"}, True),
        ({"students": students({"params": 24_000})}, True),
        ({"students": students({"params": "24,000"})}, True),
    ],
)
def test_an_identity_holds_what_decides_the_outcome_and_nothing_else(
    changes: dict[str, Any], same: bool
) -> None:
    assert ({cell.id for cell in grid(**changes).cells} == {cell.id for cell in grid().cells}) is same


def test_a_student_is_another_when_its_teacher_is_unless_it_has_none() -> None:
    def ids(epochs: int) -> dict[str, str]:
        made = grid(teacher={"epochs": epochs}, students=students({"attention": [True, False]}))
        return {name: cell.id for name, cell in by_name(made).items()}

    short, long = ids(3), ids(4)
    assert short["low_rank-24k-at-crs-seed-0"] != long["low_rank-24k-at-crs-seed-0"]
    assert short["low_rank-24k-crs-seed-0"] == long["low_rank-24k-crs-seed-0"]


def test_settings_reach_the_cells_they_are_meant_for() -> None:
    made = by_name(
        grid(
            settings={"epochs": 5, "attention": 7.0},
            teacher={"epochs": 6, "seed": 3},
            students=students(
                {
                    "attention": [True, False],
                    "crs": [True, False],
                    "settings": {"decay_overrides": ["hashed=none"]},
                }
            ),
            baselines=[{"networks": "wrn_16_1", "attention": [True, False], "settings": {"epochs": 8}}],
        )
    )
    assert list(made) == [
        "teacher-seed-3",
        "low_rank-24k-at-crs-seed-0",
        "low_rank-24k-at-seed-0",
        "low_rank-24k-crs-seed-0",
        "low_rank-24k-seed-0",
        "wrn_16_1-at-seed-0",
        "wrn_16_1-seed-0",
    ]
    teacher, student = made["teacher-seed-3"], made["low_rank-24k-at-crs-seed-0"]
    assert (teacher.recipe.epochs, teacher.recipe.attention, teacher.recipe.seed) == (6, 0, 3)
    assert (student.recipe.epochs, student.recipe.attention, student.recipe.decay) == (5, 7, "crs")
    assert (student.recipe.teacher, student.teacher) == ("teacher-seed-3", teacher.id)
    assert student.recipe.decay_overrides == ("hashed=none",)
    assert student.budget == student.recipe.request.budget == Budget("params", 24_000)
    alone = made["low_rank-24k-seed-0"]
    assert (alone.recipe.attention, alone.recipe.decay, alone.recipe.teacher, alone.teacher) == (
        0,
        "none",
        "",
        "",
    )
    dense = made["wrn_16_1-at-seed-0"]
    assert (dense.role, dense.recipe.request, dense.recipe.epochs) == ("baseline", Request(), 8)
    assert dense.teacher == teacher.id


def test_a_cell_may_hold_patterns_and_all_else_that_is_asked_of_a_plan() -> None:
    teacher, patterned, hashed = grid(
        settings={"exclude": ["*.shortcut"], "options": {"indexing": "independent"}},
        students=students(
            {
                "transforms": [PATTERNS, "hashed"],
                "settings": {"spatial": "unfolded", "include": ["Linear", "*.conv2"]},
            }
        ),
    ).cells
    assert patterned.name == "Linear-shuffle-conv2-low_rank-24k-at-crs-seed-0"
    assert patterned.recipe.request == Request.of(
        PATTERNS,
        Budget("params", 24_000),
        spatial="unfolded",
        include=["Linear", "*.conv2"],
        exclude=["*.shortcut"],
    )
    assert hashed.recipe.request.options == (("indexing", "independent"),)
    assert hashed.recipe.request.include == ("Linear", "*.conv2")
    assert teacher.recipe.request == Request()  # nothing is substituted: another choice is the same teacher


def test_names_are_told_apart_whatever_their_case_and_never_too_long_for_a_file() -> None:
    long = {f"stage{number}.*": "low_rank" for number in range(40)}
    block = {"transforms": [{"linear": "shuffle"}, {"Linear": "shuffle"}, long]}
    names = [cell.name for cell in grid(students=students(block)).cells]
    assert len({name.lower() for name in names}) == len(names)
    assert max(map(len, names)) < 150


def test_of_blocks_that_differ_in_settings_alone_the_first_keeps_its_name() -> None:
    alone = grid(students=students({}))
    made = grid(students=students({}, {"settings": {"clip": 1.0}}, {"settings": {"clip": 2.0}}))
    name = "low_rank-24k-at-crs-seed-0"
    assert made.cells[:2] == alone.cells
    assert [cell.name for cell in made.cells[1:]] == [
        name, *[f"{name}-{cell.id[:6]}" for cell in made.cells[2:]],
    ]  # fmt: skip


def test_every_network_has_its_own_teacher() -> None:
    made = by_name(grid(networks=["wrn_10_1", "wrn_10_2"], students=students({"params": "12k"})))
    assert made["wrn_10_1-low_rank-12k-at-crs-seed-0"].teacher == made["wrn_10_1-teacher-seed-0"].id
    assert made["wrn_10_2-low_rank-12k-at-crs-seed-0"].teacher == made["wrn_10_2-teacher-seed-0"].id
    assert made["wrn_10_1-teacher-seed-0"].id != made["wrn_10_2-teacher-seed-0"].id


def test_an_existing_teacher_is_known_by_its_contents_and_never_held_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Path, "read_bytes")  # weights may be larger than memory

    def student(name: str, content: bytes) -> Cell:
        (tmp_path / name).write_bytes(content)
        return grid(teacher={"existing": str(tmp_path / name)}).cells[0]

    first = student("a.safetensors", b"weights")
    assert first.role == "student"
    assert first.recipe.teacher == str(tmp_path / "a.safetensors")
    assert student("moved.safetensors", b"weights").id == first.id
    assert student("a.safetensors", b"others").id != first.id


def test_a_narrow_baseline_is_as_wide_as_its_parameters_allow() -> None:
    cell = by_name(grid(baselines=[{"narrow": ["24k"]}]))["narrow-24k-seed-0"]
    assert cell.recipe.network == smaller.narrower("wrn_10_2", 24_000)
    assert (cell.recipe.request, cell.recipe.teacher, cell.budget) == (
        Request(),
        "",
        Budget("params", 24_000),
    )


def test_a_baseline_may_be_shallower_and_may_go_by_mult_adds_on_the_images_of_the_data() -> None:
    made = by_name(
        grid(
            networks="wrn_16_1",
            baselines=[{"shallow": "24k"}, {"narrow": "400k", "shallow": "300k", "metric": "mult_adds"}],
        )
    )
    shallow, narrow = made["shallow-24k-seed-0"], made["narrow-400k-mult-adds-seed-0"]
    assert shallow.recipe.network == smaller.shallower("wrn_16_1", 24_000)
    assert narrow.recipe.network == smaller.narrower("wrn_16_1", 400_000, image=(3, 8, 8))
    assert narrow.budget == Budget("mult_adds", 400_000)
    assert "shallow-300k-mult-adds-seed-0" in made


def test_blocks_go_in_turn_and_those_of_one_turn_as_they_are_written() -> None:
    made = grid(
        students=students({"turn": 2}, {"seeds": 1}, {"seeds": 2, "turn": 2}),
        baselines=[{"narrow": "24k", "turn": 1}],
    )
    assert [cell.name for cell in made.cells] == [
        "teacher-seed-0",
        "low_rank-24k-at-crs-seed-1",
        "narrow-24k-seed-0",
        "low_rank-24k-at-crs-seed-0",
        "low_rank-24k-at-crs-seed-2",
    ]


def test_a_block_may_go_over_ways_that_its_names_tell_apart() -> None:
    made = by_name(grid(students=students({"spatial": ["separable", "inside"]})))
    for name, spatial in (("low_rank-24k", "separable"), ("low_rank-24k-inside", "inside")):
        cell = made[f"{name}-at-crs-seed-0"]
        assert cell.recipe.request.spatial == spatial
        structure = new_result("test", PlannedCell(cell, None, None)).structure
        assert structure == ("low_rank:inside" if spatial == "inside" else "low_rank")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"student": []}, "a grid has no key 'student'.*'students'"),
        ({"recipe": "demoo"}, "no recipe 'demoo'.*did you mean 'demo'"),
        ({"settings": {"epoch": 3}}, r"\[settings\]: no setting 'epoch'.*'epochs'"),
        ({"settings": {"epochs": 0}}, "epochs is 0, below 1"),
        (
            {"settings": {"network": "x"}},
            r"\[settings\] sets 'network', which a grid decides by",
        ),
        ({"settings": 3}, r"\[settings\] is 3, not a table"),
        ({"teacher": {"epoch": 3}}, r"\[teacher\]: no setting 'epoch'.*'epochs'"),
        ({"teacher": {"existing": "nowhere"}}, "no teacher 'nowhere'"),
        ({"teacher": {"existing": "timm:x", "epochs": 3}}, "takes no other settings"),
        ({"students": students({"transform": 1})}, "has no key 'transform'.*'transforms'"),
        ({"students": students({"transforms": ["low_rnk"]})}, "no transform 'low_rnk'.*'low_rank'"),
        ({"students": students({"transforms": []})}, "transforms is an empty list"),
        ({"students": [{"params": "24k"}]}, "needs transforms"),
        ({"students": students({"transforms": [{"Linear": 3}]})}, "transforms holds {'Linear': 3}, neither"),
        ({"students": students({"transforms": [7]})}, "transforms holds 7, neither a name nor a table"),
        ({"students": students({"transforms": {}})}, "transform is empty"),
        ({"students": students({"transforms": {"Linear": "low_rnk"}})}, "no transform 'low_rnk'"),
        ({"students": students({"params": []})}, "params is an empty list"),
        ({"students": without_budget(scale=-0.1)}, "scale -0.1 is not in 0..1"),
        ({"students": students({"settings": {"options": 3}})}, "options is 3, not a table"),
        ({"students": students({"settings": {"options": {"indexing": "x"}}})}, "which no transform has"),
        ({"settings": {"options": {"indexing": "x"}}}, "'indexing', which no transform of the grid has"),
        (
            {"students": students({"transforms": "hashed", "settings": {"options": {"indexing": "x"}}})},
            "option indexing of hashed is 'x', not one of",
        ),
        ({"students": students({"settings": {"spatial": "flat"}})}, "spatial 'flat' is not one of"),
        ({"students": without_budget()}, "needs one of params, .*; it has none"),
        ({"students": without_budget(params="1k", ratio=0.1)}, "; it has params and ratio"),
        ({"students": students({"params": "many"})}, "'many' is not a count"),
        ({"students": students({"seeds": ["one"]})}, "seeds holds 'one', not a whole number"),
        ({"students": students({"seeds": [True]})}, "seeds holds True, not a whole number"),
        ({"seeds": [float("inf")]}, "seeds holds inf, not a whole number"),
        ({"seeds": [float("nan")]}, "seeds holds nan, not a whole number"),
        ({"students": without_budget(ratio=[10**400])}, "ratio 10+ is not"),
        ({"students": students({"attention": [1]})}, "attention holds 1, not true or false"),
        ({"students": students({"networks": "wrn_10_4"})}, "'wrn_10_4' is not among the grid's networks"),
        ({"students": without_budget(ratio="half")}, "ratio 'half' is not a number such as"),
        ({"students": [], "baselines": []}, "neither"),
        ({"baselines": [{}]}, r"\[\[baselines\]\] needs networks by name, or narrow"),
        ({"baselines": [{"narrow": "24k", "metric": "bytes"}]}, "metric is 'bytes', not one of params, "),
        ({"students": students({"turn": "first"})}, "turn is 'first', not a whole number from 0 up"),
        ({"baselines": [{"narrow": "24k", "turn": -1}]}, "turn is -1, not a whole number"),
        ({"students": students({"spatial": ["flat"]})}, "spatial 'flat' is not one of"),
        ({"baselines": [{"narow": "24k"}]}, "has no key 'narow'.*'narrow'"),
        ({"baselines": [{"networks": "wrn_11_2"}]}, "no network 'wrn_11_2'"),
        ({"networks": ["wrn_11_2"]}, "no network 'wrn_11_2'"),
        ({"data": "digit"}, "no data set 'digit'.*digits"),
        ({"unreachable": "ignore"}, "unreachable is 'ignore', not 'refuse' or 'skip'"),
        ({"settings": {"attention": 0}, "students": students({"attention": True})}, "its weight .* is 0"),
        ({"seeds": [0, 0]}, "low_rank-24k-at-crs-seed-0 is listed twice"),
        (
            {"students": students({"params": ["24k", 24_000]})},
            "low_rank-24k-at-crs-seed-0 is listed twice",
        ),
        ({"baselines": [{"networks": "wrn_10_2"}]}, "wrn_10_2-seed-0 is the same run as teacher-seed-0"),
    ],
)
def test_a_wrong_table_is_refused_with_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grid(**changes)


def test_a_file_is_read_or_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('recipe = "demo"\n[students]\ntransforms = "all"\nratio = 0.1\n')
    made = load_grid(path)
    assert (made.name, len(made.cells)) == ("own", len(us.list_transforms()))  # and the teacher, but dense
    path.write_text("recipe = demo\n")
    with pytest.raises(GridError, match=r"grid .*own.toml: "):
        load_grid(path)
    path.write_text("[settings]\nepochs = 3\n")
    with pytest.raises(GridError, match=r"own.toml: a grid needs a recipe"):
        load_grid(path)
    with pytest.raises(GridError, match=r"no grid 'paper_wrn_2810' .*did you mean 'paper_wrn_28_10'"):
        load_grid("paper_wrn_2810")
    with pytest.raises(GridError, match="nor such a file"):
        load_grid(tmp_path / "none.toml")


def test_the_shipped_grids_are_the_paper_s_the_study_and_the_digits() -> None:
    assert grid_names() == ["digits", "paper_darts", "paper_wrn_28_10", "paper_wrn_50_2", "study_cifar10"]


@pytest.mark.parametrize(
    ("name", "transforms", "budgets", "ablations"),
    [
        ("paper_wrn_28_10", 6, {"2.4M", "1.2M", "600k"}, 3),
        ("paper_darts", 6, {"1.42M", "830k", "490k"}, 1),
    ],
)
def test_a_grid_of_the_paper_has_its_methods_budgets_and_ablations(
    name: str, transforms: int, budgets: set[str], ablations: int
) -> None:
    taught = [cell for cell in load_grid(name).cells if cell.role == "student"]
    assert len({cell.recipe.request.transforms for cell in taught}) == transforms
    assert {cell.budget.label for cell in taught if cell.budget} == budgets
    switches = {(bool(cell.recipe.attention), cell.recipe.decay) for cell in taught}
    assert switches == set([(True, "crs"), (False, "crs"), (True, "none")][:ablations])
    assert len(taught) == transforms * len(budgets) * ablations
    assert {cell.recipe.attention for cell in taught} <= {0.0, 1000.0}


def test_the_grid_for_imagenet_has_the_rows_of_the_paper_s_table() -> None:
    taught = [cell for cell in load_grid("paper_wrn_50_2").cells if cell.role == "student"]
    assert {(cell.recipe.request.label, cell.budget.label) for cell in taught if cell.budget} == {
        *itertools.product(("low_rank", "hashed", "tensor_train"), ("17.6M", "4.35M")),
        ("shuffle", "17.72M"),
        ("shuffle", "6.04M"),
    }


def test_the_study_has_every_transform_way_budget_ablation_and_baseline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # In an instant, for it is the count itself that takes seconds.
    monkeypatch.setattr(smaller, "_mult_adds", lambda name, *_: 150 * smaller._count_params(name, 10))
    (tmp_path / "weights").write_bytes(b"of WRN-16-2")
    cells = load_grid("study_cifar10", teacher=str(tmp_path / "weights")).cells
    taught = [cell for cell in cells if cell.role == "student"]
    dense = [cell for cell in cells if cell.role == "baseline"]
    assert len(taught) + len(dense) == len(cells)  # the teacher is given
    structures = {*us.list_transforms()} - {"dense"}
    found: dict[tuple[object, ...], set[str]] = collections.defaultdict(set)
    for cell in taught:
        assert cell.budget is not None
        recipe = cell.recipe
        key = cell.budget.label, recipe.request.spatial, bool(recipe.attention), recipe.decay, recipe.seed
        found[key].add(recipe.request.label)
    whole = [("35k", 0), ("35k", 1), ("21k", 0), ("58k", 0)]
    main = [(budget, True, "crs", seed) for budget, seed in whole]
    off = [("35k", *switch, seed) for switch in ((False, "crs"), (True, "none")) for seed in (0, 1)]
    for budget, *rest in main + off:
        assert found.pop((budget, "separable", *rest)) == structures
        assert found.pop((budget, "inside", *rest)) == {"low_rank", "shuffle", "btt", "blast"}
    assert not found
    budgets = [cell.budget.label for cell in cells if cell.budget and cell.budget.metric == "params"]
    assert {*budgets[: budgets.index("21k")]} == {"35k"}  # the middle comes first
    assert {cell.name.partition("-")[0] for cell in dense} == {"narrow", "shallow"}
    assert {(cell.recipe.attention, cell.budget.metric) for cell in dense if cell.budget} == {
        *itertools.product((0.0, 1000.0), ("params", "mult_adds"))
    }


def test_a_cell_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        grid().cells[0].name = "other"  # type: ignore[misc]


def test_a_smaller_baseline_tells_which_network_it_is_a_form_of() -> None:
    made = grid(networks=["wrn_10_2", "wrn_16_2"], baselines=[{"shallow": "100k", "networks": ["wrn_10_1"]}])
    results = [new_result("test", PlannedCell(cell, None, None)) for cell in made.cells]
    assert [(one.name, one.form_of) for one in results if one.role == "baseline"] == [
        ("wrn_10_1-seed-0", ""),
        ("wrn_10_2-shallow-100k-seed-0", "wrn_10_2"),
        ("wrn_16_2-shallow-100k-seed-0", "wrn_16_2"),
    ]


def test_a_narrower_and_a_shallower_network_that_do_not_exist_are_two_cells() -> None:
    made = grid(networks=["resnet56"], baselines=[{"narrow": "100k", "shallow": "100k"}])
    missing = [cell for cell in made.cells if cell.unreachable]
    assert [cell.name for cell in missing] == ["narrow-100k-seed-0", "shallow-100k-seed-0"]
