"""Folders come back as they were written."""

from __future__ import annotations

import os
import sys

import pytest
import torch

import unem
from helpers.hub_server import hub, run_against
from helpers.schedules import GAUSSIAN, drawn
from unem.inference import from_pretrained, push_to_hub, save_pretrained


@pytest.mark.parametrize(
    "name", [*unem.list_presets("*unem-joint/*"), "unem-plus/resnet18", "unem-dirichlet/dtd/clip-rn50/4-shot"]
)
def test_a_folder_comes_back_as_it_was(name, tmp_path):
    learned = unem.load_schedule(name)
    method = from_pretrained(save_pretrained(learned, tmp_path / "model", results={"DTD": "74.0 ± 0.8 %"}))
    again = unem.load_schedule(tmp_path / "model" / "schedule.json")
    assert again == learned
    assert again.provenance == learned.provenance
    assert method.name == name.partition("/")[0]
    card = (tmp_path / "model" / "README.md").read_text()
    assert "DTD: 74.0 ± 0.8 %" in card
    assert str(learned.provenance.get("trained_on") or learned.provenance["dataset"]) in card


def test_methods_can_be_saved_and_say_the_same(tmp_path):
    method = unem.create_method("unem-plus")
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
    save_pretrained(unem.load_schedule("unem-joint/clip"), tmp_path, name="Two\nlines", license="cc-by-4.0")
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
    save_pretrained(unem.load_schedule("unem-plus/resnet18"), tmp_path)
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


@pytest.mark.parametrize("learned", ["text", None, unem.create_method("baseline")])
def test_what_has_learned_nothing_is_refused(learned, tmp_path):
    with pytest.raises(unem.InputError, match="learned: expected a schedule"):
        save_pretrained(learned, tmp_path)
    with pytest.raises(unem.InputError, match="schedule: it names no law"):
        save_pretrained(unem.Schedule(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_model_from_a_hub_goes_on_in_the_middle_of_a_file(tmp_path):
    """Against a server that speaks the Hub's HTTP, and whose connection breaks once in each 11 MB."""
    pytest.importorskip("huggingface_hub")
    save_pretrained(unem.Schedule(law="gaussian", provenance={"notes": "x" * (25 << 20)}), tmp_path / "model")
    files = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}
    program = "import unem.inference as i; print(i.from_pretrained('some/model').schedule.law)"
    with hub(files) as server:
        server.breaks["schedule.json"] = 11 << 20
        done = run_against(server, tmp_path / "cache", "-c", program)
    assert done.stdout == "gaussian\n", done.stderr
    starts = [start for name, start in server.sent if name == "schedule.json"]
    assert starts == [0, 10 << 20, 20 << 20]  # the client keeps pieces of 10 MB
