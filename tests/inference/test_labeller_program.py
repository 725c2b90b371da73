"""Programs of a fitted labeller say what it says, without this library."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

import unem
from helpers.clusters import clusters
from unem.inference import Labeller, fit
from unem.inference.labeller_program import CLASSES, LabellerProgram

KINDS = {
    "few features": {"classes": 11, "shots": 5, "features": 16, "text": True},
    "many features": {"classes": 6, "shots": [1, 5, 2, 5, 3, 1], "features": 64},
    "one shot": {"classes": 5, "shots": 1, "features": 24},
    "one shot, text": {"classes": 7, "shots": 1, "features": 40, "text": True},
    "text alone": {"classes": 4, "shots": 1, "features": 12, "text": True, "support": False},
}


def fitted_and_queries(queries=2048, support=True, text=False, **settings):
    """A labeller, and queries of all its classes."""
    made = clusters(1, queries=queries, noise=0.8, dtype=torch.float32, **settings)
    names = [f"class {k}" for k in range(made.classes)]
    texts = made.member[0].mT @ made.support[0] if text else None
    if not support:
        return fit(text=texts, classes=names), made.query[0]
    return fit(made.support[0], [names[k] for k in made.labels[0]], texts, classes=names), made.query[0]


def situations(labeller, query):
    """Few queries and many, of few classes, copies, and of another light."""
    yield from (query[:count] for count in (1, 2, 5, 7, 300, 2048))
    few = labeller.predict(query).class_numbers < 2
    yield query[few][:60]
    yield query[:40].repeat(3, 1)[:100]
    yield query[:200] + 0.6 * query.norm(dim=-1).mean() * torch.nn.functional.normalize(query[-1], dim=0)


def assert_the_same(found, answer):
    torch.testing.assert_close(found, answer.probabilities, rtol=0, atol=1e-3)
    assert float(((found - answer.probabilities).abs() < 1e-5).float().mean()) > 0.9
    assert torch.equal(found.argmax(-1), answer.class_numbers)


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_says_what_the_labeller_says(kind, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    labeller, query = fitted_and_queries(**KINDS[kind])
    labeller.export(tmp_path / "labeller.onnx")
    session = runtime.InferenceSession(tmp_path / "labeller.onnx", providers=["CPUExecutionProvider"])
    (asked,), (said,) = session.get_inputs(), session.get_outputs()
    assert (asked.name, asked.shape[1], asked.type) == ("query", query.shape[1], "tensor(float)")
    assert (said.name, said.shape[1], said.type) == ("probabilities", len(labeller.classes), "tensor(float)")
    for some in situations(labeller, query):
        (found,) = session.run(None, {"query": some.numpy()})
        assert_the_same(torch.from_numpy(found), labeller.predict(some))
    stored = session.get_modelmeta().custom_metadata_map[CLASSES]
    assert tuple(json.loads(stored)) == labeller.classes
    assert [path.name for path in tmp_path.iterdir()] == ["labeller.onnx"]


@pytest.mark.parametrize("kind", ["many features", "text alone"])
def test_a_program_of_torch_needs_nothing_of_this_library(kind, tmp_path):
    """Read and run in a process that cannot import unem."""
    labeller, query = fitted_and_queries(**KINDS[kind])
    labeller.export(tmp_path / "labeller.pt2")
    asked = list(situations(labeller, query))
    torch.save(asked, tmp_path / "queries.pt")
    program = (
        "import json, sys, torch\nsys.modules['unem'] = None\n"
        f"extra = {{{CLASSES!r}: ''}}\n"
        "program = torch.export.load('labeller.pt2', extra_files=extra).module()\n"
        "answers = [program(query) for query in torch.load('queries.pt', weights_only=True)]\n"
        f"torch.save([json.loads(extra[{CLASSES!r}]), answers], 'answers.pt')"
    )
    environment = {**os.environ, "PYTHONPATH": ""}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=tmp_path)
    names, answers = torch.load(tmp_path / "answers.pt", weights_only=True)
    assert tuple(names) == labeller.classes
    for some, found in zip(asked, answers, strict=True):
        assert_the_same(found, labeller.predict(some))


def test_a_program_of_torch_refuses_more_queries_than_it_is_for(tmp_path):
    labeller, query = fitted_and_queries(classes=3, features=8, text=True, support=False)
    labeller.export(tmp_path / "labeller.pt2")
    program = torch.export.load(tmp_path / "labeller.pt2").module()
    with pytest.raises(AssertionError, match="2048"):
        program(query.repeat(2, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_recorded_is_the_labeller(kind):
    labeller, query = fitted_and_queries(queries=90, **KINDS[kind])
    torch.testing.assert_close(LabellerProgram(labeller)(query), labeller.predict(query).probabilities, rtol=0, atol=0)


@pytest.mark.parametrize("size", [0.0, 0.5])
def test_a_labeller_of_double_precision_is_exported_in_single(size):
    """Rounding makes no difference, to queries of another light neither."""
    made = clusters(1, queries=90, features=64)
    labeller = fit(made.support[0], made.labels[0])
    vector = torch.randn(64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    query = made.query[0] + size * made.query[0].norm(dim=-1).mean() * torch.nn.functional.normalize(vector, dim=0)
    found, answer = LabellerProgram(labeller)(query.float()), labeller.predict(query)
    assert found.dtype == torch.float32
    assert (answer.shift > 0.5) == (size > 0)
    torch.testing.assert_close(found.double(), answer.probabilities, rtol=0, atol=3e-5)


@pytest.mark.parametrize("name", ["labeller", "labeller.pt", "labeller.ONNX", "onnx"])
def test_other_endings_are_refused(name, tmp_path):
    with pytest.raises(unem.InputError, match=r"path: expected a name that ends in \.pt2 or \.onnx, got"):
        fit(torch.eye(2, 8), ["left", "right"]).export(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_refused_before_anything_is_fitted(tmp_path):
    (tmp_path / "labeller.pt2").mkdir()
    with pytest.raises(unem.InputError, match="it is a folder"):
        Labeller((0,), None, None).export(tmp_path / "labeller.pt2")


def test_onnx_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    pytest.importorskip("onnx")
    with pytest.raises(unem.InputError, match="format: onnx needs onnxscript"):
        fit(torch.eye(2, 8), ["left", "right"]).export(tmp_path / "labeller.onnx")
    assert not list(tmp_path.iterdir())
