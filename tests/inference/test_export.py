"""Programs of torch and ONNX say what the library says."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import one_hot

import unem
from helpers.schedules import DIRICHLET, GAUSSIAN, drawn
from unem.inference import Program, export_onnx, export_torch

CAPPED = "ignore:some classes are more concentrated:unem.errors.UnemWarning"
SIZES = [(12, 4, 9, 6), (40, 7, 33, 3), (6, 2, 2, 11), (9, 9, 50, 5)]


def said(schedule, support, labels, query, classes):
    law = unem.Gaussian() if schedule.law == "gaussian" else unem.Dirichlet()
    return unem.gem(unem.Task(support, labels, query, num_classes=classes), law, schedule).probabilities


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    export_torch(GAUSSIAN, folder / "gaussian.pt2")
    export_torch(DIRICHLET, folder / "dirichlet.pt2")
    export_onnx(GAUSSIAN, folder / "gaussian.onnx")
    return folder


@pytest.mark.filterwarnings(CAPPED)
@pytest.mark.parametrize("schedule", [GAUSSIAN, DIRICHLET], ids=lambda s: s.law)
def test_a_program_of_torch_says_what_the_library_says_for_any_size(files, schedule):
    program = torch.export.load(files / f"{schedule.law}.pt2").module()
    for samples, classes, queries, features in SIZES:
        support, labels, query = drawn(schedule.law, samples, classes, queries, features)
        found = program(support, one_hot(labels, classes).float(), query)
        expected = said(schedule, support, labels, query, classes)
        torch.testing.assert_close(found, expected, atol=2e-4, rtol=0)
    assert float(1 - expected.amax(-1).mean()) > 0.02  # soft enough to tell schedules apart


def test_onnx_says_what_the_library_says_for_any_size(files):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(files / "gaussian.onnx"), providers=["CPUExecutionProvider"])
    for samples, classes, queries, features in SIZES:
        support, labels, query = drawn("gaussian", samples, classes, queries, features)
        feed = {"support": support, "support_classes": one_hot(labels, classes).float(), "query": query}
        (found,) = session.run(["probabilities"], {name: value.numpy() for name, value in feed.items()})
        np.testing.assert_allclose(found, said(GAUSSIAN, support, labels, query, classes).numpy(), atol=1e-5)
    stored = session.get_modelmeta().custom_metadata_map["schedule.json"]
    assert unem.Schedule.from_dict(json.loads(stored)) == GAUSSIAN


def test_a_program_of_torch_needs_nothing_of_this_library(files, tmp_path):
    """Read and run in a process that cannot import unem."""
    support, labels, query = drawn("gaussian")
    torch.save([support, one_hot(labels, 4).float(), query], tmp_path / "inputs.pt")
    program = (
        "import sys, torch\nsys.modules['unem'] = None\n"
        f"inputs = torch.load({str(tmp_path / 'inputs.pt')!r}, weights_only=True)\n"
        f"extra, file = {{'schedule.json': ''}}, {str(files / 'gaussian.pt2')!r}\n"
        "program = torch.export.load(file, extra_files=extra)\n"
        "assert 'class_balance' in extra['schedule.json']\n"
        f"torch.save(program.module()(*inputs), {str(tmp_path / 'out.pt')!r})"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": ""})
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    torch.testing.assert_close(found, said(GAUSSIAN, support, labels, query, 4), atol=1e-5, rtol=0)


@pytest.mark.filterwarnings(CAPPED)
@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([GAUSSIAN, DIRICHLET]), st.integers(2, 8), st.integers(1, 4), st.integers(1, 20), st.integers(0, 99)
)
def test_what_is_recorded_is_the_loop(schedule, classes, shots, queries, seed):
    support, labels, query = drawn(schedule.law, shots * classes, classes, queries, seed=seed)
    support, query = support.double(), query.double()
    found = Program(schedule)(support, one_hot(labels, classes).double(), query)
    torch.testing.assert_close(found, said(schedule, support, labels, query, classes), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("learned", "message"),
    [
        (unem.load_schedule("unem-plus/resnet18"), "this is a family"),
        (unem.Schedule(), "this one is for None"),
        (DIRICHLET, "ONNX is for the gaussian law"),
        ("text", "learned: expected a schedule"),
    ],
)
def test_what_has_no_program_is_refused_before_anything_is_written(learned, message, tmp_path):
    with pytest.raises(unem.InputError, match=message):
        export_onnx(learned, tmp_path / "a.onnx") if learned is DIRICHLET else export_torch(learned, tmp_path / "a.pt2")
    assert not list(tmp_path.iterdir())
