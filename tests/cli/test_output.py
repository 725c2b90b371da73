"""What commands print."""

from __future__ import annotations

import json

import pytest
import torch

import unem
import unem.cli._output as output
from unem._words import counted
from unem.errors import InputError


def test_sentences_are_printed_as_they_are(capsys):
    """File names may look like markup, and be longer than the screen is wide."""
    output.say("schedule: [red]/" + "x" * 300)
    output.note("a [bold] file", "left out")
    said = capsys.readouterr()
    assert said.out == "schedule: [red]/" + "x" * 300 + "\n"
    assert said.err == "left out: a [bold] file\n"


def test_json_that_cannot_be_written_is_printed(tmp_path, capsys):
    """So that no work is lost."""
    output.emit_json({"a": 1}, str(tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1}
    with pytest.raises(InputError, match="it is a folder"):
        output.emit_json({"a": 1}, str(tmp_path))
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_progress(capsys):
    with output.progress_bar(True, "tasks") as progress, output.named_progress_bar(True, "tasks") as named:
        progress(1, 2)
        named("others", 1, 2)
    assert capsys.readouterr().err == ""


def test_results():
    labels = torch.arange(4).repeat_interleave(30)
    features = unem.FeatureSet(torch.eye(4)[labels] * 4 + torch.randn(120, 4), labels, name="toy")
    protocol = unem.Protocol(shots=2, effective_classes=(1, 3), queries=10)
    results = [unem.evaluate(m, features, protocol, tasks=5, seed=0) for m in ("prototypes", "paddle")]
    assert output.title_of(results[0]) == "toy: 2 shots, 1-3 of 4 classes, 10 queries, 5 tasks"
    assert output.title_of(results[0], shots=False) == "toy: 1-3 of 4 classes, 10 queries, 5 tasks"
    table = output.results_table(results, "title")
    assert list(table.columns[0].cells) == ["prototypes", "paddle"]


@pytest.mark.parametrize(
    ("support", "query", "title"),
    [
        ("toy", "toy", "toy"),
        ("toy/test", "toy/test", "toy, support and query from test"),
        ("toy/train", "toy/test", "toy, support from train, query from test"),
        ("other", "toy", "toy, support from other"),
        ("other/train", "toy/test", "toy/test, support from other/train"),
    ],
)
def test_titles_say_where_support_and_query_come_from(support, query, title):
    assert output._pools(support, query) == title


def test_a_first_layer_without_proportions_shows_no_balance():
    for law, first in (("gaussian", "–"), ("directions", "–"), ("dirichlet", "75.0"), ("", "75.0")):
        table = output.schedule_table(unem.Schedule(class_balance=(1.0, 2.0), temperature=1.5, law=law or None), 75)
        assert list(table.columns[1].cells) == [first, "150.0"]
        assert next(table.columns[2].cells) == ("–" if first == "–" else "1.000")
        assert next(table.columns[3].cells) == "1.500"
        assert ("no influence" in str(table.caption)) == (first == "–")


def test_a_bar_that_nobody_sees_prints_nothing(capsys):
    with output.progress_bar(False, "tasks") as progress:
        progress(1, 2)
    assert capsys.readouterr().err == ""


def test_schedules():
    schedule = unem.Schedule(class_balance=(1.0, 2.0), temperature=1.5)
    table = output.schedule_table(schedule, 75)
    assert list(table.columns[1].cells) == ["75.0", "150.0"]
    spread = {
        "seeds": [0, 1],
        "class_balance": {"mean": [1, 2], "sd": [0.1, 0.2]},
        "temperature": {"mean": [1, 1], "sd": [0, 0]},
    }
    table = output.schedule_table(unem.Schedule(class_balance=(1.0, 2.0), provenance={"spread": spread}), 10)
    assert list(table.columns[2].cells) == ["10 ± 1", "20 ± 2"]


@pytest.mark.parametrize(("number", "text"), [(0, "0 queries"), (1, "1 query"), (2000, "2,000 queries")])
def test_nouns_follow_their_number(number, text):
    assert counted(number, "query", "queries") == text
