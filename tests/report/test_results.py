"""The report of a folder of results: one file that needs nothing else, and says no more than the rows do."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser

import pytest
from PIL import Image

import unem
from helpers.command_line import said
from helpers.experiment_data import QUICK_PAPER as QUICK
from helpers.experiment_data import Here, plan, write_features
from unem.experiments import FeatureFolder, ResultsStore, columns_of, execute
from unem.experiments.paper import plan_recipe, recipe
from unem.report.results import _sections, _summary, render_report, write_report

RECIPES = ("table1", "layers", "fixed-adaptive", "figure1", "schedules", "protocol")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A few recipes on small files, with a method whose name and a class whose name must be escaped."""
    folder = tmp_path_factory.mktemp("features")
    write_features(folder, "resnet18__mini-imagenet", text=False, images=90)
    write_features(folder, "resnet18__tiny-imagenet", text=False, seed=1, images=90)
    write_features(folder, "clip-vit-b32__oxford-pets-24", seed=2, images=90)
    made = ResultsStore(tmp_path_factory.mktemp("results"))
    small = {k: v for k, v in QUICK.items() if k not in ("queries", "shots", "learned_at")} | {
        "tasks": 4,
        "queries": 75,
    }
    for name in RECIPES:
        changes = small if name != "protocol" else {k: v for k, v in small.items() if k != "queries"}
        if name != "schedules":
            changes = changes | {"training_seeds": 0}
        planned = plan_recipe(recipe(name), FeatureFolder(folder), changes, methods="!alpha-*,!tim-*,!lr-ici,!baseline")
        made.save_plan(name, planned.to_dict())
        done = execute(planned.plan.cells, made, Here(folder))
        assert not done.failed
    others = plan(folder, {"features": "resnet18__mini-imagenet", "methods": "simpleshot"}).cells
    execute(others, made, Here(folder))
    return made


class Page(HTMLParser):
    """Tags are closed, links stay within the page."""

    VOID = ("meta", "br", "img", "link", "hr")

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [v for k, v in attrs if k in ("href", "src", "xlink:href") and v]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_page_that_needs_nothing_else(store):
    html, plots = render_report(store, title="Birds & <others>")
    page = Page(html)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert "<script" not in html
    assert "Birds &amp; &lt;others&gt;" in html
    assert {p.section for p in plots} == {
        *("Sensitivity to λ", "Learned schedules", "Other protocols", "Depth", "Calibration", "Cost against accuracy"),
        "Confusion",
    }


def test_it_says_what_the_rows_say(store):
    html, _ = render_report(store)
    rows = [row for row in store if row["key"]["kind"] == "cell"]
    assert f"{len(rows)} results" in html
    for row in rows:
        if row["key"]["method"] == "bd-cspn":
            assert f"{row['result']['accuracy']:.1f}" in html
    assert "Other rows" in html
    assert "simpleshot" in html
    assert "resnet18__tiered-imagenet" in html  # what is missing is named
    assert "stands in" in html
    assert re.search(r"paper \d\d\.\d", html)  # mini-ImageNet's rows have the paper's numbers beside them
    tiny = html[html.index("<h3>resnet18__tiny-imagenet") :]
    assert "paper" not in re.search(r"<table.*?</table>", tiny, re.DOTALL)[0]  # a stand-in has none


def test_plots_are_files_too(store, tmp_path):
    count = write_report(store, tmp_path / "report.html", plots=tmp_path / "plots")
    assert count >= 8
    for ending in ("png", "svg", "csv"):
        assert len(list((tmp_path / "plots").glob(f"*.{ending}"))) == count
    for path in (tmp_path / "plots").glob("*.csv"):
        assert len(list(csv.DictReader(path.open()))) >= 2
    with Image.open(next((tmp_path / "plots").glob("lambda*.png"))) as image:
        assert image.width >= 900
    numbers = list(csv.DictReader((tmp_path / "plots" / "lambda.csv").open()))
    assert {n["what"] for n in numbers} == {"curve", "EM-Dirichlet's rule", "UNEM", "λ learned alone"}


def test_a_chosen_confusion(store):
    row = next(r for r in store if r["key"]["method"] == "bd-cspn")
    html, plots = render_report(store, confusion=row["name"][:12])
    assert f"bd-cspn on {row['key']['images']['features']}" in html
    confusion = next(p for p in plots if p.name == "confusion")
    assert sum(n["queries"] for n in confusion.numbers) == 4 * 75
    preparation = next(r for r in store if r["key"]["kind"] == "preparation")
    with pytest.raises(unem.InputError, match="preparation"):
        render_report(store, confusion=preparation["name"])


def test_the_confusion_is_of_the_best_row(store):
    """Of the method that the summary names, not of a bad one."""
    rows = [r for r in store if r["key"]["kind"] == "cell"]
    best = max(_summary(rows), key=lambda card: (-card["shots"], card["accuracy"]))
    _, plots = render_report(store)
    confusion = next(p for p in plots if p.name == "confusion")
    assert confusion.caption.startswith(f"{best['method']} on {best['features']}, {best['shots']} shot")
    assert best["accuracy"] > min(columns_of(r)["accuracy"] for r in rows)


def test_half_a_run_is_reported_as_half(store, tmp_path):
    half = ResultsStore(tmp_path)
    names = list(store.plans()["layers"]["cells"])[:3]
    for name in names:
        row = store.get(name)
        half.put(row["key"], row["result"], row["run"])
    half.save_plan("layers", store.plans()["layers"])
    html, _ = render_report(half)
    assert "3 of 14 results are there" in html


def test_a_table_keeps_the_rows_of_its_earlier_runs(store, tmp_path):
    """Some methods today, others tomorrow, more tasks the day after: one table, each number once."""
    part = ResultsStore(tmp_path)
    plan_ = store.plans()["table1"]
    rows = [store.get(name) for name in plan_["cells"]]
    paddle, others = ([r for r in rows if (r["key"]["method"] == "paddle") is wanted] for wanted in (True, False))
    more = [{**r, "key": {**r["key"], "tasks": 8}} for r in paddle]
    for today in (paddle, others, more, []):
        names = [part.put(r["key"], r["result"], r["run"]) for r in today]
        part.save_plan("table1", {**plan_, "cells": names}, adds=True)
    html, _ = render_report(part)
    assert "Table 1" in html
    assert "Other rows" not in html
    assert "seeds)" not in html  # a number of fewer tasks is no second seed
    (shown,) = _sections(part, [r for r in part if r["key"]["kind"] == "cell"])
    assert shown["done"] == shown["planned"] == len(rows)
    part.save_plan("table1", {**plan_, "cells": []})
    assert "Other rows" in render_report(part)[0]


def test_nothing_to_report(tmp_path):
    assert "has no rows" in said("report", tmp_path)
    assert "does not exist" in said("report", tmp_path / "nowhere")


def test_rows_of_methods_that_are_not_registered_here(store, tmp_path):
    """A user's own method and law: their code may not be at hand when the report is written."""
    theirs = ResultsStore(tmp_path)
    for row in store:
        key, result = dict(row["key"]), dict(row["result"])
        if key["method"] in ("unem-dirichlet", "bd-cspn"):
            key["method"] = f"mine-{key['method']}"
        if result.get("schedule"):
            result["schedule"] = {**result["schedule"], "law": "mine"}
        run = {k: v for k, v in row["run"].items() if k != "hardware"}  # as rows of version 0.1 are
        theirs.put(key, result, run)
    html, plots = render_report(theirs)
    assert "mine-bd-cspn" in html
    assert "schedule-mine-unem-dirichlet" in {p.name for p in plots}
