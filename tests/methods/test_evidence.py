"""Evidence on whitened directions: what it gains, where it is the independent answer, and what must not matter."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import SelfTrainingClassifier

import unem
from unem.methods import _evidence_many as many
from unem.methods import evidence
from unem.methods._evidence_numbers import GATE_INPUTS
from unem.methods.evidence import (
    CHOSEN,
    UNKNOWN_DOUBT,
    belief_weights,
    fit_likelihood,
    learned_numbers,
    queries_of,
    run_beliefs,
    weigh_beliefs,
)


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


@pytest.mark.parametrize("numbers", ["learned", "chosen"])
def test_one_query_is_nearly_the_independent_answer(numbers):
    task, _ = blobs(tasks=8, queries=1)
    ours = unem.create_method("evidence", numbers=numbers).predict(task)
    assert torch.equal(ours.labels, unem.create_method("whitened-mean").predict(task).labels)


def test_probabilities_of_the_independent_answer_are_calibrated():
    task, truth = blobs(tasks=60, queries=40)
    p = unem.create_method("whitened-mean").predict(task).probabilities
    sure = p.amax(-1) >= 0.9
    right = (p.argmax(-1) == truth)[sure].float().mean()
    assert 0.85 < right < 1.0


def test_very_many_queries_are_whitened_in_parts(monkeypatch):
    task, _ = blobs(tasks=2, queries=50)
    whole = unem.create_method("whitened-mean").predict(task).probabilities
    monkeypatch.setattr(many, "QUERY_BYTES", 1 << 14)
    torch.testing.assert_close(unem.create_method("whitened-mean").predict(task).probabilities, whole)


def test_very_many_queries_are_judged_by_what_some_settle_on(monkeypatch):
    task, truth = blobs(tasks=2, queries=600, present=3)
    whole = unem.create_method("evidence").predict(task)
    monkeypatch.setattr(evidence, "MOST_TOGETHER", 300)
    monkeypatch.setattr(many.sample_rows, "__defaults__", (300,))
    some = unem.create_method("evidence").predict(task)
    assert (some.labels == whole.labels).float().mean() > 0.97
    assert (some.labels == truth).float().mean() > (whole.labels == truth).float().mean() - 0.01
    turned = torch.randperm(600, generator=torch.Generator().manual_seed(0))
    again = unem.create_method("evidence").predict(
        unem.Task(task.support, task.support_labels, task.query[:, turned], num_classes=8)
    )
    torch.testing.assert_close(again.probabilities, some.probabilities[:, turned], rtol=0, atol=1e-4)


def test_a_sample_is_that_of_its_parts():
    rows = torch.randn(1, 500, 40, generator=torch.Generator().manual_seed(1))
    whole = set(many.sample_rows(rows, 50)[0].tolist())
    parts = [(many.hashes(part), 250 * i) for i, part in enumerate(rows.split(250, 1))]
    best = torch.cat([h[0] for h, _ in parts]).topk(50, largest=False).indices
    assert whole == set(best.tolist())
    assert len(many.hashes(rows).unique()) == 500


def test_shots_of_others_in_the_batch_do_not_matter():
    parts = [blobs(tasks=1, shots=shots, seed=shots)[0] for shots in (1, 2, 3, 7)]
    together = unem.create_method("evidence").predict(unem.Task.stack(parts)).probabilities
    for i, task in enumerate(parts):
        alone = unem.create_method("evidence").predict(task).probabilities
        torch.testing.assert_close(together[i : i + 1], alone, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["whitened-mean", "evidence"])
def test_with_two_samples_of_each_class_sure_answers_are_right_as_often_as_said(name):
    task, truth = blobs(tasks=60, queries=40, shots=2)
    p = unem.create_method(name).predict(task).probabilities
    sure = p.amax(-1) >= 0.9
    assert sure.float().mean() > 0.05
    assert (p.argmax(-1) == truth)[sure].float().mean() > 0.85


def test_certainty_changes_no_label():
    likelihood, numbers = fit_likelihood(blobs(tasks=2)[0]), CHOSEN.to(torch.zeros(1))
    joint = torch.rand(2, 60, 8, generator=torch.Generator().manual_seed(0)).pow(4)
    joint = joint / joint.sum(-1, keepdim=True)
    plain = likelihood.doubted(joint, joint.log(), numbers)
    for value, more in ((0.5, True), (-0.5, False)):
        found = likelihood.doubted(joint, joint.log(), numbers._replace(certainty=torch.tensor([value, 0.0, 0.0])))
        torch.testing.assert_close(found.sum(-1), torch.ones(2, 60))
        assert torch.equal(found.argmax(-1), plain.argmax(-1))
        assert bool((found.amax(-1) > plain.amax(-1)).all()) is more


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
    assert fit_likelihood(task).doubt(CHOSEN.to(task.query)).min() >= UNKNOWN_DOUBT - 1e-6
    assert fit_likelihood(blobs()[0]).doubt(CHOSEN.to(task.query)).max() < UNKNOWN_DOUBT
    choice = unem.choose(task[0:1])
    assert "not calibrated" in choice.notes[0]


def test_layers_have_the_gradient_of_their_numbers():
    task, _ = blobs(tasks=1, classes=3, shots=3, queries=5, features=6, dtype=torch.float64)
    likelihood = fit_likelihood(task)
    _, queries = queries_of(likelihood, task.query, None)
    numbers = learned_numbers().to(task.query)
    still = {"gate_out": torch.zeros_like(numbers.gate_out), "collision": CHOSEN.collision}
    numbers = numbers._replace(**still)  # what the gate looks at is held still
    free = (
        "scale",
        "trust",
        "query_weight",
        "moved",
        "temperature",
        "class_balance",
        "sharpness",
        "collision",
        "gate_out",
    )

    def answer(*values):
        changed = numbers._replace(**dict(zip(free, values, strict=True)))
        return weigh_beliefs(changed, likelihood, queries).average()

    assert torch.autograd.gradcheck(answer, [getattr(numbers, n).clone().requires_grad_() for n in free])


def test_what_the_gate_sees():
    task, _ = blobs(tasks=3, queries=30, present=3, dtype=torch.float64)
    likelihood = fit_likelihood(task)
    beliefs = run_beliefs(learned_numbers(), likelihood, queries_of(likelihood, task.query, None)[1])
    seen = beliefs.seen
    assert seen.table().shape == (3, GATE_INPUTS)
    answers = [*beliefs.answers.unbind(1), beliefs.independent.softmax(-1)]
    for b, answer in enumerate(answers):
        mean = answer.mean(1)
        torch.testing.assert_close(seen.entropy_moved[:, b], (mean * (mean.shape[-1] * mean).log()).sum(-1).neg())
        torch.testing.assert_close(seen.confidence[:, b], answer.amax(-1).mean(-1))
        pairs = answer @ answer.mT  # how probable it is that two queries are of one class
        pairs.diagonal(dim1=1, dim2=2)[:] = 1
        torch.testing.assert_close(seen.collision_moved[:, b], pairs.mean((1, 2)))
        if b < len(answers) - 1:
            same = (answer.argmax(-1) == beliefs.independent.argmax(-1)).double().mean(-1)
            torch.testing.assert_close(seen.agreement[:, b], same)


@pytest.mark.parametrize("noise", [1.0, 4.0])
@pytest.mark.parametrize("shots", [5, 12])
def test_how_alike_queries_are_says_how_often_two_are_of_one_class(noise, shots):
    """Whatever the classes, and where they overlap so much that few queries are labelled rightly."""
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(40, 12, 60, generator=g, dtype=torch.float64)
    proportions = torch.tensor([[1.0] + [0.0] * 11, [1 / 3] * 3 + [0.0] * 9, [0.5] + [0.5 / 11] * 11, [1 / 12] * 12])
    counts = (120 * proportions).round().long()
    for row, count in zip(proportions, counts, strict=True):
        truth = torch.arange(12).repeat_interleave(count)
        labels = torch.arange(12).repeat_interleave(shots)
        support, query = (
            centres[:, y] + noise * torch.randn(40, len(y), 60, generator=g, dtype=torch.float64)
            for y in (labels, truth)
        )
        task = unem.Task(support, labels.expand(40, -1), query)
        likelihood = fit_likelihood(task)
        seen = run_beliefs(learned_numbers(), likelihood, queries_of(likelihood, task.query, None)[1]).seen
        found = seen.collision.log().mean().exp()
        assert 0.8 < found / row.square().sum() < 2, (row, found)


def test_one_query_is_alike_itself_whatever_is_believed():
    task, _ = blobs(queries=1)
    likelihood = fit_likelihood(task)
    seen = run_beliefs(learned_numbers().to(task.query), likelihood, queries_of(likelihood, task.query, None)[1]).seen
    torch.testing.assert_close(seen.disagreement(), torch.zeros_like(seen.disagreement()))


def test_the_more_a_belief_disagrees_with_how_alike_queries_are_the_less_it_counts():
    task, _ = blobs(tasks=3, queries=75, present=3, dtype=torch.float64)
    likelihood, numbers = fit_likelihood(task), learned_numbers()
    seen = run_beliefs(numbers, likelihood, queries_of(likelihood, task.query, None)[1]).seen
    numbers = numbers._replace(gate_out=torch.zeros_like(numbers.gate_out))
    collision = torch.tensor([math.log(2.0), 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    mild, strict = (belief_weights(numbers._replace(collision=c), seen) for c in (CHOSEN.collision, collision))
    expected = mild * (-2 * seen.disagreement().square()).exp()
    torch.testing.assert_close(strict, expected / expected.sum(1, keepdim=True))


def test_without_its_units_the_gate_is_the_evidence_of_the_supports_means():
    task, _ = blobs(tasks=3, queries=75, present=3, dtype=torch.float64)
    likelihood, numbers = fit_likelihood(task), learned_numbers()
    numbers = numbers._replace(gate_out=torch.zeros_like(numbers.gate_out), collision=CHOSEN.collision)
    beliefs = run_beliefs(numbers, likelihood, queries_of(likelihood, task.query, None)[1])
    seen = beliefs.seen
    level, _, by_overlap = numbers.sharpness
    sharpness = (level + by_overlap * (likelihood.overlap / 4).log()).exp().unsqueeze(1)
    offsets = numbers.belief + 8 * numbers.belief_per_class
    offsets = offsets + 75 * likelihood.overlap.unsqueeze(1) * numbers.belief_per_query
    expected = (sharpness * beliefs.evidence + offsets).softmax(1)
    torch.testing.assert_close(belief_weights(numbers, seen), expected)
    torch.testing.assert_close(belief_weights(numbers, seen._replace(evidence_moved=-seen.evidence_moved)), expected)
    earlier = torch.randn_like(beliefs.evidence)
    later = (sharpness * (beliefs.evidence + earlier) + offsets).softmax(1)
    torch.testing.assert_close(belief_weights(numbers, seen, earlier), later)


def test_padded_queries_change_nothing():
    task, _ = blobs(tasks=2, queries=20)
    likelihood, numbers = fit_likelihood(task), learned_numbers().to(task.query)
    _, queries = queries_of(likelihood, task.query, None)
    whole = weigh_beliefs(numbers, likelihood, queries).average()
    rows = torch.nn.functional.pad(task.query, (0, 0, 0, 4), value=1.0)
    _, padded = queries_of(likelihood, rows, None)
    there = (torch.arange(24) < 20).float().view(1, -1, 1).expand(2, -1, -1)
    found = weigh_beliefs(numbers, likelihood, dataclasses.replace(padded, there=there)).average()
    torch.testing.assert_close(found[:, :20], whole, rtol=0, atol=1e-5)


def test_numbers_that_are_first_read_without_a_gradient_may_have_one_later():
    learned_numbers.cache_clear()
    with torch.inference_mode():
        learned_numbers()
    assert not any(value.is_inference() for value in learned_numbers())


@pytest.mark.parametrize("name", ["evidence-joint", "unem-joint"])
def test_methods_for_texts_say_that_there_are_none(name):
    with pytest.raises(unem.InputError, match=r"text: .* texts of the classes, the task has none"):
        unem.create_method(name).predict(blobs()[0])
