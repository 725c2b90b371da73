"""The default methods: what they gain, where they are the independent answer, uneven supports, and certainty."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import SelfTrainingClassifier

import unem
from helpers.clusters import Clusters, clusters
from unem.evidence import MOST_TOGETHER, fit_tasks, sample_rows
from unem.evidence import fitted as fits

METHODS = ["whitened-mean", "evidence"]


def accuracy(name: str, made: Clusters, task: unem.Task | None = None) -> float:
    task = made.task if task is None else task
    return made.accuracy(unem.create_method(name).predict(task).labels)


def texts(made: Clusters, noise: float) -> torch.Tensor:
    """Of the first task: the mean of all that is known of a class, and noise."""
    g = torch.Generator().manual_seed(3)
    rows, of = torch.cat([made.support[0], made.query[0]]), torch.cat([made.labels[0], made.truth[0]])
    means = torch.stack([rows[of == k].mean(0) for k in range(made.classes)])
    return means + noise * torch.randn(means.shape, generator=g, dtype=means.dtype)


# -- what joint classification gains -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize("present", [1, 2, 3])
def test_few_classes_present_are_found_out(present, shots):
    made = clusters(20, 8, shots, 60, present=present, noise=1.7)
    assert accuracy("evidence", made) > accuracy("whitened-mean", made) + 0.05


def test_one_heavy_class_beside_others_is_found_out():
    made = clusters(20, 8, 5, truth=torch.tensor([0] * 49 + list(range(1, 8)) * 3), noise=1.7)
    assert accuracy("evidence", made) > accuracy("whitened-mean", made) + 0.03


def test_of_tasks_with_very_many_queries_each_is_answered_by_its_own():
    made, method = (
        clusters(2, 4, 3, MOST_TOGETHER + 50, features=16, dtype=torch.float32),
        unem.create_method("evidence"),
    )
    found = method.predict(made.task).probabilities
    for i in range(2):
        torch.testing.assert_close(found[i : i + 1], method.predict(made.task[i : i + 1]).probabilities)


@pytest.mark.parametrize("shots", [1, 5])
def test_with_all_classes_present_nothing_is_lost(shots):
    made = clusters(20, 8, shots, 80)
    assert accuracy("evidence", made) > accuracy("whitened-mean", made) - 0.01


def test_one_query_is_nearly_the_independent_answer():
    made = clusters(40, 8, 5, 1)
    joint, alone = (unem.create_method(name).predict(made.task) for name in ("evidence", "whitened-mean"))
    assert (joint.labels == alone.labels).double().mean() > 0.95


def test_the_independent_answer_is_that_of_each_query():
    made = clusters(3, 5, 4, 20)
    method = unem.create_method("whitened-mean")
    whole = method.predict(made.task).probabilities
    for n in (0, 7):
        alone = unem.Task(made.support, made.labels, made.query[:, n : n + 1], num_classes=5)
        torch.testing.assert_close(method.predict(alone).probabilities[:, 0], whole[:, n])


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_views_of_one_fit(name):
    made = clusters(3, 5, 4, 20)
    fitted = fit_tasks(made.support, made.member)
    answer = fitted.predict(made.query) if name == "evidence" else fitted.independent(made.query).softmax(-1)
    torch.testing.assert_close(unem.create_method(name).predict(made.task).probabilities, answer)


# -- certainty ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shots", [2, 5])
@pytest.mark.parametrize("name", METHODS)
def test_sure_answers_are_right_as_often_as_said(name, shots):
    made = clusters(60, 8, shots, 40)
    p = unem.create_method(name).predict(made.task).probabilities
    sure = p.amax(-1) >= 0.9
    assert sure.double().mean() > 0.05
    right = (p.argmax(-1) == made.truth)[sure].double().mean()
    assert 0.85 < right < 1.0


def test_where_nothing_can_be_held_out_it_is_said():
    made = clusters(4, 8, 1, 60, noise=0.3, present=2)
    assert unem.create_method("evidence").predict(made.task).probabilities.amax() < 1
    assert not fit_tasks(made.support, made.member).likelihood.calibration.known.any()
    assert "not calibrated" in unem.choose(made.task[0:1]).notes[0]


@pytest.mark.parametrize(
    ("shots", "missing"),
    [
        ((1, 1, 1), 2),
        ((5, 1, 1), 1),
        ((2, 2, 1), 0),
        ((20, 1), 1),
        ((2, 2), 0),
        ((2, 2, 1, 1), 0),
        ((9, 9, 1, 1, 1), 1),
    ],
)
def test_it_takes_a_second_label_of_half_of_the_classes(shots, missing):
    made = clusters(1, len(shots), shots, 9)
    assert fit_tasks(made.support, made.member).likelihood.calibration.known.item() is (missing == 0)
    notes = [note for note in unem.choose(made.task).notes if "not calibrated" in note]
    assert len(notes) == (missing > 0)
    if missing:
        assert f"a second labelled sample of {missing} more class" in notes[0]


# -- uneven supports ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [2, 3, 5, 10])
@pytest.mark.parametrize("name", METHODS)
def test_a_class_with_a_single_label_swallows_no_other(name, others):
    """Its only row has length one, and is no nearer to the others' queries than its variance says."""
    for seed in range(5):
        made = clusters(
            1, 10, [1] + [others] * 9, truth=torch.arange(200) % 10, features=100, noise=1 / 0.45, seed=seed
        )
        answer, rest = unem.create_method(name).predict(made.task).labels, made.truth > 0
        right, taken = (answer == made.truth)[rest].double().mean(), (answer[rest] == 0).double().mean()
        assert taken < 0.1, f"{100 * taken:.0f} % of the others' queries taken, seed {seed}"
        assert right > 0.5, f"{100 * right:.0f} % right, seed {seed}"


@pytest.mark.parametrize("many", [5, 20])
@pytest.mark.parametrize("name", METHODS)
def test_of_two_classes_the_one_with_most_labels_keeps_its_queries(name, many):
    """The support's mean would lie within it, and half of its queries on the other side."""
    truth, shares = torch.arange(80) // 40, []
    for seed in range(6):
        made = clusters(1, 2, [many, 1], truth=truth, features=100, noise=1 / 0.7, seed=seed)
        answer = unem.create_method(name).predict(made.task).labels[0]
        shares.append([(answer[truth == k] == k).float().mean() for k in (0, 1)])
    first, second = torch.tensor(shares).mean(0)
    assert first > 0.9
    assert second > 0.85


def test_shots_of_others_in_the_batch_do_not_matter():
    """A batch of tasks is padded to the largest."""
    parts = [clusters(1, 8, shots, 60, seed=shots, dtype=torch.float32).task for shots in (1, 2, 3, 7)]
    together = unem.create_method("evidence").predict(unem.Task.stack(parts)).probabilities
    for i, task in enumerate(parts):
        alone = unem.create_method("evidence").predict(task).probabilities
        torch.testing.assert_close(together[i : i + 1], alone, rtol=0, atol=1e-4)


# -- very many queries -------------------------------------------------------------------------------------------------


def test_very_many_queries_in_parts_and_together(monkeypatch):
    made = clusters(1, 8, 5, 600, present=3)
    whole = unem.create_method("evidence").predict(made.task)
    monkeypatch.setattr(fits, "MOST_TOGETHER", 300)
    monkeypatch.setattr(sample_rows, "__defaults__", (300,))
    some = unem.create_method("evidence").predict(made.task)
    assert (some.labels == whole.labels).double().mean() > 0.97
    assert made.accuracy(some.labels) > made.accuracy(whole.labels) - 0.01


def test_parts_on_several_machines_are_answered_as_one():
    """A sample settles, all parts are counted, and each is answered."""
    made = clusters(1, 6, 5, 300, present=3)
    method, query = unem.create_method("evidence"), made.query[0]
    sample = unem.Task(made.support[0], made.labels[0], query[sample_rows(query, 150)], num_classes=6)
    settled = method.settle(sample, 300)
    settled = settled.counted(sum(settled.count(part) for part in query.split(80)))
    answer = torch.cat([settled.answer(part) for part in query.split(80)])
    assert (answer.argmax(-1) == method.predict(made.task).labels[0]).double().mean() > 0.97
    torch.testing.assert_close(settled.answer(query), answer)


# -- texts -------------------------------------------------------------------------------------------------------------


def test_texts_join_and_stand_alone():
    made = clusters(1, 8, 2, 90, noise=1.6, features=64, present=3)
    task = unem.Task(made.support, made.labels, made.query, num_classes=8, text=texts(made, 0.5))
    assert accuracy("evidence-joint", made, task) > accuracy("evidence", made) + 0.01
    assert accuracy("zero-shot-evidence", made, task) > 0.5


def test_texts_that_say_nothing_cost_little():
    made = clusters(1, 8, 5, 90, features=64)
    task = unem.Task(made.support, made.labels, made.query, num_classes=8, text=texts(made, 50.0))
    assert accuracy("evidence-joint", made, task) > accuracy("evidence", made) - 0.06


@pytest.mark.parametrize("name", ["evidence-joint", "unem-joint", "zero-shot-evidence"])
def test_methods_for_texts_say_that_there_are_none(name):
    with pytest.raises(unem.InputError, match=r"text: .* texts of the classes, the task has none"):
        unem.create_method(name).predict(clusters().task)


def test_zero_shot_has_the_scale_that_it_is_told():
    made = clusters(1, 8, 5, 40)
    task = unem.Task(made.support, made.labels, made.query, num_classes=8, text=texts(made, 0.5))
    doubtful, sure = (
        unem.create_method("zero-shot-evidence", scale=scale).predict(task).probabilities.amax(-1).mean()
        for scale in (1.0, 100.0)
    )
    assert doubtful < sure


# -- anything ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("queries", [1, 5])
def test_a_single_class_is_certain(name, queries):
    made = clusters(2, 1, 3, queries)
    probabilities = unem.create_method(name).predict(made.task).probabilities
    assert torch.equal(probabilities, torch.ones(2, queries, 1, dtype=torch.float64))


def test_no_gradient_is_kept():
    made = clusters(1, 3, 3, 4)
    task = unem.Task(made.support.requires_grad_(), made.labels, made.query, num_classes=3)
    assert not unem.create_method("evidence").predict(task).probabilities.requires_grad


def test_self_training_is_scikit_learns():
    made = clusters(2, 8, 5, 60)
    ours = unem.create_method("self-training").predict(made.task).probabilities
    for i in range(2):
        rows = torch.cat([made.support[i], made.query[i]])
        rows = ((rows - rows.mean(0)) / rows.std(0, correction=0)).numpy()
        labels = torch.cat([made.labels[i], torch.full((60,), -1)]).numpy()
        model = SelfTrainingClassifier(LogisticRegression(max_iter=5000, tol=1e-9), threshold=0.75).fit(rows, labels)
        torch.testing.assert_close(ours[i], torch.as_tensor(model.predict_proba(rows[40:])), rtol=0, atol=1e-6)
