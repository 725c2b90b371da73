"""Programs in benchmarks/ whose results come with the library, on small data that the tests make."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import domain_shift
import evidence_ablation
import evidence_numbers
import hard_cases
import situations
import uneven_labels
from unem.evidence import Numbers

PROGRAMS = sorted(path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("*.py"))


def write_features(path, seed=0):
    """Twelve overlapping classes of forty samples."""
    chance = np.random.default_rng(seed)
    labels = np.repeat(np.arange(12), 40)
    rows = chance.normal(size=(12, 16))[labels] + 1.2 * chance.normal(size=(480, 16))
    np.savez(path, features=rows.astype(np.float32), labels=labels)
    return path


def first_draw(path, shots=5):
    return next(iter(situations.draws(write_features(path), 1, [shots])))


@pytest.fixture
def run(monkeypatch, capsys):
    """Calls a program, and gives what it printed."""
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)

    def call(program, *arguments):
        monkeypatch.setattr(sys, "argv", [program.__name__, *map(str, arguments)])
        program.main()
        return capsys.readouterr().out

    return call


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_imported_that_is_gone(name):
    importlib.import_module(name)


def test_situations_keep_rows_of_other_methods(tmp_path, run):
    table = tmp_path / "rows.csv"
    common = [write_features(tmp_path / "a.npz"), "--draws", "1", "--shots", "3", "-o", table]
    run(situations, *common, "--methods", "default,whitened-mean")
    single = [row for row in rows_of(table) if row["method"] == "whitened-mean"]
    out = run(situations, *common, "--methods", "default")
    assert [row for row in rows_of(table) if row["method"] == "whitened-mean"] == single
    assert len(rows_of(table)) == 2 * len(single) == 8
    assert "| default |" in out


def test_an_offset_moves_all_queries_alike(tmp_path):
    draw = first_draw(tmp_path / "a.npz")
    moved = situations.offset(draw, 0.5).query - draw.query
    assert np.ptp(moved, axis=0).max() < 1e-5
    assert (moved > 0.3).all()  # classes have a standard deviation of 1.2


def test_labels_are_taken_away_as_is_said(tmp_path, run):
    draw = first_draw(tmp_path / "a.npz")
    common = np.bincount(draw.truth).argmax()
    left = {labels: np.bincount(uneven_labels.cut(draw, labels).labels) for labels in uneven_labels.KEPT}
    assert sorted(left["one single"]) == [1] + [5] * 11
    assert sorted(left["one whole"]) == [1] * 11 + [5]
    assert left["common single"][common] == 1
    assert left["common single"].sum() == 56
    assert left["common whole"][common] == 5
    assert left["common whole"].sum() == 16
    assert sorted(left["half single"]) == [1] * 6 + [5] * 6
    assert sorted(left["long tail"]) == [1] * 10 + [2, 5]
    assert set(left["mixed"]) <= {1, 2, 3, 4, 5}

    given = [tmp_path / "a.npz", "--draws", "1", "--classes", "2", "-o", tmp_path / "rows.csv"]
    out = run(uneven_labels, *given, "--methods", "default,whitened-mean")
    assert [row["method"] for row in rows_of(tmp_path / "rows.csv")].count("default") == 4 * 7
    assert "| one single, even |" in out


@pytest.mark.parametrize("shots", [1, 5])
def test_a_candidate_answers_as_if_the_samples_were_fitted_with_it(tmp_path, shots):
    """Also where the fit is used again, that is, for all numbers that are not part of it."""
    draw = first_draw(tmp_path / "a.npz", shots)
    keys = list(evidence_numbers.candidates(()))
    assert {name for name, _ in keys} <= set(Numbers.__dataclass_fields__)
    single, joint, *found = evidence_numbers.tried(draw, keys)
    for (name, value), accuracy in zip(keys, found, strict=True):
        fitted, query = evidence_numbers.fit(draw, replace(Numbers(), **{name: value}))
        assert accuracy == evidence_numbers.accuracy(draw, fitted.predict(query)), name
    assert len({single, joint, *found}) > 1


def test_numbers_are_tried_with_and_without_each_set(tmp_path, run):
    files = [write_features(tmp_path / f"{name}.npz", seed) for seed, name in enumerate("ab")]
    given = [*files, "--draws", "1", "-o", tmp_path / "numbers.json"]
    out = run(evidence_numbers, *given, "--only", "few", "trust")
    written = json.loads((tmp_path / "numbers.json").read_text())
    assert written["draws"] == 2 * (5 * 4 + 2 * 4)
    assert [line["number"] for line in written["numbers"]] == ["as it is", *["few"] * 3, *["trust"] * 3]
    assert set(written["left_out"]) == {"a", "b"}
    assert "without a:" in out

    run(evidence_numbers, *given, "--certainty")
    written = json.loads((tmp_path / "numbers.json").read_text())
    assert set(written) == {"all", "without a", "without b"}
    assert written["all"]["of_fitted"] <= min(written["all"]["of_shipped"], written["all"]["log_loss_of_zeros"])


def test_every_mechanism_is_taken_away(tmp_path, run):
    run(
        evidence_ablation, write_features(tmp_path / "a.npz"), "--draws", "1", "--shots", "5", "-o", tmp_path / "a.json"
    )
    rows = {row.pop("without"): row for row in json.loads((tmp_path / "a.json").read_text())}
    assert list(rows) == ["all: each query by itself", "nothing", *evidence_ablation.WITHOUT]
    same = [name for name in evidence_ablation.WITHOUT if rows[name] == rows["nothing"]]
    assert set(same) <= {"few", "caution with an offset", "uneven labels"}  # twelve classes say nothing of these
    assert rows["copies"]["copies"] != rows["nothing"]["copies"]
    assert rows["offset of the queries"]["offset 1.0"] < rows["nothing"]["offset 1.0"]


def test_photographs_are_changed_as_is_said(tmp_path):
    noise = np.random.default_rng(0)
    image = Image.fromarray(noise.integers(60, 180, (40, 60, 3), dtype=np.uint8))
    plain = np.asarray(image, np.float32)
    changed = {name: np.asarray(change(image, noise), np.float32) for name, change in domain_shift.CHANGES.items()}
    assert all(pixels.shape == plain.shape for pixels in changed.values())
    assert [name for name, pixels in changed.items() if (pixels == plain).all()] == ["same"]
    assert changed["dark"].mean() < 0.6 * plain.mean() < plain.mean() < changed["bright"].mean()
    assert all(changed[name].std() < 0.7 * plain.std() for name in ("contrast", "blur", "small"))
    assert np.ptp(changed["grey"], axis=2).max() == 0
    assert changed["warm"][..., 0].mean() > plain[..., 0].mean() > changed["warm"][..., 2].mean()
    assert changed["vignette"][0, 0].mean() < 0.3 * changed["vignette"][20, 30].mean()


def test_domain_shift_by_offsets_and_by_photographs_that_are_kept(tmp_path, run):
    stored = np.load(write_features(tmp_path / "a.npz"))
    out = run(domain_shift, "offsets", tmp_path / "a.npz", "--draws", "1", "-o", tmp_path / "rows.csv")
    assert len(rows_of(tmp_path / "rows.csv")) == 2 * 3 * 3
    assert "| offset 0.5 | three |" in out

    changes = {name: stored["features"] + i for i, name in enumerate(domain_shift.CHANGES)}
    np.savez(tmp_path / "photos.npz", labels=stored["labels"], **changes)
    given = [tmp_path / "nowhere" / "photos", "--cache", tmp_path, "--draws", "1", "-o", tmp_path / "rows.csv"]
    out = run(domain_shift, "photographs", *given)
    assert len(rows_of(tmp_path / "rows.csv")) == 2 * 3 * 21
    assert "| half jpeg | heavy |" in out
    draws = dict(domain_shift.photographed(Path("photos"), tmp_path, 1))
    moved = draws["half dark"].query - draws["same"].query
    assert 0.2 < (np.abs(moved - 1) < 1e-5).all(1).mean() < 0.8
    assert ((np.abs(moved - 1) < 1e-5) | (moved == 0)).all()


def test_hard_cases(tmp_path, run):
    out = run(hard_cases, write_features(tmp_path / "a.npz"), "--draws", "1", "-o", tmp_path / "rows.csv")
    rows = {(row["case"], row["method"]): row for row in rows_of(tmp_path / "rows.csv")}
    alone = rows["strangers alone", "evidence"]
    assert alone["sure_0.9"] == alone["wrong_0.9"]
    assert alone["accuracy"] == ""
    assert rows["even, each query 20 times", "evidence"]["queries"] == str(20 * 11 * 12)
    assert rows["35 strangers of 110", "evidence"]["queries"] == "110"
    assert len(rows) == 2 * (2 * 7 + 5)
    assert "| 1,500 of 700, Zipf |" in out
