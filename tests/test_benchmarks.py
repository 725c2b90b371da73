"""Programs in benchmarks/ whose results come with the library, on small data that the tests make."""

from __future__ import annotations

import json
import sys

import numpy as np
import torch

import evidence_numbers
import situations
import uneven_labels
from unem.methods.evidence import numbers_from


def write_features(path, seed):
    """Twelve overlapping classes of forty samples."""
    chance = np.random.default_rng(seed)
    labels = np.repeat(np.arange(12), 40)
    rows = chance.normal(size=(12, 16))[labels] + 1.2 * chance.normal(size=(480, 16))
    np.savez(path, features=rows.astype(np.float32), labels=labels)
    return path


def test_the_gate_is_learned_with_and_without_each_set(tmp_path, monkeypatch, capsys):
    files = [str(write_features(tmp_path / f"{name}.npz", seed)) for seed, name in enumerate("ab")]
    monkeypatch.setattr(evidence_numbers, "STEPS", 5)
    arguments = [*files, "--minutes", "0.01", "--leave-out", "all", "-o", str(tmp_path / "numbers.json")]
    monkeypatch.setattr(sys, "argv", ["evidence_numbers.py", *arguments])
    evidence_numbers.main()
    written = json.loads((tmp_path / "numbers.json").read_text())
    assert set(written["without"]) == {"a", "b"}
    every, without = written["numbers"], written["without"]["a"]["numbers"]
    assert numbers_from(every).gate_in.shape == numbers_from(without).gate_in.shape
    assert every["gate_out"] != without["gate_out"]  # they were learned from other tasks
    assert every["moved"] == without["moved"] == [0.5] * 4  # and what is not learned is as it was
    assert 0 <= written["without"]["b"]["accuracy"]["without"] <= 100

    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    table = tmp_path / "rows.csv"
    common = [files[0], "--draws", "1", "--shots", "3", "-o", str(table)]
    monkeypatch.setattr(situations.evidence, "learned_numbers", situations.evidence.learned_numbers)  # put back after
    monkeypatch.setattr(sys, "argv", ["situations.py", *common, "--methods", "default,whitened-mean"])
    situations.main()
    first = table.read_text()
    left_out = ["--methods", "default", "--numbers", str(tmp_path / "numbers.json")]
    monkeypatch.setattr(sys, "argv", ["situations.py", *common, *left_out])
    situations.main()
    assert first.count("whitened-mean") == table.read_text().count("whitened-mean") == 4
    assert first.count("default") == table.read_text().count("default") == 4
    assert "| default |" in capsys.readouterr().out


def test_labels_are_taken_away_as_is_said(tmp_path, monkeypatch, capsys):
    draw = next(iter(situations.draws(write_features(tmp_path / "a.npz", 0), 1, [5])))
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

    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    given = [str(tmp_path / "a.npz"), "--draws", "1", "--classes", "2", "-o", str(tmp_path / "rows.csv")]
    monkeypatch.setattr(sys, "argv", ["uneven_labels.py", *given, "--methods", "default,whitened-mean"])
    uneven_labels.main()
    assert (tmp_path / "rows.csv").read_text().count("default") == 4 * 7
    assert "| one single, even |" in capsys.readouterr().out
