"""Programs of torch and ONNX say what the library says; folders come back as they were written."""

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
from unem.inference.export import (
    Program,
    export_onnx,
    export_torch,
    from_pretrained,
    load_any,
    push_to_hub,
    save_pretrained,
)

GAUSSIAN = unem.Schedule((0.4, 1.5, 0.8), (2.0, 1.5, 1.2), 1.3, law="gaussian")
DIRICHLET = unem.Schedule((0.3, 0.9), (3.0, 2.0), 20.0, law="dirichlet")
CAPPED = "ignore:some classes are more concentrated:unem.UnemWarning"


def drawn(law, samples=12, classes=4, queries=9, features=6, seed=0):
    """A task whose answer is neither sure nor even."""
    g = torch.Generator().manual_seed(seed)
    features = classes if law == "dirichlet" else features
    labels = torch.arange(samples) % classes
    centres = torch.randn(classes, features, generator=g)
    support, query = (
        centres[which] + torch.randn(len(which), features, generator=g)
        for which in (labels, torch.randint(classes, (queries,), generator=g))
    )
    if law == "dirichlet":  # like cosines
        support, query = 0.2 + 0.05 * support, 0.2 + 0.05 * query
    return support, labels, query


def said(schedule, support, labels, query, classes):
    law = unem.Gaussian() if schedule.law == "gaussian" else unem.Dirichlet()
    return unem.gem(unem.Task(support, labels, query, num_classes=classes), law, schedule).probabilities


SIZES = [(12, 4, 9, 6), (40, 7, 33, 3), (6, 2, 2, 11), (9, 9, 50, 5)]


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
        f"extra = {{'schedule.json': ''}}\nprogram = torch.export.load({str(files / 'gaussian.pt2')!r}, extra_files=extra)\n"
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
        (unem.load_family("unem-plus/resnet18"), "this is a family"),
        (unem.Schedule(), "this one is for None"),
        (DIRICHLET, "ONNX is for the gaussian law"),
        ("text", "learned: expected a schedule"),
    ],
)
def test_what_has_no_program_is_refused_before_anything_is_written(learned, message, tmp_path):
    with pytest.raises(unem.InputError, match=message):
        export_onnx(learned, tmp_path / "a.onnx") if learned is DIRICHLET else export_torch(learned, tmp_path / "a.pt2")
    assert not list(tmp_path.iterdir())


# -- folders --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [*unem.list_presets("*unem-joint/*"), "unem-plus/resnet18", "unem-dirichlet/dtd/clip-rn50/4-shot"]
)
def test_a_folder_comes_back_as_it_was(name, tmp_path):
    learned = load_any(name)
    method = from_pretrained(save_pretrained(learned, tmp_path / "model", results={"DTD": "74.0 ± 0.8 %"}))
    again = load_any(tmp_path / "model")
    assert again == learned
    assert again.provenance == learned.provenance
    assert method.name == name.partition("/")[0]
    card = (tmp_path / "model" / "README.md").read_text()
    assert "DTD: 74.0 ± 0.8 %" in card
    assert str(learned.provenance.get("trained_on") or learned.provenance["dataset"]) in card


def test_methods_can_be_saved_and_say_the_same(tmp_path):
    method = unem.create("unem-plus")
    model = unem.UNEM(unem.Gaussian(), GAUSSIAN, learn=("class_balance",))
    support, labels, query = drawn("gaussian")
    task = unem.Task(support, labels, query)
    for i, one in enumerate((method, model)):
        again = from_pretrained(save_pretrained(one, tmp_path / str(i)))
        torch.testing.assert_close(
            again.predict(task).probabilities, one.predict(task).probabilities, atol=1e-6, rtol=0
        )


def test_the_card_is_one_that_the_hub_reads(tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    save_pretrained(load_any("unem-joint/clip"), tmp_path, name="Two\nlines", license="cc-by-4.0")
    text = (tmp_path / "README.md").read_text()
    card = hub.ModelCard(text)
    assert (card.data.library_name, card.data.license) == ("unem", "cc-by-4.0")
    assert "few-shot" in card.data.tags
    assert "# Two lines" in card.content
    assert "text=text" in text
    assert "3 to 300 queries" in text


def test_the_card_s_code_runs(tmp_path):
    save_pretrained(GAUSSIAN, tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0].replace("path/or/owner/name", str(tmp_path / "model"))
    support, labels, query = drawn("gaussian")
    exec(compile(code, "card", "exec"), {"support": support, "support_labels": labels, "query": query})


def test_settings_go_to_the_method(tmp_path):
    save_pretrained(load_any("unem-plus/resnet18"), tmp_path)
    assert from_pretrained(tmp_path, effective_classes=3).effective_classes == 3


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "does not exist"),
        ({"config.json": "{"}, "is not JSON"),
        ({"config.json": "[]"}, "holds no model of this library"),
        ({"config.json": '{"library_name": "timm"}'}, "holds no model of this library"),
        ({"config.json": '{"library_name": "unem", "method": "unem-plus"}', "schedule.json": "{}"}, "not a schedule"),
    ],
)
def test_folders_that_are_no_models_are_named(files, message, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(unem.InputError, match=message):
        from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "../up", "a/b/c", "/"])
def test_neither_a_folder_nor_a_repository(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(unem.InputError, match=r"neither a folder nor the name|does not exist"):
        from_pretrained(name)


def test_the_hub_is_asked_for_two_files_and_given_three(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    save_pretrained(GAUSSIAN, tmp_path)
    asked = []

    def download(repo, file, revision=None):
        asked.append((repo, file, revision))
        return str(tmp_path / file)

    class Api:
        def create_repo(self, repo, **more):
            asked.append(("create", repo))

        def upload_folder(self, repo_id, folder_path, **more):
            asked.append(("upload", sorted(os.listdir(folder_path))))
            return "https://example.org"

    monkeypatch.setattr(hub, "hf_hub_download", download)
    monkeypatch.setattr(hub, "HfApi", Api)
    assert from_pretrained("owner/name", revision="v1").name == "unem-gaussian"
    assert push_to_hub(GAUSSIAN, "owner/name") == "https://example.org"
    assert asked == [
        ("owner/name", "config.json", "v1"),
        ("owner/name", "schedule.json", "v1"),
        ("create", "owner/name"),
        ("upload", ["README.md", "config.json", "schedule.json"]),
    ]


def test_without_the_hub_s_package_folders_still_work(tmp_path, monkeypatch):
    save_pretrained(GAUSSIAN, tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert from_pretrained(tmp_path).name == "unem-gaussian"
    with pytest.raises(unem.InputError, match="pip install huggingface_hub"):
        from_pretrained("owner/name")


# -- the command ----------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path):
    from typer.testing import CliRunner

    from unem.cli import app

    runner = CliRunner()
    GAUSSIAN.save(tmp_path / "schedule.json")
    source = str(tmp_path / "schedule.json")
    done = runner.invoke(app, ["export", source, "-o", str(tmp_path / "a.pt2")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.pt2").stat().st_size > 1000
    done = runner.invoke(app, ["export", "unem-plus/resnet18", "--format", "folder", "-o", str(tmp_path / "model")])
    assert done.exit_code == 0, done.output
    assert from_pretrained(tmp_path / "model").name == "unem-plus"
    assert runner.invoke(app, ["export", source, "--format", "coreml"]).exit_code == 2
    assert runner.invoke(app, ["export", str(tmp_path / "none.json")]).exit_code == 2
