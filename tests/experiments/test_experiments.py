"""Cells, the store, sweeps on this machine: named by what determines them, whole or absent, resumed after any death."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import unem
import unem.cli
from helpers.command_line import run, said
from helpers.experiment_data import MIXED, Here, lasting, plan, start, write_features
from unem.experiments import Cell, FeatureFolder, Images, ResultsStore, execute, expand, read_spec
from unem.experiments.cells import code_version, job_from_key, job_name
from unem.experiments.engines import LocalEngine
from unem.experiments.execute import LIVES, Outcome
from unem.experiments.images import content_digest, parse_classes, usual_images
from unem.experiments.spec import BLOCK_DEFAULTS
from unem.experiments.store import flat


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("features")
    write_features(path, "toy__one")
    write_features(path, "toy__two", seed=1, text=False, splits=False, classes=8)
    return path


# -- cells ----------------------------------------------------------------------------------------------------------------

images = st.builds(
    Images,
    features=st.text(min_size=1, max_size=20),
    digest=st.text("0123456789abcdef", min_size=16, max_size=16),
    support_split=st.none() | st.sampled_from(["train", "val", "test", "train+val"]),
    query_split=st.none() | st.just("test"),
    query_classes=st.none() | st.sampled_from(["even", "odd", "0-3,7"]),
)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
protocols = st.builds(
    unem.Protocol,
    shots=st.integers(1, 20),
    effective_classes=st.integers(1, 9) | st.tuples(st.integers(1, 3), st.integers(4, 9)) | st.just("all"),
    queries=st.integers(1, 99),
)
cells = st.builds(
    Cell,
    method=st.sampled_from(["paddle", "prototypes"]),
    images=images,
    protocol=protocols,
    tasks=st.integers(1, 1000),
    seed=st.integers(0, 2**40),
    settings=st.dictionaries(st.text(max_size=5), plain, max_size=3),
)


@given(cells)
def test_a_cell_survives_being_written_and_read(cell):
    again = job_from_key(json.loads(json.dumps(cell.key)))
    assert again.name == cell.name
    assert again.key == cell.key


@given(cells, st.data())
def test_whatever_changes_changes_the_name(cell, data):
    change = data.draw(
        st.sampled_from(
            [
                {"tasks": cell.tasks + 1},
                {"seed": cell.seed + 1},
                {"method": "simpleshot"},
                {"code": "another"},
                {"settings": {**cell.settings, "another": 1}},
                {"protocol": replace(cell.protocol, queries=cell.protocol.queries + 1)},
                {"images": replace(cell.images, digest="f" * 15 + "g")},
                {"images": replace(cell.images, support_split="elsewhere")},
            ]
        )
    )
    assert replace(cell, **change).name != cell.name


def test_the_digest_sees_everything_that_can_decide_a_result():
    table, labels = torch.randn(12, 3), torch.arange(12) % 3
    base = {"split": ["val"] * 6 + ["test"] * 6, "base_mean": torch.zeros(3), "class_names": list("abc")}
    sets = [
        unem.FeatureSet(table, labels, **base),
        unem.FeatureSet(table + 1, labels, **base),
        unem.FeatureSet(table, labels.flip(0), **base),
        unem.FeatureSet(table, labels, **{**base, "split": ["val"] * 7 + ["test"] * 5}),
        unem.FeatureSet(table, labels, **{**base, "base_mean": torch.ones(3)}),
        unem.FeatureSet(table, labels, **{**base, "text_features": torch.eye(3)}),
        unem.FeatureSet(table, labels, kind="similarities", **base),
    ]
    assert len({content_digest(s) for s in sets}) == len(sets)
    assert content_digest(unem.FeatureSet(table, labels, name="renamed", **base)) == content_digest(sets[0])


def test_usual_images(folder):
    learned, tested = usual_images(unem.FeatureSet.load(folder / "toy__one.safetensors"), "")
    assert (learned.support_split, learned.query_split) == ("val", "val")
    assert (tested.support_split, tested.query_split) == ("train", "test")
    learned, tested = usual_images(unem.FeatureSet.load(folder / "toy__two.safetensors"), "")
    assert (learned.query_classes, tested.query_classes) == ("even", "odd")


@given(st.text(max_size=12))
def test_classes_are_numbers_or_an_error(text):
    try:
        found = parse_classes(text, (0, 1, 2))
    except unem.InputError as error:
        assert "query_classes" in str(error)
    else:
        assert found is not None
        assert all(isinstance(c, int) for c in found)


# -- the store ------------------------------------------------------------------------------------------------------------


def test_a_damaged_row_is_no_row(tmp_path):
    store = ResultsStore(tmp_path)
    name = store.put({"a": 1}, {"accuracy": 1.0}, {})
    whole = store.path(name).read_text()
    for damage in (
        "",
        whole[: len(whole) // 2],
        "[]",
        "null",
        whole.replace('"a": 1', '"a": 2'),
        '{"format": "unem-row/1"}',
    ):
        store.path(name).write_text(damage)
        assert name not in store
        assert store.damaged() == [name]
        assert list(store) == []
    store.path(name).write_text(whole)
    assert store.get(name)["result"] == {"accuracy": 1.0}


@given(key=st.dictionaries(st.text(max_size=8), plain, max_size=4), result=st.dictionaries(st.text(max_size=8), plain))
@settings(max_examples=30)
def test_what_is_put_is_what_is_got(tmp_path_factory, key, result):
    store = ResultsStore(tmp_path_factory.mktemp("store"))
    name = store.put(key, result, {})
    assert name == job_name(key)
    assert store.get(name)["result"] == result


def test_what_was_being_written_is_tidied_when_it_is_old(tmp_path):
    store = ResultsStore(tmp_path)
    old, new = tmp_path / ".a.json.x.part", tmp_path / ".b.json.y.part"
    for part in (old, new):
        part.write_text("{")
    os.utime(old, (time.time() - 7200,) * 2)
    store.tidy()
    assert (old.exists(), new.exists()) == (False, True)


# -- plans ----------------------------------------------------------------------------------------------------------------


def test_lists_are_swept_and_nothing_is_twice(folder):
    block = {"features": "toy__*", "methods": ["paddle", "unem-gaussian"], "shots": [1, 2], "training_seeds": [0, 1]}
    made = plan(folder, block, block)
    assert len(made.cells) == 2 * (2 + 2 * 2)  # training seeds only matter where something is learned
    assert len({c.name for c in made.cells}) == len(made.cells)
    assert {c.preparation.learning["epochs"] for c in made.cells if c.preparation} == {1}


def test_what_cannot_be_drawn_or_needs_text_is_left_out_with_the_reason(folder):
    made = plan(folder, {"features": "*", "methods": ["em-dirichlet", "prototypes", "coop"], "shots": [2, 100]})
    assert {(c.images.features, c.method) for c in made.cells} == {
        ("toy__one", "em-dirichlet"),
        ("toy__one", "prototypes"),
        ("toy__two", "prototypes"),
    }
    reasons = {(x.features, x.method, x.reason.split(":")[0]): x.reason for x in made.left_out}
    assert ("toy__two", "em-dirichlet", "'toy__two' has no text features, which em-dirichlet needs") in reasons
    assert "text encoder" in reasons["toy__one", "coop", "method 'coop'"]
    assert "100 support images" in reasons["toy__two", "prototypes", "shots"]


def test_tuning_and_learning_elsewhere(folder):
    tuned, *_ = plan(folder, {"features": "toy__one", "methods": "paddle", "tune": 5}).cells
    assert tuned.preparation.tasks == 5
    (plain_one,) = plan(folder, {"features": "toy__one", "methods": "prototypes", "tune": 5}).cells
    assert plain_one.preparation is None
    block = {"features": "toy__one", "methods": "unem-gaussian", "learned_at": {"effective_classes": 3}}
    (elsewhere,) = plan(folder, block).cells
    assert elsewhere.preparation.protocol.effective_classes == 3
    assert elsewhere.protocol.effective_classes == 2


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"features": "toy__one"}, "methods: a block needs some"),
        ({"methods": "paddle"}, "features: a block needs some"),
        ({"features": "nothing", "methods": "paddle"}, "'nothing' is not among the files"),
        ({"features": "toy__one", "methods": "padle"}, "no method is called 'padle'"),
        ({"features": "toy__one", "methods": "padl*"}, "none matches"),
        ({"features": "toy__one", "methods": "paddle", "shot": 5}, "'shot' is not known"),
        ({"features": "toy__one", "methods": "paddle", "shots": []}, "shots: got an empty list"),
        ({"features": "toy__one", "methods": "paddle", "shots": "five"}, "shots"),
        ({"features": "toy__one", "methods": "paddle", "tasks": 0}, "tasks"),
        ({"features": "toy__one", "methods": "paddle", "seed": -1}, "seed"),
        ({"features": "toy__one", "methods": "paddle", "settings": {"lambda": 1}}, "no setting 'lambda'"),
        ({"features": "toy__one", "methods": "unem-gaussian", "variants": "best"}, "variant"),
        ({"features": "toy__one", "methods": "unem-gaussian", "recipe": "best"}, "recipe"),
        ({"features": "toy__one", "methods": "unem-gaussian", "learning": {"epoch": 3}}, "learning"),
        ({"features": "toy__one", "methods": "paddle", "learned_at": {"shot": 3}}, "learned_at: 'shot'"),
        ({"features": "toy__one", "methods": "paddle", "settings": 3}, "settings: expected names and values"),
        ({"features": ["toy__one", 3], "methods": "paddle"}, "features: expected a name"),
    ],
)
def test_messages(folder, block, message):
    with pytest.raises(unem.InputError, match=message.replace("(", r"\(")):
        plan(folder, block)


values = st.recursive(
    st.booleans()
    | st.integers(-3, 30)
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.sampled_from(["all", "2-3"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tasks", "shots", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    st.dictionaries(
        st.sampled_from([*BLOCK_DEFAULTS, "features", "methods", "nonsense"]) | st.text(max_size=5), values, max_size=4
    )
)
@settings(max_examples=150)
def test_any_block_is_a_plan_or_a_sentence(folder, block):
    try:
        made = plan(folder, {"features": "toy__one", "methods": ["prototypes", "unem-gaussian"], **block})
    except unem.InputError as error:
        assert str(error)
    else:
        assert all(cell.name for cell in made.cells)


# -- execution ------------------------------------------------------------------------------------------------------------


def test_only_what_is_missing_is_computed(folder, tmp_path):
    cells_, store = plan(folder, *MIXED).cells, ResultsStore(tmp_path)
    first = Here(folder)
    done = execute(cells_, store, first)
    assert (done.found, len(done.failed)) == (0, 0)
    assert done.computed == len(cells_) + 5  # four schedules and one set of settings
    assert len(first.submitted) == len(set(first.submitted)) == done.computed
    before = lasting(store)
    again = Here(folder)
    assert execute(cells_, store, again).found == len(cells_)
    assert again.submitted == []
    lost = [cells_[0].name, cells_[-1].name]
    for name in lost:
        store.path(name).unlink()
    third = Here(folder)
    execute(cells_, store, third)
    assert third.submitted == lost  # the schedule that the last one needs is still there
    assert lasting(store) == before


def test_a_row_is_the_evaluation(folder, tmp_path):
    (cell,) = plan(folder, {"features": "toy__one", "methods": "em-gaussian", "seed": 3}).cells
    store = ResultsStore(tmp_path)
    execute([cell], store, Here(folder))
    features = unem.FeatureSet.load(folder / "toy__one.safetensors")
    protocol = unem.Protocol(shots=2, effective_classes=2, queries=12)
    pools = features.split("train"), features.split("test")
    alone = unem.evaluate("em-gaussian", pools[0], protocol, query=pools[1], tasks=6, seed=3)
    row = store.get(cell.name)
    assert row["result"]["accuracy"] == pytest.approx(alone.accuracy, abs=1e-4)
    assert [100 * c / 12 for c in row["result"]["correct"]] == pytest.approx(alone.per_task.tolist())
    reliability = row["result"]["reliability"]
    assert sum(reliability["queries"]) == 6 * 12
    assert sum(reliability["correct"]) == sum(row["result"]["correct"])
    counts = row["result"]["confusion"]["counts"]
    assert sum(n for *_, n in counts) == 6 * 12
    assert sum(n for t, p, n in counts if t == p) == sum(row["result"]["correct"])
    assert flat(row)["method"] == "em-gaussian"


def test_a_job_that_fails_does_not_stop_the_others(folder, tmp_path):
    good = plan(folder, {"features": "toy__one", "methods": "prototypes"}).cells[0]
    bad = replace(good, images=replace(good.images, support_split="nowhere"))
    other = replace(good, code="0.0.0+another")
    done = execute([bad, good, other], ResultsStore(tmp_path), Here(folder))
    assert set(done.failed) == {bad.name, other.name}
    assert "nowhere" in done.failed[bad.name]
    assert "install the same" in done.failed[other.name]
    assert done.computed == 1


def test_a_job_that_kills_its_worker_is_given_up(folder, tmp_path):
    class Deadly(Here):
        def submit(self, job, prepared):
            self.submitted.append(job.name)
            self.done.append(Outcome(job.name, error="gone", lost=True))

    cell = plan(folder, {"features": "toy__one", "methods": "prototypes"}).cells[0]
    engine = Deadly(folder)
    done = execute([cell], ResultsStore(tmp_path), engine)
    assert engine.submitted == [cell.name] * LIVES
    assert done.failed == {cell.name: "gone"}


def test_processes_give_the_same_rows_and_a_killed_worker_loses_nothing(folder, tmp_path):
    cells_ = plan(folder, *MIXED).cells
    here, there = ResultsStore(tmp_path / "here"), ResultsStore(tmp_path / "there")
    execute(cells_, here, Here(folder))
    killed = []

    def kill_one(progress):
        if progress.done >= 5 and not killed:
            killed.append(engine.workers[0].process.pid)
            os.kill(killed[0], signal.SIGKILL)

    with LocalEngine(folder, workers=2) as engine:
        done = execute(cells_, there, engine, kill_one)
    assert killed
    assert not done.failed
    assert lasting(there) == lasting(here)


# -- the command ----------------------------------------------------------------------------------------------------------


def write_spec(path, cells=200):
    seeds = ", ".join(map(str, range(cells // 8)))
    path.write_text(
        f"""
        features_dir = "features"
        tasks = 4
        effective_classes = 2
        queries = 12
        [[cells]]
        features = "toy__*"
        methods = ["prototypes", "paddle"]
        shots = [1, 2]
        seed = [{seeds}]
        [[cells]]
        features = "toy__one"
        methods = "unem-gaussian"
        shots = 2
        learning = {{tasks = 8, epochs = 1, validation_tasks = 4}}
        """
    )
    return path


def test_a_sweep_killed_three_times_loses_nothing_and_does_nothing_twice(folder, tmp_path):
    (tmp_path / "features").symlink_to(folder)
    spec, results = write_spec(tmp_path / "many.toml"), tmp_path / "results"
    written: dict[str, float] = {}

    def seen():
        return {p.name: p.stat().st_mtime_ns for p in results.glob("*.json")}

    for death in range(3):
        process = start("sweep", spec, "-o", results, "--workers", 2, "-q", start_new_session=True)
        goal = len(written) + 30 + 10 * death
        until = time.time() + 90
        while len(seen()) < goal and time.time() < until and process.poll() is None:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        now = seen()
        assert len(now) >= goal
        assert all(now[name] == when for name, when in written.items())  # no row was written again
        assert ResultsStore(results).damaged() == []
        written = now
    done = run("sweep", spec, "-o", results, "--workers", 2)
    assert done.returncode == 0, done.stderr
    rows = lasting(ResultsStore(results))
    assert all(seen()[name] == when for name, when in written.items())
    assert sum(key["kind"] == "cell" for key, _ in rows.values()) == 201
    assert "201 cells" in done.stdout
    cells_, undisturbed = expand(read_spec(spec), FeatureFolder(folder)).cells, ResultsStore(tmp_path / "undisturbed")
    execute(cells_, undisturbed, Here(folder))
    assert lasting(undisturbed) == rows
    again = Here(folder)
    assert execute(cells_, ResultsStore(results), again).found == 201
    assert again.submitted == []


def test_interrupted_says_what_is_kept(folder, tmp_path):
    (tmp_path / "features").symlink_to(folder)
    spec, results = write_spec(tmp_path / "many.toml", 2000), tmp_path / "results"
    process = start("sweep", spec, "-o", results, "--workers", 1)
    until = time.time() + 60
    while not list(results.glob("*.json")) and time.time() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "cells are done and kept" in errors
    assert "Traceback" not in errors


def printed(*arguments):
    """What a command prints; in this process, which is quicker."""
    done = CliRunner().invoke(unem.cli.application, [str(a) for a in arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_results_ls_show_export(folder, tmp_path):
    (tmp_path / "features").symlink_to(folder)
    spec, results = write_spec(tmp_path / "few.toml", 16), tmp_path / "results"
    assert "17 cells" in printed("sweep", spec, "-o", results, "--dry-run")
    assert not results.exists()
    assert run("sweep", spec, "-o", results, "-q", "--tasks", 2).returncode == 0
    assert "1 rows" in printed("results", "ls", results, "--where", "method=unem-*")
    name = next(r["name"] for r in ResultsStore(results) if r["key"]["kind"] == "cell")
    shown = json.loads(printed("results", "show", results, name[:10]))
    assert shown["name"] == name
    assert shown["key"]["code"] == code_version()
    assert shown["key"]["tasks"] == 2
    for ending in ("csv", "json", "md"):
        target = tmp_path / f"rows.{ending}"
        printed("results", "export", results, "-o", target)
        assert target.read_text().count("toy__one") >= 9
    assert printed("results", "export", results).count("\n") == 18


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "nowhere.toml"], "does not exist"),
        (["results", "ls", "nowhere"], "does not exist"),
        (["results", "show", ".", "abc"], "no row begins so"),
        (["results", "ls", ".", "--where", "color=red"], "--where"),
        (["results", "export", ".", "-o", "rows.xml"], "--output"),
        (["reproduce", "table9", "--features", "."], "none is called 'table9'"),
        (["reproduce", "table1", "--features", "nowhere"], "not a folder"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in said(*arguments)


def test_spec_files(tmp_path, folder):
    spec = tmp_path / "s.toml"
    for text, message in (
        ("cells = 3", "at least one block"),
        ("[[cells]", "not a readable TOML"),
        ("[[cells]]", "features"),
    ):
        spec.write_text(text)
        assert message in said("sweep", spec, "--features", folder, "-o", tmp_path / "r")
    spec.write_text('[[cells]]\nfeatures = "toy__one"\nmethods = "prototypes"\n')
    assert "--features" in said("sweep", spec)
    more = ["--engine", "slurm", "-o", tmp_path / "r"]
    spec.write_text('queries = 12\n[[cells]]\nfeatures = "toy__one"\nmethods = "prototypes"\n')
    assert "expected local or ray" in said("sweep", spec, "--features", folder, *more)
