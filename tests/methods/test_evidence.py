"""Evidence on whitened directions: what it gains, where it is the independent answer, and what must not matter."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import SelfTrainingClassifier

import unem
from unem.methods import evidence
from unem.methods.evidence import UNKNOWN_DOUBT, fit_likelihood


def blobs(tasks=3, classes=8, shots=5, queries=60, present=None, features=24, spread=1.1, seed=0, dtype=torch.float32):
    """Clusters that overlap, queries of some of the classes."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(tasks, classes, features, generator=g, dtype=dtype)
    labels = torch.arange(classes).repeat_interleave(shots).expand(tasks, -1)
    truth = torch.randint(present or classes, (tasks, queries), generator=g)

    def samples(y):
        own = torch.stack([c[k] for c, k in zip(centres, y, strict=True)])
        return own + spread * torch.randn(own.shape, generator=g, dtype=dtype)

    return unem.Task(samples(labels), labels, samples(truth), num_classes=classes), truth


def accuracy(name, task, truth, **settings):
    return float((unem.create_method(name, **settings).predict(task).labels == truth).float().mean())


def test_few_classes_present_are_found_out():
    task, truth = blobs(tasks=10, present=2, spread=1.7)
    assert accuracy("evidence", task, truth) > accuracy("whitened-mean", task, truth) + 0.05


def test_with_all_classes_present_little_changes():
    task, truth = blobs(tasks=10, queries=80)
    assert accuracy("evidence", task, truth) > accuracy("whitened-mean", task, truth) - 0.01


@pytest.mark.parametrize("moves", [0, 1])
def test_one_query_is_nearly_the_independent_answer(moves):
    task, _ = blobs(tasks=8, queries=1)
    ours = unem.create_method("evidence", moves=moves).predict(task)
    assert torch.equal(ours.labels, unem.create_method("whitened-mean").predict(task).labels)


def test_probabilities_of_the_independent_answer_are_calibrated():
    task, truth = blobs(tasks=60, queries=40)
    p = unem.create_method("whitened-mean").predict(task).probabilities
    sure = p.amax(-1) >= 0.9
    right = (p.argmax(-1) == truth)[sure].float().mean()
    assert 0.85 < right < 1.0


def test_very_many_queries_are_whitened_in_parts(monkeypatch):
    task, _ = blobs(tasks=2, queries=50)
    whole = unem.create_method("evidence").predict(task).probabilities
    monkeypatch.setattr(evidence, "QUERY_BYTES", 1 << 14)
    torch.testing.assert_close(unem.create_method("evidence").predict(task).probabilities, whole, rtol=0, atol=1e-4)


def test_shots_of_others_in_the_batch_do_not_matter():
    parts = [blobs(tasks=1, shots=shots, seed=shots)[0] for shots in (1, 2, 3, 7)]
    together = unem.create_method("evidence").predict(unem.Task.stack(parts)).probabilities
    for i, task in enumerate(parts):
        alone = unem.create_method("evidence").predict(task).probabilities
        torch.testing.assert_close(together[i : i + 1], alone, rtol=0, atol=1e-4)


def test_without_enough_shots_nothing_is_calibrated():
    assert not fit_likelihood(blobs(shots=2)[0]).calibrated.any()
    assert fit_likelihood(blobs(shots=3)[0]).calibrated.all()


def test_clear_classes_overlap_less():
    clear, vague = (fit_likelihood(blobs(spread=s, tasks=5)[0]).overlap.mean() for s in (0.3, 1.5))
    assert clear < vague


def test_texts_join_and_stand_alone():
    """Texts that point at their classes in features that are mostly noise."""
    task, truth = blobs(tasks=6, spread=1.0, present=3, features=64)
    text = torch.nn.functional.normalize(torch.eye(8, 64), dim=-1)
    support, query = (x + 3 * text[y] for x, y in ((task.support, task.support_labels), (task.query, truth)))
    plain = unem.Task(0.2 * task.support + support, task.support_labels, query, num_classes=8)
    joint = unem.Task(plain.support, plain.support_labels, plain.query, num_classes=8, text=text)
    assert accuracy("evidence-joint", joint, truth) > accuracy("evidence", plain, truth) - 0.02
    assert accuracy("zero-shot-evidence", joint, truth) > 0.5
    assert fit_likelihood(joint, joint.text).text_weight is not None


def test_text_that_is_missing():
    with pytest.raises(unem.InputError, match="text: zero-shot-evidence needs texts"):
        unem.create_method("zero-shot-evidence").predict(blobs()[0])


def test_self_training_is_scikit_learns():
    task, _ = blobs(tasks=2, dtype=torch.float64)
    ours = unem.create_method("self-training").predict(task).probabilities
    for i in range(2):
        rows = torch.cat([task.support[i], task.query[i]])
        rows = ((rows - rows.mean(0)) / rows.std(0, correction=0)).numpy()
        labels = torch.cat([task.support_labels[i], torch.full((60,), -1)]).numpy()
        model = SelfTrainingClassifier(LogisticRegression(max_iter=5000, tol=1e-9), threshold=0.75).fit(rows, labels)
        torch.testing.assert_close(ours[i], torch.as_tensor(model.predict_proba(rows[40:])), rtol=0, atol=1e-6)


def test_where_nothing_can_be_held_out_no_answer_is_sure():
    task, _ = blobs(tasks=4, shots=1, spread=0.3, present=2)
    assert unem.create_method("evidence").predict(task).probabilities.amax() < 1
    assert fit_likelihood(task).doubt.min() >= UNKNOWN_DOUBT - 1e-6
    assert fit_likelihood(blobs()[0]).doubt.max() < UNKNOWN_DOUBT
    choice = unem.choose(task[0:1])
    assert "not calibrated" in choice.notes[0]
