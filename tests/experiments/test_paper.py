"""The paper's recipes: data that is whole, planned on what is there, ours beside the paper's, stand-ins apart."""

from __future__ import annotations

import json
import re

import pytest

from helpers.command_line import run, said
from helpers.experiment_data import QUICK_PAPER as QUICK
from helpers.experiment_data import Here, write_features
from helpers.shared import shared_files
from unem.errors import InputError
from unem.experiments import FeatureFolder, ResultsStore, columns_of, execute
from unem.experiments.paper import (
    CLAIMS,
    Difference,
    check_claims,
    check_methods,
    entries,
    grid,
    list_recipes,
    plan_recipe,
    printed,
    recipe,
)
from unem.experiments.paper.recipes import file_names, printed_numbers
from unem.experiments.spec import PROTOCOL
from unem.learning import LEARNABLE
from unem.methods import method_info


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("features")
    write_features(path, "resnet18__mini-imagenet", text=False)
    write_features(path, "resnet18__tiny-imagenet", text=False, seed=1)
    write_features(path, "clip-rn50__dtd", seed=2)
    write_features(path, "clip-vit-b32__stanford-cars", seed=3, splits=False, classes=12)
    return path


def test_recipes_are_whole():
    tables = {table["id"] for table in printed_numbers()["tables"]}
    used = {name for r in list_recipes() for name in r.printed}
    assert used == tables  # every number of the paper belongs to a recipe
    for r in list_recipes():
        assert set(r.claims) <= CLAIMS.keys()
        for block in r.blocks:
            assert file_names(block["features"])
            methods = block["methods"] if isinstance(block["methods"], list) else [block["methods"]]
            for method in methods:
                method_info(method)


@pytest.mark.parametrize("name", [r.name for r in list_recipes() if r.printed])
def test_every_number_of_the_paper_has_a_cell(name):
    """A recipe asks for all that its tables print."""
    r = recipe(name)
    asked = set()
    for block in r.blocks:
        values = {**{"variants": "adaptive", "layers": 10, "learned_on": ""}, **block}
        lists = {k: v if isinstance(v, list) else [v] for k, v in values.items()}
        for features in file_names(block["features"]):
            for method in lists["methods"]:
                for shots in lists["shots"]:
                    for variant in lists["variants"]:
                        for layers in lists["layers"]:
                            depth = "" if layers == 10 else f", L = {layers}"
                            asked.add((features, method, shots, variant + depth))
    for row in printed(r):
        assert (row["features"], row["method"], row["shots"], row["variant"]) in asked, row


def test_printed_numbers_are_the_papers():
    found = shared_files("paper/tables.json")
    if not found:
        pytest.skip("the paper's tables are not here")
    theirs = json.loads(found[0].read_text())["tables"]
    assert [t["rows"] for t in printed_numbers()["tables"]] == [t["rows"] for t in theirs]
    assert sum(len(list(printed(r))) for r in list_recipes()) == sum(len(t["rows"]) for t in theirs)


def computed(name, folder, tmp_path, **more):
    planned = plan_recipe(recipe(name), FeatureFolder(folder), {**QUICK, **more}, methods="!alpha-*,!tim-*,!lr-ici")
    store = ResultsStore(tmp_path)
    done = execute(planned.plan.cells, store, Here(folder))
    assert not done.failed
    return planned, [store.get(c.name) for c in planned.plan.cells]


def test_ours_beside_the_papers_and_stand_ins_apart(folder, tmp_path):
    planned, rows = computed("temperature", folder, tmp_path, queries=12, training_seeds=0)
    assert set(planned.stand_ins) == {"resnet18__tiny-imagenet", "clip-vit-b32__stanford-cars"}
    assert "resnet18__tiered-imagenet" in planned.missing
    assert "351/97/160" in planned.missing["resnet18__tiered-imagenet"]
    for row in rows:  # the paper's protocol, which these small files do not allow; only the look-up matters here
        row["key"]["protocol"] |= {"queries": 75, "shots": 5}
    made = entries(planned.recipe, rows, planned.stand_ins)
    with_paper = {(e.columns["features"], e.columns["variant"]): e.paper for e in made if e.paper is not None}
    assert with_paper == {
        ("resnet18__mini-imagenet", "no-temperature"): 66.1,
        ("resnet18__mini-imagenet", "adaptive"): 66.4,
    }
    entry = next(e for e in made if e.paper == 66.4)
    assert entry.difference.mean == pytest.approx(entry.columns["accuracy"] - 66.4)
    assert entry.difference.interval > entry.columns["interval"]
    assert {g.title for g in grid(made)} == {"5 shots"}


def test_a_file_without_a_test_split_stands_in_even_under_the_papers_name(folder):
    planned = plan_recipe(recipe("backbone"), FeatureFolder(folder), {"tasks": 5, "queries": 12})
    assert "odd classes" in planned.stand_ins["clip-vit-b32__stanford-cars"]


def test_methods_and_stand_ins_can_be_chosen(folder):
    features = FeatureFolder(folder)
    only = plan_recipe(recipe("table1"), features, QUICK, methods="pad*,baseline")
    assert {c.method for c in only.plan.cells} == {"paddle", "baseline"}
    without = plan_recipe(recipe("table1"), features, QUICK, methods="!pad*")
    assert "paddle" not in {c.method for c in without.plan.cells}
    other = plan_recipe(recipe("table1"), features, QUICK, methods="paddle", stand_in="clip-*__dtd")
    assert {c.images.features for c in other.plan.cells} == {"resnet18__mini-imagenet", "clip-rn50__dtd"}


def test_patterns_that_match_no_method_are_named():
    all_ = list_recipes()
    check_methods(None, all_)
    check_methods("!lr-ici,!alpha-*", [recipe("table3")])  # it has no lr-ici to leave out
    check_methods("unem-gaussian", all_)
    for pattern, recipes, message in (
        ("nomethod", [recipe("table3")], "no method of table3 matches 'nomethod'; it has alpha-tim, "),
        ("paddle,unem-gaussian", [recipe("table3")], "no method of table3 matches 'unem-gaussian'"),
        ("!alpa-*", [recipe("table3")], "matches '!alpa-*'"),
        ("nomethod", all_, "no method of the recipes matches 'nomethod'; they have "),
        ("paddle,!paddle", [recipe("table3")], "'paddle,!paddle' leaves no method of table3"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            check_methods(pattern, recipes)


def test_what_it_is_learned_on_may_be_missing(folder):
    planned = plan_recipe(recipe("shift"), FeatureFolder(folder), QUICK)
    assert not planned.plan.cells
    assert "learned on" in planned.plan.left_out[0].reason


def test_a_repeated_seed_shares_a_place(folder, tmp_path):
    planned, rows = computed("schedules", folder, tmp_path)
    (table, *_) = grid(entries(planned.recipe, rows, planned.stand_ins))
    assert {len(found) for found in table.places.values()} == {2}


# -- claims ------------------------------------------------------------------------------------------------------------


def made_row(accuracy, *, method="unem-gaussian", shots=5, variant="adaptive", layers=10, settings=None, schedule=None):
    """A row with a given accuracy on ten tasks that all methods share."""
    learn = ["class_balance"] if variant in ("no-temperature", "lambda-only") else list(LEARNABLE)
    learning = {"adaptive": variant in ("adaptive", "no-temperature"), "learn": learn, "layers": layers}
    preparation = {"learning": learning, "images": {"features": "x"}, "seed": 0} if method.startswith("unem") else None
    correct = [round(accuracy * 1000 / 100) + (i % 3) for i in range(10)]
    protocol = dict(zip(PROTOCOL, (shots, 5, 1000, "pooled", False), strict=True))
    key = {"kind": "cell", "method": method, "images": {"features": "x"}, "protocol": protocol, "code": "", "tasks": 10}
    key |= {"settings": settings or {}, "preparation": preparation, "seed": 0}
    result = {"accuracy": accuracy, "interval": 0.1, "tail_accuracy": 0, "calibration_error": 0, "correct": correct}
    run_ = {"seconds_per_task": 0.1, "peak_memory_mb": 1, "date": ""}
    return {"name": "n", "key": key, "result": result | ({"schedule": schedule} if schedule else {}), "run": run_}


@pytest.mark.parametrize(
    ("adaptive", "fixed", "verdict"), [(60, 50, "seen"), (50, 60, "not seen"), (50, 50, "no clear difference")]
)
def test_a_variant_against_another(adaptive, fixed, verdict):
    rows = [made_row(adaptive), made_row(fixed, variant="fixed")]
    (check,) = check_claims(["adaptive-helps"], rows)
    assert check.verdict == verdict


def test_other_claims():
    both = [
        made_row(60),
        made_row(50, method="paddle"),
        made_row(80, shots=20),
        made_row(78, method="paddle", shots=20),
    ]
    (check,) = check_claims(["fewer-shots"], both)
    assert (check.verdict, check.seen[:5]) == ("seen", "+10.0")
    first = check_claims(["unem-first"], both)
    assert [c.verdict for c in first] == ["seen", "seen"]
    depth = {3: 50, 7: 60, 10: 61, 18: 60.8}
    (check,) = check_claims(["depth-saturates"], [made_row(a, layers=d) for d, a in depth.items()])
    assert check.verdict == "seen"
    (check,) = check_claims(["depth-saturates"], [made_row(a, layers=d) for d, a in (depth | {18: 70}).items()])
    assert check.verdict == "not seen"
    curve = [
        made_row(a, method="em-dirichlet", settings={"class_balance": b}) for b, a in {1: 50, 4: 70, 16: 60}.items()
    ]
    for beta, accuracy, verdict in ((5.0, 70, "seen"), (40.0, 55, "not seen")):
        learned = made_row(accuracy, method="unem-dirichlet", schedule={"class_balance": [1.0, beta, beta + 1]})
        assert [c.verdict for c in check_claims(["learned-lambda"], [*curve, learned])] == [verdict, verdict]
        alone = made_row(accuracy, method="unem-dirichlet", variant="lambda-only", schedule={"class_balance": beta})
        assert [c.verdict for c in check_claims(["learned-lambda"], [*curve, alone])] == [verdict]
    assert check_claims(CLAIMS, []) == []


def test_a_difference_in_words():
    assert str(Difference(-1.25, 0.5)) == "−1.2 ± 0.5"


# -- the command -------------------------------------------------------------------------------------------------------


def test_reproduce(folder, tmp_path):
    listed = run("reproduce")
    assert listed.returncode == 0
    assert all(r.name in listed.stdout for r in list_recipes())
    results = tmp_path / "results"
    arguments = [
        "reproduce",
        "table1",
        "--features",
        folder,
        "--tasks",
        4,
        "--methods",
        "baseline,bd-cspn",
        "-o",
        results,
    ]
    dry = run(*arguments, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "missing" in dry.stderr
    assert not results.exists()
    assert "none is called" in said("reproduce", "table7")
    message = "--methods: no method of table3 matches 'nomethod' or 'unem-gaussian'; it has alpha-tim"
    assert message in said("reproduce", "table3", "--features", folder, "--methods", "paddle,nomethod,unem-gaussian")


def test_reproduce_prints_the_paper(tmp_path):
    big = tmp_path / "features"
    for name in ("resnet18__mini-imagenet", "resnet18__tiny-imagenet"):
        write_features(big, name, text=False, classes=8, images=600)
    results = tmp_path / "results"
    done = run(
        *("reproduce", "table1", "--features", big, "--tasks", 4, "--workers", 1),
        *("--methods", "paddle,bd-cspn", "-o", results),
    )
    assert done.returncode == 0, done.stderr
    assert "paper 62.9" in done.stdout  # PADDLE, 5 shots
    assert "resnet18__tiny-imagenet: stands in" in done.stdout
    assert "missing: resnet18__tiered-imagenet" in done.stderr
    rows = [columns_of(r) for r in ResultsStore(results) if r["key"]["kind"] == "cell"]
    assert len(rows) == 2 * 2 * 3
    again = run("reproduce", "table1", "--features", big, "--tasks", 4, "--methods", "paddle,bd-cspn", "-o", results)
    assert "12 were there, 0 computed" in again.stdout
