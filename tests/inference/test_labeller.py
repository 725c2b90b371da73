"""Fitted once, asked often: names and numbers, what is refused, files, and what an answer says of itself."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

import unem
from helpers.clusters import clusters, permuted
from unem.errors import InputError
from unem.evidence import Numbers, fit_tasks, sample_rows
from unem.evidence import fitted as fits
from unem.inference import Labeller, fit
from unem.inference import labeller as module

TREES = ["ash", "birch", "elm", "oak", "yew"]


def some(present=None, **settings):
    return clusters(
        1, 5, **{"shots": 3, "queries": 20, "noise": 1.2, "dtype": torch.float32} | settings, present=present
    )


def named(made):
    return [TREES[k] for k in made.labels[0].tolist()]


def texts_of(made):
    return torch.stack([made.support[0][made.labels[0] == k].mean(0) for k in range(5)])


def labeller_of(made, text=False):
    return fit(made.support[0], named(made), texts_of(made) if text else None)


# -- names and numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["elm", "ash", "elm", "oak"], ("ash", "elm", "oak")),
        ([7, -2, 7, 40], (-2, 7, 40)),
        (np.array([7, 5, 7, 9]), (5, 7, 9)),
        (np.array(["b", "a", "b", "c"]), ("a", "b", "c")),
        (torch.tensor([3, 1, 3, 2]), (1, 2, 3)),
        ([True, False, True, False], (False, True)),
        (("x", "x", "x", "x"), ("x",)),
    ],
)
def test_labels_of_any_kind_name_the_classes(labels, classes):
    labeller = fit(torch.eye(4, 9), labels)
    assert labeller.classes == classes
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    assert [labeller.classes[k] for k in labeller.labels.tolist()] == values
    assert labeller.predict(torch.eye(4, 9)[:1]).labels[0] in classes


def test_names_may_be_in_any_order_and_numbers_stand_for_them():
    order = ["oak", "ash", "elm"]
    by_name = fit(torch.eye(3, 9), ["elm", "oak", "ash"], classes=order)
    by_number = fit(torch.eye(3, 9), [2, 0, 1], classes=order)
    assert by_name.classes == by_number.classes == tuple(order)
    assert torch.equal(by_name.labels, by_number.labels)
    numbers = fit(torch.eye(3, 9), [5, 9, 7], classes=[9, 7, 5])
    assert numbers.labels.tolist() == [2, 0, 1]


def test_names_of_classes_do_not_change_the_answer():
    made = some()
    plain, numbers = labeller_of(made), fit(made.support[0], made.labels[0])
    assert torch.equal(plain.predict(made.query[0]).probabilities, numbers.predict(made.query[0]).probabilities)
    assert [TREES[k] for k in numbers.predict(made.query[0]).labels] == plain.predict(made.query[0]).labels


def test_labels_are_those_of_the_largest_probability():
    made = some()
    answer = labeller_of(made).predict(made.query[0])
    numbers = answer.probabilities.argmax(-1)
    assert torch.equal(answer.class_numbers, numbers)
    assert answer.labels == [TREES[k] for k in numbers.tolist()]
    torch.testing.assert_close(answer.probabilities.sum(-1), torch.ones(20))


def test_rows_may_be_numpy_or_lists_or_whole_numbers():
    made = some(shots=2, queries=3)
    rows, queries = made.support[0], made.query[0]
    expected = fit(rows, named(made)).predict(queries).probabilities
    for kind in (lambda x: x.numpy(), lambda x: x.tolist()):
        torch.testing.assert_close(fit(kind(rows), named(made)).predict(kind(queries)).probabilities, expected)
    whole = fit((10 * rows).round().int().numpy(), named(made))
    assert torch.isfinite(whole.predict((10 * queries).round().int().numpy()).probabilities).all()


def test_queries_have_the_precision_of_the_samples():
    made = some()
    assert labeller_of(made).predict(made.query[0].double()).probabilities.dtype == torch.float32


# -- what is refused ---------------------------------------------------------------------------------------------------

EYE = torch.eye(3, 9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "support, text: both are missing"),
        ({"support": EYE}, "labels: missing"),
        ({"support": EYE, "labels": ["a", "b", "c"], "classes": ["a", "b"]}, "labels: 'c' is no class"),
        ({"support": EYE, "labels": [0, 1, 3], "classes": ["a", "b", "c"]}, "labels: 3 is no class"),
        ({"support": EYE, "labels": ["a", "b", "a"], "classes": ["a", "b", "a"]}, "classes: a name occurs twice"),
        ({"support": EYE, "labels": ["a", "b", "a"], "classes": ["a", "b", "c"]}, "c"),
        ({"support": EYE, "labels": ["a", "b"]}, "support"),
        ({"support": EYE[0], "labels": ["a"]}, "^support"),
        ({"support": torch.full((3, 9), torch.nan), "labels": ["a", "b", "c"]}, "^support"),
        ({"support": torch.full((3, 9), torch.inf), "labels": ["a", "b", "c"]}, "^support"),
        ({"support": [["x", "y"]], "labels": ["a"]}, "support"),
        ({"support": EYE, "labels": ["a", "b", "c"], "text": torch.eye(2, 9)}, "text"),
        ({"support": EYE, "labels": ["a", "b", "c"], "text": torch.eye(3, 8)}, "text"),
        ({"text": torch.eye(3, 9), "classes": ["a", "b"]}, "^text"),
        ({"text": torch.full((3, 9), torch.nan)}, "^text"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_the_argument(arguments, message):
    with pytest.raises(InputError, match=message):
        fit(**arguments)


@pytest.mark.parametrize("labels", [["a", 2, "c"], ["a", None, "c"], [["a"], ["b"], ["c"]], 5])
def test_labels_that_are_no_names_of_one_kind_are_refused(labels):
    with pytest.raises(InputError, match=r"^labels: (?!.* is no class)"):
        fit(EYE, labels)


@pytest.mark.parametrize("text_alone", [False, True])
@pytest.mark.parametrize(
    "query",
    [
        torch.ones(4, 8),
        torch.ones(4, 10),
        torch.ones(0, 9),
        torch.ones(9),
        torch.ones(1, 4, 9),
        torch.full((4, 9), torch.nan),
        torch.full((4, 9), -torch.inf),
        [["a"] * 9],
        None,
    ],
)
def test_queries_that_do_not_fit_are_refused(query, text_alone):
    labeller = fit(text=EYE) if text_alone else fit(EYE, ["a", "b", "c"])
    with pytest.raises(InputError, match="quer"):
        _ = labeller.predict(query).probabilities


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({20: "ash"}, "known: expected rows in 0 … 19, got 20"),
        ({-1: "ash"}, "known: expected rows in 0 … 19, got -1"),
        ({0: "fir"}, "known: 'fir' is no class; the classes are ash, birch"),
        ({0: 2}, "known: 2 is no class"),
    ],
)
def test_known_classes_that_are_none_are_refused(known, message):
    made = some()
    with pytest.raises(InputError, match=message):
        labeller_of(made).predict(made.query[0], known=known)


def test_known_classes_go_with_queries_that_are_answered_together(monkeypatch):
    made = some()
    monkeypatch.setattr(module, "MOST_TOGETHER", 19)
    with pytest.raises(InputError, match="known: goes with at most 19 queries, got 20"):
        labeller_of(made).predict(made.query[0], known={0: "ash"})


# -- known classes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("present", [2, 5])
def test_known_classes_are_kept(present):
    for seed in range(5):
        made = some(present=present, seed=seed)
        wrong = {i: TREES[(made.truth[0, i].item() + 1) % 5] for i in range(4)}
        answer = labeller_of(made).predict(made.query[0], known=wrong)
        assert answer.labels[:4] == list(wrong.values())


def test_known_classes_do_not_depend_on_the_order():
    made, order = some(present=3), permuted(20)
    labeller, known = labeller_of(made), {0: "ash", 3: "elm", 9: "ash"}
    plain = labeller.predict(made.query[0], known=known).probabilities
    places = order.argsort().tolist()
    again = labeller.predict(made.query[0, order], known={places[i]: name for i, name in known.items()}).probabilities
    torch.testing.assert_close(again, plain[order], rtol=0, atol=1e-5)


def test_no_known_classes_are_none():
    made = some()
    labeller = labeller_of(made)
    plain, none = labeller.predict(made.query[0]), labeller.predict(made.query[0], known={})
    assert torch.equal(none.probabilities, plain.probabilities)


# -- what an answer says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [False, True])
def test_an_answer_is_the_methods(text):
    made = some()
    answer = labeller_of(made, text).predict(made.query[0])
    task = unem.Task(made.support[0], made.labels[0], made.query[0], text=texts_of(made) if text else None)
    method = unem.create_method("evidence-joint" if text else "evidence")
    torch.testing.assert_close(answer.probabilities, method.predict(task).probabilities, rtol=0, atol=1e-6)
    if not text:
        alone = unem.create_method("whitened-mean").predict(task).probabilities
        torch.testing.assert_close(answer.independent, alone, rtol=0, atol=1e-6)


def test_texts_alone():
    made = some()
    labeller = fit(text=texts_of(made), classes=TREES)
    assert (labeller.support, labeller.labels) == (None, None)
    answer = labeller.predict(made.query[0])
    task = unem.Task(texts_of(made), torch.arange(5), made.query[0], text=texts_of(made))
    expected = unem.create_method("zero-shot-evidence").predict(task).probabilities
    torch.testing.assert_close(answer.probabilities, expected, rtol=0, atol=1e-6)
    assert answer.labels == [TREES[k] for k in expected.argmax(-1).tolist()]
    torch.testing.assert_close(answer.independent.sum(-1), torch.ones(20))
    assert (answer.mix, answer.held_out, answer.distances, answer.notes) == (None, None, None, ())
    assert (answer.shift, answer.copies) == (0.0, 0)
    assert fit(text=texts_of(made)).classes == (0, 1, 2, 3, 4)


def test_what_an_answer_says_is_of_one_view():
    made = some(present=2, queries=30)
    answer = labeller_of(made).predict(made.query[0])
    assert answer.view is not None
    assert torch.equal(
        answer.probabilities, answer.view.probabilities()[0] / answer.view.probabilities()[0].sum(-1, True)
    )
    assert answer.mix.name in ("few", "uneven", "even", "any", "none")
    assert 0 <= answer.mix.share <= 1 + 1e-6
    assert answer.shift == answer.view.queries.shift.item()
    assert answer.copies == 0
    assert answer.distances.shape == (30,)
    assert 0 <= answer.held_out.jointly <= answer.held_out.samples <= 15
    assert isinstance(answer.notes, tuple)


def test_copies_are_counted_and_said():
    made = some()
    query = torch.cat([made.query[0], made.query[0, :4]])
    answer = labeller_of(made).predict(query)
    assert answer.copies == 4
    assert sum("4 images to label are copies of others and count once" in note for note in answer.notes) == 1
    assert torch.equal(answer.probabilities[20:], answer.probabilities[:4])


def test_of_very_many_queries_some_say_what_there_is_to_say(monkeypatch):
    made = some(queries=60, present=2)
    labeller = labeller_of(made)
    whole = labeller.predict(made.query[0])
    assert whole.view is not None
    for part in (module, fits):
        monkeypatch.setattr(part, "MOST_TOGETHER", 40)
    monkeypatch.setattr(sample_rows, "__defaults__", (40,))
    many = labeller.predict(made.query[0])
    assert (many.view, many.mix) == (None, None)
    assert many.held_out.samples > 0
    assert many.distances.shape == (60,)
    torch.testing.assert_close(many.distances, whole.distances)
    torch.testing.assert_close(many.independent, whole.independent)
    assert (many.class_numbers == whole.class_numbers).float().mean() > 0.9
    order = permuted(60)
    again = labeller.predict(made.query[0, order])
    torch.testing.assert_close(again.probabilities, many.probabilities[order], rtol=0, atol=1e-4)
    assert again.shift == pytest.approx(many.shift, abs=1e-4)


def test_a_labeller_is_fitted_once(monkeypatch):
    made, calls = some(), []
    monkeypatch.setattr(module, "fit_tasks", lambda *given: calls.append(given) or fit_tasks(*given))
    labeller = labeller_of(made)
    for part in made.query[0].split(5):
        answer = labeller.predict(part)
        _ = answer.probabilities, answer.notes, answer.held_out, answer.mix
    assert len(calls) == 1


def test_of_a_task_padding_is_no_sample():
    made = some()
    padded = unem.Task(
        torch.cat([made.support[0], 9 * torch.ones(4, 24)]),
        torch.cat([made.labels[0], torch.full((4,), -1)]),
        made.query[0],
        text=texts_of(made),
    )
    labeller = Labeller.of(padded, TREES)
    assert torch.equal(labeller.support, made.support[0])
    assert labeller.text is None
    texts = torch.nn.functional.normalize(texts_of(made), dim=-1)
    torch.testing.assert_close(Labeller.of(padded, TREES, text=True).text, texts)
    expected = labeller_of(made).predict(made.query[0]).probabilities
    assert torch.equal(labeller.predict(made.query[0]).probabilities, expected)


def test_on_another_device_it_is_the_same():
    made = some()
    labeller = labeller_of(made, text=True)
    moved = labeller.to("cpu")
    assert moved.classes == labeller.classes
    assert torch.equal(moved.predict(made.query[0]).probabilities, labeller.predict(made.query[0]).probabilities)


# -- files -------------------------------------------------------------------------------------------------------------


def saved(folder, kind="samples"):
    made = some()
    labeller = {
        "samples": lambda: labeller_of(made),
        "texts": lambda: fit(text=texts_of(made), classes=TREES),
        "both": lambda: labeller_of(made, text=True),
        "double": lambda: fit(made.support[0].double(), named(made)),
        "numbers": lambda: fit(made.support[0], 3 * made.labels[0]),
        "other numbers": lambda: Labeller(
            tuple(TREES), made.support[0], made.labels[0], None, Numbers(scale=7.25, few=1 / 3)
        ),
    }[kind]()
    labeller.save(folder / "trees.unem")
    return labeller, folder / "trees.unem", made.query[0]


@pytest.mark.parametrize("kind", ["samples", "texts", "both", "double", "numbers", "other numbers"])
def test_what_is_saved_gives_the_same_bits_when_it_is_read(tmp_path, kind):
    labeller, file, query = saved(tmp_path, kind)
    again = Labeller.load(file)
    assert (again.classes, again.settings) == (labeller.classes, labeller.settings)
    for name in ("support", "labels", "text"):
        one, other = getattr(labeller, name), getattr(again, name)
        assert (one is None and other is None) or (torch.equal(one, other) and one.dtype == other.dtype)
    one, other = labeller.predict(query), again.predict(query)
    assert torch.equal(one.probabilities, other.probabilities)
    assert torch.equal(one.independent, other.independent)
    assert one.notes == other.notes


@pytest.mark.parametrize("kind", ["samples", "both"])
def test_another_process_gives_the_same_bits(tmp_path, kind):
    labeller, _, query = saved(tmp_path, kind)
    torch.save(query, tmp_path / "query.pt")
    script = (
        "import sys, torch; from unem.inference import Labeller; torch.set_num_threads(1); folder = sys.argv[1]; "
        "found = Labeller.load(folder + '/trees.unem').predict(torch.load(folder + '/query.pt')); "
        "torch.save((found.probabilities, found.labels), folder + '/found.pt')"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=300)
    probabilities, labels = torch.load(tmp_path / "found.pt")
    assert torch.equal(probabilities, labeller.predict(query).probabilities)
    assert labels == labeller.predict(query).labels


def test_a_file_has_the_same_bytes_each_time_and_replaces_an_older_one(tmp_path):
    labeller, file, _ = saved(tmp_path)
    first = file.read_bytes()
    labeller.save(file)
    assert file.read_bytes() == first
    assert list(tmp_path.iterdir()) == [file]
    with safe_open(file, framework="pt") as stored:
        assert set(stored.keys()) == {"support", "labels"}
        assert stored.metadata()["format"] == module.FORMAT


def read(file):
    """A labeller, or the message of a refusal that names the argument."""
    try:
        return Labeller.load(file)
    except InputError as error:
        assert str(error).partition(":")[0] in {
            "path",
            "support",
            "labels",
            "text",
            "support_labels",
            "num_classes",
        } | {
            "class_names",
            "support, text",
        }, error
        return None


@settings(max_examples=150)
@given(st.data())
def test_bytes_that_were_changed_are_refused_or_read_as_a_labeller(tmp_path_factory, data):
    """Nothing else happens: no other error, no crash."""
    folder = tmp_path_factory.mktemp("changed")
    _, file, query = saved(folder, "both")
    content = bytearray(file.read_bytes())
    length = int.from_bytes(content[:8], "little")
    last = data.draw(st.sampled_from([8, 8 + length, len(content)])) - 1
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, last))] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    labeller = read(file)
    if labeller is not None and labeller.support.shape[1] == query.shape[1]:
        assert len(labeller.classes) == len(labeller.predict(query).probabilities[0])


@given(st.integers(0, 3000))
@example(0)
@example(7)
def test_a_file_that_is_cut_is_refused(tmp_path_factory, length):
    folder = tmp_path_factory.mktemp("cut")
    _, file, _ = saved(folder)
    content = file.read_bytes()
    file.write_bytes(content[: min(length, len(content) - 1)])
    with pytest.raises(InputError, match="path"):
        Labeller.load(file)


class Harmful:
    def __reduce__(self):
        return (open, ("harmed", "w"))


def test_foreign_files_are_refused_and_no_pickle_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickle").write_bytes(pickle.dumps(Harmful()))
    torch.save({"support": EYE, "x": Harmful()}, tmp_path / "torch")
    save_file({"support": EYE}, tmp_path / "foreign")
    save_file({"support": EYE}, tmp_path / "other-format", metadata={"format": "unem-labeller/99", "unem": "{}"})
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("a,b\n1,2\n")
    (tmp_path / "folder").mkdir()
    for name in ("pickle", "torch", "foreign", "other-format", "empty", "text", "folder", "absent"):
        with pytest.raises(InputError, match="path"):
            Labeller.load(tmp_path / name)
    assert not (tmp_path / "harmed").exists()


def written(folder, header=None, **tensors):
    made = some()
    tensors = {"support": made.support[0], "labels": made.labels[0]} | tensors
    header = {"classes": TREES, "numbers": {}} if header is None else header
    save_file(
        {name: value for name, value in tensors.items() if value is not None},
        folder / "made.unem",
        metadata={"format": module.FORMAT, "unem": header if isinstance(header, str) else json.dumps(header)},
    )
    return folder / "made.unem"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "labels"),
        ({"labels": torch.full((15,), 7)}, "labels"),
        ({"labels": torch.full((15,), -1)}, "labels|class"),
        ({"labels": torch.zeros(15)}, "labels"),
        ({"labels": None}, "labels"),
        ({"support": torch.zeros(15)}, "^support"),
        ({"support": torch.zeros(15, 24, 2)}, "support"),
        ({"support": torch.full((15, 24), torch.nan)}, "^support"),
        ({"support": None}, "support"),
        ({"text": torch.zeros(4, 24)}, "text"),
        ({"text": torch.zeros(5, 23)}, "text"),
        ({"header": "no json"}, "path"),
        ({"header": {}}, "path"),
        ({"header": []}, "path"),
        ({"header": {"classes": 5, "numbers": {}}}, "path"),
        ({"header": {"classes": TREES, "numbers": 3}}, "path"),
        ({"header": {"classes": TREES, "numbers": {"scale": "much"}}}, "path"),
        ({"header": {"classes": TREES[:4], "numbers": {}}}, "labels|class"),
    ],
)
def test_files_whose_parts_do_not_fit_are_refused_with_the_argument(tmp_path, changed, named):
    with pytest.raises(InputError, match=named):
        Labeller.load(written(tmp_path, **changed))


def test_numbers_that_are_not_in_a_file_are_the_librarys_and_unknown_ones_are_left(tmp_path):
    file = written(tmp_path, {"classes": TREES, "numbers": {"scale": 7, "of a later version": 1}})
    assert Labeller.load(file).settings == Numbers(scale=7.0)


def test_a_folder_is_made_for_a_file(tmp_path):
    labeller, _, query = saved(tmp_path)
    labeller.save(tmp_path / "new" / "folder" / "trees.unem")
    again = Labeller.load(tmp_path / "new" / "folder" / "trees.unem")
    assert torch.equal(again.predict(query).probabilities, labeller.predict(query).probabilities)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"classes": ["ash"] * 5, "numbers": {}}, "^classes: a name occurs twice"),
        ({"classes": TREES, "numbers": {"scale": float("nan")}}, r"^path: .* \(a number is not finite\)$"),
    ],
)
def test_names_that_occur_twice_and_numbers_that_are_none_are_refused(tmp_path, header, message):
    with pytest.raises(InputError, match=message):
        Labeller.load(written(tmp_path, header))
