"""Families as programs: what they say is what the method says."""

from __future__ import annotations

import pytest
import torch

import unem
from helpers.families import some_family
from unem.inference import FamilyProgram, export_family

SIZES = {"classes": 4, "shots": 2, "queries": 9, "features": 6}


def drawn(seed=0, shots=2):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(4 * shots, 6, generator=g), torch.randn(9, 6, generator=g)


def said(method, support, query):
    labels = torch.arange(4).repeat_interleave(len(support) // 4)
    return method.predict(unem.Task(support, labels, query)).probabilities


@pytest.mark.parametrize("shots", [1, 2, 5])
def test_a_program_of_torch_with_the_gate_in_it(shots, tmp_path):
    method = unem.create_method("unem-plus", schedule=some_family(layers=2)[1])
    export_family(method, tmp_path / "family.pt2", **SIZES | {"shots": shots})
    program = torch.export.load(tmp_path / "family.pt2").module()
    for seed in range(2):
        given = drawn(seed, shots)
        torch.testing.assert_close(program(*given), said(method, *given), rtol=0, atol=1e-5)


def test_a_program_of_onnx_with_the_number_of_classes_given(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    family = some_family(unem.Directions(views=("unit", "root")), layers=2)[1]
    method = unem.create_method("unem-plus", schedule=family, effective_classes=2)
    export_family(method, tmp_path / "family.onnx", **SIZES)
    session = onnxruntime.InferenceSession(tmp_path / "family.onnx")
    support, query = drawn(3)
    (found,) = session.run(None, {"support": support.numpy(), "query": query.numpy()})
    torch.testing.assert_close(torch.tensor(found), said(method, support, query), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("learned", "path", "message"),
    [
        (unem.Schedule(law="gaussian"), "a.pt2", "learned: expected a family"),
        (unem.load_schedule("unem-joint/clip"), "a.pt2", "law without texts"),
        (some_family(unem.Directions(views=("unit", "white")))[1], "a.onnx", "whitened views need"),
        (unem.load_schedule("unem-plus/resnet18"), "a.pt", r"path: expected a name that ends in \.pt2 or \.onnx"),
    ],
)
def test_what_has_no_program_is_refused(learned, path, message, tmp_path):
    with pytest.raises(unem.InputError, match=message):
        export_family(learned, tmp_path / path, **SIZES)
    assert not list(tmp_path.iterdir())


def test_the_module_says_what_the_method_says():
    method = unem.create_method("unem-plus")
    torch.testing.assert_close(FamilyProgram(method, 4)(*drawn()), said(method, *drawn()), rtol=0, atol=1e-5)
