"""Rows in files are labelled as they are in one memory, by one process or many."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch

import unem
from unem.errors import InputError
from unem.inference import label_features
from unem.inference.shards import feature_files, label_shards
from unem.inference.shards import files as shard_files
from unem.inference.shards.files import Reading
from unem.inference.shards.passes import count_rows

NAMES = ("ash", "birch", "elm", "fir", "oak")
DIM = 12


def drawn(count, seed, share=(0.5, 0.2, 0.2, 0.1, 0.0)):
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(NAMES), count, p=share)
    centres = np.random.default_rng(0).normal(size=(len(NAMES), DIM))
    return (centres[labels] + rng.normal(size=(count, DIM))).astype(np.float32), labels


def support():
    labels = np.repeat(np.arange(len(NAMES)), 4)
    centres = np.random.default_rng(0).normal(size=(len(NAMES), DIM))
    few = centres[labels] + np.random.default_rng(1).normal(size=(len(labels), DIM))
    return torch.from_numpy(few.astype(np.float32)), torch.from_numpy(labels)


def write(folder, counts):
    """Files of features, of both kinds; all rows together."""
    folder.mkdir()
    rows = []
    for number, count in enumerate(counts):
        features, labels = drawn(count, 10 + number)
        if number % 2:
            unem.FeatureSet(torch.from_numpy(features), labels).save(folder / f"{number}.safetensors")
        else:
            np.save(folder / f"{number}.npy", features)
        rows.append(features)
    return torch.from_numpy(np.concatenate(rows))


def read(done):
    rows = []
    for part in done.parts:
        with open(done.folder / part, newline="", encoding="utf-8") as file:
            rows += list(csv.DictReader(file))
    return rows


@pytest.mark.parametrize("counts", [(40, 3, 57), (1500, 1, 2400)])
def test_the_answers_are_those_of_one_memory(tmp_path, counts, monkeypatch):
    """Both where rows are few enough to be classified at once, and where a sample settles the means."""
    monkeypatch.setattr(shard_files, "ROWS", 700)
    rows = write(tmp_path / "query", counts)
    done = label_shards(*support(), feature_files(tmp_path / "query"), NAMES, tmp_path / "labels.csv")
    expected = label_features(*support(), rows, NAMES)
    found = read(done)
    assert [row["label"] for row in found] == [NAMES[k] for k in expected.labels.tolist()]
    values = torch.tensor([float(row["probability"]) for row in found])
    assert torch.allclose(values, expected.probabilities.max(-1).values, atol=1e-4)
    assert (done.rows, done.method) == (sum(counts), "evidence")
    assert done.counts == {name: sum(row["label"] == name for row in found) for name in NAMES}
    doubtful = (
        [float(row["probability"]) < 0.8 - 5e-5 for row in found],
        [float(row["probability"]) < 0.8 + 5e-5 for row in found],
    )
    assert sum(doubtful[0]) <= sum(done.doubtful.values()) <= sum(doubtful[1])  # the table is rounded, the count is not
    assert found[0]["path"] == "0.npy#0"
    assert found[-1]["path"] == f"2.npy#{counts[2] - 1}"


def test_texts_count_too(tmp_path):
    rows = write(tmp_path / "query", (1300, 1200))
    texts = torch.from_numpy(np.random.default_rng(0).normal(size=(len(NAMES), DIM)).astype(np.float32))
    files = feature_files(tmp_path / "query")
    done = label_shards(*support(), files, NAMES, tmp_path / "labels.csv", text=texts)
    expected = label_features(*support(), rows, NAMES, text=texts)
    assert done.method == "evidence-joint"
    assert [row["label"] for row in read(done)] == [NAMES[k] for k in expected.labels.tolist()]


def test_the_order_of_files_does_not_matter(tmp_path):
    write(tmp_path / "query", (1500, 900, 800))
    files = feature_files(tmp_path / "query")
    answers = []
    for number, order in enumerate((files, files[::-1])):
        done = label_shards(*support(), order, NAMES, tmp_path / f"{number}.csv")
        answers.append(sorted((row["path"], row["label"]) for row in read(done)))
    assert answers[0] == answers[1]


def test_parquet_and_what_is_said_about_it(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write(tmp_path / "query", (30, 20))
    files = feature_files(tmp_path / "query")
    done = label_shards(*support(), files, NAMES, tmp_path / "labels.parquet", all_probabilities=True)
    table = parquet.read_table(done.folder)
    assert (table.num_rows, table.column_names[0], table.column_names[-1]) == (50, "path", "p(oak)")
    about = json.loads((done.folder / "_about.json").read_text())
    assert (about["format"], about["rows"], about["counts"]) == ("unem-label-shards/1", 50, done.counts)


def test_an_earlier_result_is_replaced_and_nothing_else_is(tmp_path):
    write(tmp_path / "query", (30, 20))
    files, output = feature_files(tmp_path / "query"), tmp_path / "labels.csv"
    label_shards(*support(), files, NAMES, output)
    label_shards(*support(), files[:1], NAMES, output)
    assert sorted(f.name for f in output.iterdir()) == ["_about.json", "part-000000.csv"]
    (tmp_path / "mine.csv").mkdir()
    (tmp_path / "mine.csv" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"output: .*mine.csv' exists and is not an earlier result"):
        label_shards(*support(), files, NAMES, tmp_path / "mine.csv")
    with pytest.raises(InputError, match=r"output: expected a name that ends in .csv or .parquet"):
        label_shards(*support(), files, NAMES, tmp_path / "labels.txt")


def test_a_failure_leaves_nothing_behind(tmp_path):
    write(tmp_path / "query", (30, 20))
    features, _ = drawn(3000, 5)
    features[7, 3] = np.nan
    np.save(tmp_path / "query" / "3.npy", features)
    with pytest.raises(InputError, match=r"3.npy"):
        label_shards(*support(), feature_files(tmp_path / "query"), NAMES, tmp_path / "labels.csv")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["query"]


def test_methods_that_need_all_queries_at_once(tmp_path):
    write(tmp_path / "query", (30,))
    with pytest.raises(InputError, match="method: 'paddle' needs all queries in one memory"):
        label_shards(*support(), feature_files(tmp_path / "query"), NAMES, tmp_path / "labels.csv", method="paddle")


def test_only_counts_travel(tmp_path):
    """What a pass returns does not grow with the rows."""
    write(tmp_path / "query", (2500, 50))
    few, known = support()
    task = unem.Task(few, known, torch.from_numpy(drawn(100, 3)[0]), num_classes=len(NAMES))
    settled = unem.create_method("evidence").settle(task, 2550)
    shapes = {count_rows(file, (Reading(torch.float32), settled)).shape for file in feature_files(tmp_path / "query")}
    assert len(shapes) == 1
    assert shapes.pop().numel() < 20 * len(NAMES)
