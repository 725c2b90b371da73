"""The one table: columns, files and names of any kind."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unem
from helpers.photographs import labelling
from unem._io import to_json
from unem.inference import Answer, Choice, Labelling, Reason, csv_text
from unem.report import contact_sheet
from unem.vision.images import ImageList

NAMES = st.text(st.characters(exclude_characters="\0/", codec="utf-8"), min_size=1, max_size=12)
ODD = [
    "a, b.png",
    'say "x".png',
    "new\nline.png",
    "cr\r.png",
    "<img src=x onerror=alert(1)>.png",
    "ü 💡.png",
    "=1+1.png",
]
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def guarded(text):
    """An apostrophe keeps a spreadsheet from computing it; some look past blanks, and know full-width signs."""
    return f"'{text}" if text.startswith(FORMULA) or text.lstrip().startswith(FORMULA) else text


@given(st.lists(NAMES, min_size=1, max_size=6, unique=True), st.lists(NAMES, min_size=2, max_size=5, unique=True))
@settings(max_examples=40)
def test_three_formats_agree_on_any_name(tmp_path_factory, paths, classes):
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("out")
    made = labelling([*paths, *ODD], classes, novel=True)
    for ending in ("csv", "json", "parquet"):
        made.save(folder / f"x.{ending}", all_probabilities=True)
    expected = made.columns(all_probabilities=True)
    with open(folder / "x.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == list(expected)
    assert expected["path"] == [*paths, *ODD]
    assert [r[0] for r in rows[1:]] == [guarded(path) for path in expected["path"]]
    assert [r[1] for r in rows[1:]] == [guarded(name) for name in expected["label"]]
    assert [r[3] for r in rows[1:]] == [guarded(name) for name in expected["runner_up"]]
    assert not any(cell.startswith(FORMULA) for row in rows for cell in row)
    assert [float(r[2]) for r in rows[1:]] == expected["probability"]
    assert [r[5] == "true" for r in rows[1:]] == expected["none_of_these"]
    stored = json.loads((folder / "x.json").read_text(encoding="utf-8"))
    assert {k: [row[k] for row in stored["images"]] for k in expected} == expected
    assert parquet.read_table(folder / "x.parquet").to_pydict() == expected


@pytest.mark.parametrize("evil", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n=1", "＝1", "\u00a0=1"])
def test_no_cell_of_a_csv_is_a_formula(evil):
    """In file names, class names and runners-up; JSON keeps them as they are."""
    made = labelling([f"{evil}.png"], (evil, f"{evil}2", f"{evil}3"))
    path, label, _, runner_up, _ = list(csv.reader(made.to_csv().splitlines(keepends=True)))[1]
    assert (path, label, runner_up) == (f"'{evil}.png", f"'{made.rows[0].label}", f"'{made.rows[0].runner_up}")
    assert json.loads(made.to_json())["images"][0]["path"] == f"{evil}.png"
    assert csv_text({evil: [-1.5, "-1.5"]}).splitlines()[-2:] == ["-1.5", "'-1.5"]  # numbers are numbers


@pytest.mark.parametrize("name", ["none of these", "None of these"])
def test_a_class_called_none_of_these_is_counted(name):
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
    answer = Answer(
        p, p.argmax(1), Choice(unem.create_method("simpleshot"), None, Reason("given")), torch.tensor([0.0, 0, 2])
    )
    made = Labelling(ImageList(".", ["1", "2", "3"]), (name, "b"), answer)
    assert made.counts() == {name: 2, "b": 0, "none of these-2": 1}
    assert made.about()["counts"] == made.counts()


def test_names_of_classes_that_are_no_text(tmp_path):
    """A folder of other bytes is a class like any other."""
    made = labelling(["1.png"], ("caf\udce9", "b"))
    assert "caf\\xe9" in made.to_csv(tmp_path / "a.csv", all_probabilities=True)
    assert json.loads(made.to_json(tmp_path / "a.json"))["classes"] == ["caf\\xe9", "b"]


def test_a_reason_is_written_as_a_sentence_and_as_data():
    stored = json.loads(labelling(["1.png"]).to_json())
    assert (stored["reason"], stored["reason_code"], stored["reason_numbers"]) == ("it was given", "given", {})


def test_labels_of_a_balanced_decision_are_in_every_table():
    p = torch.tensor([[0.7, 0.3], [0.7, 0.3], [0.7, 0.3], [0.52, 0.48]])
    of = p, p.argmax(1), Choice(unem.create_method("evidence"), None, Reason("given"))
    plain, fair = (
        Labelling(ImageList(".", list("1234")), ("a", "b"), Answer(*of, decision=d)) for d in ("accuracy", "balanced")
    )
    assert [row.label for row in plain.rows] == ["a", "a", "a", "a"]
    assert [row.label for row in fair.rows] == ["a", "a", "a", "b"]
    last = fair.rows[-1]
    assert (last.probability, last.runner_up) == (pytest.approx(0.48), "a")
    assert last.margin == pytest.approx(-0.04)
    assert fair.counts() == {"a": 3, "b": 1}
    assert (plain.doubtful(0.5), fair.doubtful(0.5)) == (0, 1)
    assert fair.by_doubt[0] == 3
    assert fair.about()["decision"] == "balanced"


def test_the_least_sure_are_those_of_the_least_probability_that_is_shown():
    """Whatever the margins are."""
    p = torch.tensor([[0.56, 0.43, 0.01], [0.45, 0.30, 0.25], [0.50, 0.49, 0.01]])
    answer = Answer(p, p.argmax(1), Choice(unem.create_method("evidence"), None, Reason("given")))
    made = Labelling(ImageList(".", list("123")), ("a", "b", "c"), answer)
    assert made.by_doubt.tolist() == [1, 2, 0]


def test_a_class_called_none_of_these_keeps_its_count():
    made = labelling([f"{i}.png" for i in range(8)], ["none of these", "b"], novel=True)
    counts = made.counts()
    assert sum(counts.values()) == 8
    assert set(counts) == {"none of these", "b", made.none_name}
    assert counts[made.none_name] == int((made.answer.novelty > 1).sum())


def test_names_that_are_no_utf8_can_be_written(tmp_path):
    """Names of files and classes are bytes; after all the work they must not end in a traceback."""
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    made = replace(labelling([f"{odd}/1.png", "2.png"], [odd, "b"]), notes=(f"support: {odd}/1.png looks odd",))
    for ending in ("csv", "json"):
        made.save(tmp_path / f"x.{ending}")
    assert "caf\\xe9/1.png" in (tmp_path / "x.csv").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["notes"] == [
        "support: caf\\xe9/1.png looks odd"
    ]
    contact_sheet.write(made, tmp_path / "x.html")
    assert '"caf\\\\xe9"' in (tmp_path / "x.html").read_text(encoding="utf-8")  # as JSON has it
    assert json.loads(to_json({"name": odd}))["name"] == odd


def test_images_of_no_class_are_not_doubtful_as_well():
    probabilities = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.95, 0.05]])
    of = probabilities, probabilities.argmax(1), Choice(unem.create_method("evidence"), None, Reason("given"))
    answer = Answer(*of, torch.tensor([2.0, 0.5, 2.0]))
    assert Labelling(ImageList(".", list("123")), ("a", "b"), answer).doubtful(0.8) == 1
