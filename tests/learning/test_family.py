"""UNEM+: each ingredient against its formula, and families of schedules."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
from helpers.command_line import run
from helpers.families import some_family
from unem.core.em import iterate
from unem.core.laws.views import VIEWS, scatter
from unem.data.digits import digits
from unem.learning.family import ScheduleFamily, candidates, position
from unem.learning.family_training import FAMILIES, IMITATION, RIDGE, GateExamples, fit_gate, start_values
from unem.learning.unrolled import UnrolledFamily
from unem.methods.plus import FamilyMethod

OFF = {"views": ("plain",), "scatter_scale": False, "neighbours": 0, "leave_one_out": False}


def random_task(tasks=2, classes=4, shots=3, queries=12, features=6, seed=0, text=False, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(shots)
    centres = 2 * torch.randn(tasks, classes, features, generator=g, dtype=dtype)
    support = centres[:, labels] + torch.randn(tasks, len(labels), features, generator=g, dtype=dtype)
    present = torch.randint(classes, (tasks, queries), generator=g)
    query = torch.stack([c[p] for c, p in zip(centres, present, strict=True)])
    query = query + torch.randn(tasks, queries, features, generator=g, dtype=dtype)
    words = torch.randn(classes, features, generator=g, dtype=dtype) if text else None
    if text:
        support, query = (torch.nn.functional.normalize(x, dim=-1) for x in (support, query))
        words = torch.nn.functional.normalize(words, dim=-1)
    return unem.Task(support, labels.expand(tasks, -1), query, text=words)


# -- ingredients ----------------------------------------------------------------------------------------------------------


def test_with_everything_off_it_is_the_gaussian_law():
    task = random_task()
    schedule = unem.Schedule((1.0, 2.0, 1.5), (1.5, 1.2, 1.0), 0.7)
    ours = unem.gem(task, unem.GaussianPlus(**OFF), schedule).probabilities
    torch.testing.assert_close(ours, unem.gem(task, unem.Gaussian(), schedule).probabilities, rtol=0, atol=1e-12)


def directions(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


ROWS = {"plain": lambda x: x, "unit": directions, "root": lambda x: directions(np.sign(x) * np.sqrt(np.abs(x)))}


def written_out(name, task):
    """Support and query of a single task through a view, by its definition."""
    there = task.support_labels[0] >= 0
    support, query = (ROWS[name](x.numpy()) for x in (task.support[0][there], task.query[0]))
    if name == "plain":
        return support - query.mean(0), query - query.mean(0)
    return directions(support - support.mean(0)), directions(query - support.mean(0))


def uneven(task):
    """The same without its first samples, which are padding then."""
    labels = task.support_labels.clone()
    labels[:, :2] = -1
    return unem.Task(task.support, labels, task.query, num_classes=task.num_classes)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("kind", ["ordered", "uneven", "drawn"])
def test_views_are_their_formulas(name, kind):
    task = random_task(tasks=1)
    if kind == "uneven":
        task = uneven(task)
    if kind == "drawn":  # rows of one table
        table = torch.cat([task.support[0], task.query[0]])
        count = task.support.shape[1]
        rows = unem.core.task.Rows(table)
        index = torch.arange(len(table)).unsqueeze(0)
        task = unem.Task.drawn(rows.at(index[:, :count]), rows.at(index[:, count:]), task.num_classes)
    for _ in range(2):  # the second time from the images of the table
        seen, (support, query) = VIEWS[name](task), written_out(name, task)
        hot = np.eye(task.num_classes)[task.support_labels[0][task.support_labels[0] >= 0]]
        np.testing.assert_allclose(seen.query[0].numpy(), query, atol=1e-12)
        np.testing.assert_allclose(seen.sums[0].numpy(), hot.T @ support, atol=1e-12)
        assert seen.squares.item() == pytest.approx((support**2).sum())


def test_a_sample_that_is_the_centre_has_no_direction():
    task = unem.Task(torch.zeros(4, 3), torch.tensor([0, 0, 1, 1]), torch.zeros(2, 3))
    for name in VIEWS:
        seen = VIEWS[name](task)
        assert all(torch.isfinite(x).all() and x.abs().max() == 0 for x in (seen.query, seen.sums, seen.squares))


def test_mixed_kernels_are_concatenated_features():
    task, weights = random_task(), (0.3, 0.7)
    law = unem.GaussianPlus(views=("unit", "root"), scatter_scale=False, neighbours=0, leave_one_out=False)
    schedule = unem.Schedule((1.0, 2.0), (1.5, 1.2), 3.0, view_weights=weights)
    parts = [
        [math.sqrt(w) * torch.tensor(x) for x in written_out(name, one)]
        for one in (task[0], task[1])
        for w, name in zip(weights, law.views, strict=True)
    ]
    support, query = (
        torch.stack([torch.cat([parts[2 * t][i], parts[2 * t + 1][i]], -1) for t in (0, 1)]) for i in (0, 1)
    )
    explicit = unem.Task(support, task.support_labels, query)
    expected = unem.gem(explicit, unem.Gaussian(), unem.Schedule((1.0, 2.0), (1.5, 1.2), 3.0)).probabilities
    torch.testing.assert_close(unem.gem(task, law, schedule).probabilities, expected, rtol=0, atol=1e-12)


def test_scatter_scale_is_the_pooled_scatter():
    task = random_task(tasks=1, shots=4)
    x, y = task.support[0].numpy(), task.support_labels[0].numpy()
    means = np.stack([x[y == k].mean(0) for k in range(4)])
    expected = ((x - means[y]) ** 2).sum() / (len(x) - 4)
    shots, seen = task.shots.double(), VIEWS["plain"](task)
    value = scatter(seen, shots, seen.query @ seen.sums.mT)
    assert value.item() == pytest.approx(expected)
    law = {**OFF, "scatter_scale": True}
    scaled = unem.gem(task, unem.GaussianPlus(**law), unem.Schedule(1.0, 1.0, 2.0, layers=3)).probabilities
    plain = unem.gem(task, unem.Gaussian(), unem.Schedule(1.0, 1.0, 2.0 / math.sqrt(expected), layers=3)).probabilities
    torch.testing.assert_close(scaled, plain, rtol=0, atol=1e-12)


def test_one_shot_has_a_scatter_too():
    task = random_task(shots=1)
    shots, seen = task.shots.double(), VIEWS["plain"](task)
    value = scatter(seen, shots, seen.query @ seen.sums.mT)
    nearest = torch.cdist(task.query, task.support).square().amin(-1).mean(1)
    torch.testing.assert_close(value, nearest / 2)


@pytest.mark.parametrize("neighbours", [1, 3])
def test_propagation_is_that_of_the_features(neighbours):
    task = random_task(tasks=1)
    query = task.query[0].numpy()
    distance = ((query[:, None] - query[None]) ** 2).sum(-1)
    np.fill_diagonal(distance, np.inf)
    edges = np.zeros_like(distance)
    for n, row in enumerate(distance):
        edges[n, np.argsort(row)[:neighbours]] = 1
    edges = np.maximum(edges, edges.T)
    moved = 0.6 * query + 0.4 * edges / edges.sum(1, keepdims=True) @ query
    explicit = unem.Task(task.support[0], task.support_labels[0], torch.tensor(moved))
    plain = unem.Schedule((1.0, 2.0), (1.5, 1.2), 0.7)
    expected = unem.gem(explicit, unem.Gaussian(), plain).probabilities
    law = unem.GaussianPlus(**{**OFF, "neighbours": 5})
    schedule = unem.Schedule((1.0, 2.0), (1.5, 1.2), 0.7, propagation=0.4, neighbours=neighbours)
    torch.testing.assert_close(unem.gem(task, law, schedule).probabilities[0], expected, rtol=0, atol=1e-10)


def test_leave_one_out_leaves_one_out():
    """Every query is judged by means and proportions of all the others, written out one by one."""
    task, balances, temperatures = random_task(tasks=1), (1.0, 2.0, 1.5), (1.5, 1.2, 1.0)
    x, y, z = task.support[0].numpy(), task.support_labels[0].numpy(), task.query[0].numpy()
    hot, u = np.eye(4)[y], None
    for beta, temperature in zip(balances, temperatures, strict=True):
        logits = np.zeros((len(z), 4))
        for n in range(len(z)):
            others = np.arange(len(z)) != n
            mass, total, prior = hot.sum(0), hot.T @ x, 0.0
            if u is not None:
                mass, total = mass + u[others].sum(0), total + u[others].T @ z[others]
                prior = beta * np.log(u[others].sum(0) / (len(z) - 1) + 1e-6)
            logits[n] = (-0.5 * ((z[n] - total / mass[:, None]) ** 2).sum(1) + prior) / temperature
        u = np.exp(logits - logits.max(1, keepdims=True))
        u /= u.sum(1, keepdims=True)
    law = unem.GaussianPlus(**{**OFF, "leave_one_out": True})
    ours = unem.gem(task, law, unem.Schedule(balances, temperatures)).probabilities[0]
    np.testing.assert_allclose(ours.numpy(), u, atol=1e-10)


def test_text_adds_its_similarity_in_every_layer():
    task = random_task(text=True)
    law = unem.GaussianPlus(**{**OFF, "text": True})
    weak = unem.Schedule(0.0, 2.0, 1e-6, text_weight=(10.0, 40.0))  # features so small that text alone decides
    expected = (20 * task.query @ task.text.mT).softmax(-1)
    torch.testing.assert_close(unem.gem(task, law, weak).probabilities, expected, rtol=0, atol=1e-6)
    silent = unem.Schedule(1.0, 2.0, 3.0, text_weight=0.0, layers=2)
    plain = unem.gem(task, unem.Gaussian(), unem.Schedule(1.0, 2.0, 3.0, layers=2)).probabilities
    torch.testing.assert_close(unem.gem(task, law, silent).probabilities, plain, rtol=0, atol=1e-10)


def test_ingredients_that_do_not_exist():
    with pytest.raises(unem.InputError, match="views: expected some of plain, unit, root, got 'left'"):
        unem.GaussianPlus(views=("left",))
    with pytest.raises(unem.InputError, match="neighbours"):
        unem.GaussianPlus(neighbours=-1)
    with pytest.raises(unem.InputError, match="propagation: expected a number from 0 to 1"):
        unem.Schedule(propagation=1.5)
    with pytest.raises(unem.InputError, match="view_weights: expected 2 numbers"):
        unem.gem(random_task(), unem.GaussianPlus(), unem.Schedule(view_weights=(1.0,)))
    with pytest.raises(unem.InputError, match="trace"):
        unem.gem(random_task(), unem.GaussianPlus(), unem.Schedule(), trace=True)


# -- families -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients(name):
    law = FAMILIES[name]
    task = random_task(queries=6, text=law.text)
    statistics = law.prepare(task)
    model = some_family(law, layers=3)[0].double()
    names = [n for n, _ in model.named_parameters()]

    def log_u(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (statistics, 2))[0]

    values = [p.detach().clone().requires_grad_() for p in model.parameters()]
    assert torch.autograd.gradcheck(log_u, values, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("k", "queries"), [(1, 12), (4, 12), (2, 1)])
def test_a_schedule_of_the_family_is_what_was_learned(name, k, queries):
    law = FAMILIES[name]
    task = random_task(queries=queries, text=law.text)
    model, family = some_family(law)
    learned = model.double()(law.prepare(task), k, log=False)[0].detach()
    ours = unem.gem(task, law, family.at(k, queries, 4)).probabilities
    torch.testing.assert_close(ours, learned, rtol=0, atol=1e-6)
    hinted = unem.create(name, schedule=family, effective_classes=k).predict(task).probabilities
    torch.testing.assert_close(hinted, ours, rtol=0, atol=1e-12)


def test_the_average_is_that_of_its_candidates():
    task, (_, family) = random_task(classes=6), some_family()
    method = FamilyMethod("unem-plus", family)
    each = torch.stack([FamilyMethod("unem-plus", family, k).predict(task).probabilities for k in candidates(6)], 1)
    ours = method.predict(task).probabilities
    torch.testing.assert_close(ours.sum(-1), torch.ones(2, 12, dtype=torch.float64))
    assert (ours <= each.amax(1) + 1e-12).all()
    assert (ours >= each.amin(1) - 1e-12).all()


@given(st.integers(1, 300), st.integers(1, 10**5), st.integers(2, 1000))
def test_a_schedule_for_any_place(k, queries, classes):
    _, family = some_family()
    schedule = family.at(min(k, classes), queries, classes)
    assert all(math.isfinite(v) and v > 0 for v in (*schedule.class_balances, *schedule.temperatures))
    assert 0 <= schedule.propagation <= 1
    assert 1 <= schedule.neighbours <= 10


def test_files(tmp_path):
    _, family = some_family()
    family.save(tmp_path / "family.json")
    again = ScheduleFamily.load(tmp_path / "family.json")
    assert again == family
    assert again.at(3, 40, 20) == family.at(3, 40, 20)
    unem.Schedule().save(tmp_path / "schedule.json")
    with pytest.raises(unem.InputError, match="is not a family of schedules"):
        ScheduleFamily.load(tmp_path / "schedule.json")
    stored = json.loads((tmp_path / "family.json").read_text())
    for damage in (
        {"values": {"class_balance": [[1.0], [0.0]]}},
        {"law": {"views": ["left"]}},
        {"gate": 3},
        {"layers": "x"},
    ):
        (tmp_path / "broken.json").write_text(json.dumps({**stored, **damage}))
        with pytest.raises(unem.InputError):
            ScheduleFamily.load(tmp_path / "broken.json")


def test_what_a_method_needs():
    _, family = some_family()
    assert unem.create("unem-plus").family == unem.load_family("unem-plus/clip-rn50")  # what comes with the library
    with pytest.raises(unem.InputError, match="neither a file nor a preset"):
        unem.create("unem-plus", schedule="unem-plus/nowhere")
    with pytest.raises(unem.InputError, match="is a family of schedules"):
        unem.preset("unem-plus/clip-rn50")
    with pytest.raises(unem.InputError, match="is a family of schedules, for unem-plus"):
        unem.create("unem-gaussian", schedule="unem-plus/clip-rn50")
    with pytest.raises(unem.InputError, match="learned for unem-plus, not for unem-joint"):
        unem.create("unem-joint", schedule=family)
    with pytest.raises(unem.InputError, match="no gate"):
        unem.create("unem-plus", schedule=some_family()[0].family())
    with pytest.raises(unem.InputError, match="effective_classes: expected at least 1"):
        unem.create("unem-plus", schedule=family, effective_classes=0)


@pytest.mark.parametrize("name", [n for n, p in unem.list_presets().items() if isinstance(p, ScheduleFamily)])
def test_shipped_families_gain_by_transduction(name):
    """On handwritten digits, far from what they were learned on; the one that is the default must gain even there."""
    family = unem.load_family(name)
    assert family.gate is not None
    assert family.looks_at_shots
    images = digits()
    if family.law.text:  # digits have no texts; class means stand in
        means = torch.stack([images.features[images.labels == k].mean(0) for k in range(10)])
        images = unem.FeatureSet(images.features, images.labels, text_features=means)
    method = unem.create(family.method, schedule=name)
    for effective, margin in ((2, -2 if family.provenance["preset"] != "unem-plus/clip-rn50" else 1), ("all", -2)):
        protocol = unem.Protocol(shots=3, effective_classes=effective, queries=40)
        ours, plain = (unem.evaluate(m, images, protocol, tasks=100).accuracy for m in (method, "prototypes"))
        assert ours > plain + margin


def test_one_query_is_classified_by_the_support_alone():
    _, family = some_family()
    task = random_task(queries=1, tasks=5)
    means = unem.GaussianPlus(neighbours=0)
    inductive = unem.gem(task, means, unem.Schedule(1.0, 1.0, 5.0, view_weights=family.view_weights, layers=1))
    assert torch.equal(FamilyMethod("unem-plus", family).predict(task).labels, inductive.labels)


def test_gate_is_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    g = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=g, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(300, generator=g, dtype=torch.float64)).gt(0).long()
    same = torch.ones(300, 2, 5, dtype=torch.float64)  # where all candidates are right, k alone is learned
    gate = fit_gate([GateExamples(x, same, torch.eye(2, dtype=torch.float64)[y], same[:, 0, 0])])
    standard = (x - x.mean(0)) / x.std(0)
    # The sum over both classes of ridge·‖w‖² is half of it for their difference.
    theirs = LogisticRegression(C=IMITATION / (300 * RIDGE), tol=1e-10, max_iter=1000).fit(standard.numpy(), y.numpy())
    w = torch.tensor(gate.weights)
    np.testing.assert_allclose((w[1] - w[0]).numpy(), theirs.coef_[0], rtol=2e-2)


def test_gate_prefers_what_is_right_to_what_is_true():
    """Where the candidate of another k classifies better, it is that one which is wanted."""
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth = torch.tensor([[0.2], [0.9]], dtype=torch.float64).expand(100, 2, 6)
    named = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(100, -1)
    gate = fit_gate([GateExamples(x, truth, named, truth[:, 0, 0])])
    assert gate.bias[1] > gate.bias[0] + 1


def test_beyond_what_was_learned_it_stays_at_the_border():
    _, family = some_family()
    family = replace(family, ranges={"queries": (10.0, 100.0), "num_classes": (20.0, 40.0)})
    assert family.at(5, 1000, 300).class_balances == family.at(5, 100, 40).class_balances
    assert family.at(5, 1, 4).temperatures == family.at(5, 10, 20).temperatures
    assert family.at(5, 50, 30).class_balances != family.at(5, 60, 30).class_balances
    assert ScheduleFamily.from_dict(json.loads(json.dumps(family.to_dict()))) == family


def test_positions():
    assert position(5, 75, 40) == (1.0, *(0.0,) * 7)
    assert candidates(10) == (1, 2, 3, 5, 8, 10, 10, 10)
    assert candidates(100)[-1] == 100


# -- batches, one after another and in blocks; no support -------------------------------------------------------------------


def test_what_a_batch_leaves_stands_beside_the_support():
    """Queries that were assigned for certain are as good as samples of the support, seen from where the support was."""
    task = random_task(tasks=1, queries=8)
    law = unem.GaussianPlus(neighbours=0)
    hard = torch.eye(4, dtype=torch.float64)[torch.arange(8) % 4].unsqueeze(0)
    left = law.carried(task, hard)
    later = random_task(tasks=1, queries=5, seed=1).query
    batch = unem.Task(task.support, task.support_labels, later)
    found = law.prepare(batch, carried=left)
    plain = law.prepare(batch)
    shots, labels = task.shots[0, 0].item(), task.support_labels[0]
    assert torch.equal(found.shots, plain.shots + 2)
    assert torch.equal(found.earlier, torch.full((1, 4), 2.0, dtype=torch.float64))
    for view, name in enumerate(law.views):
        support, query = (torch.tensor(x) for x in written_out(name, task))
        now = torch.tensor(written_out(name, batch)[1])
        sums = torch.stack([support[labels == k].sum(0) + query[k::4].sum(0) for k in range(4)])
        means = torch.stack([support[labels == k].mean(0) for k in range(4)])
        spread = (support - means[labels]).square().sum() / (4 * (shots - 1))
        torch.testing.assert_close(found.crosses[0, view], now @ sums.T / spread)
        torch.testing.assert_close(found.norms[0, view], sums.square().sum(-1) / spread)


def test_a_stream_without_memory_is_one_batch_after_another():
    _, family = some_family()
    method = FamilyMethod("unem-plus", family)
    task = random_task(tasks=1, queries=20)
    stream = unem.Stream(method, task.support[0], task.support_labels[0], memory=0.0)
    for part in (slice(0, 12), slice(12, 20)):
        alone = method.predict(unem.Task(task.support[0], task.support_labels[0], task.query[0, part]))
        assert torch.equal(stream.predict(task.query[0, part]).probabilities, alone.probabilities)
    assert stream.seen == 0


def test_a_stream_does_not_depend_on_the_order_within_a_batch():
    _, family = some_family()
    method = FamilyMethod("unem-plus", family)
    task = random_task(tasks=1, queries=20)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    results = []
    for first in (task.query[0, :12], task.query[0, :12][order]):
        stream = unem.Stream(method, task.support[0], task.support_labels[0])
        stream.predict(first)
        results.append(stream.predict(task.query[0, 12:]).probabilities)
        assert stream.seen == pytest.approx(0.3 * 20)
    torch.testing.assert_close(*results, rtol=0, atol=1e-9)
    assert not torch.allclose(results[0], method.predict(task.of_queries(slice(12, None))).probabilities)


def test_streams_refuse():
    _, family = some_family()
    task = random_task(tasks=1)
    with pytest.raises(unem.InputError, match="memory: expected a number from 0 to 1, got 2"):
        unem.Stream(FamilyMethod("unem-plus", family), task.support[0], task.support_labels[0], memory=2)
    with pytest.raises(unem.InputError, match="method: expected unem-plus or unem-joint"):
        unem.Stream(unem.create("prototypes"), task.support[0], task.support_labels[0])
    stream = unem.Stream(FamilyMethod("unem-plus", family), task.support[0], task.support_labels[0])
    with pytest.raises(unem.InputError, match="query"):
        stream.predict(torch.full((3, 6), torch.nan, dtype=torch.float64))
    assert stream.seen == 0  # a bad batch leaves nothing


def test_very_many_queries_are_classified_in_blocks(monkeypatch):
    _, family = some_family()
    method = FamilyMethod("unem-plus", family, 4)
    task = random_task(queries=90)
    whole = method.predict(task)
    monkeypatch.setattr("unem.methods.plus.AT_ONCE", 32)
    blocks = method.predict(task)
    assert blocks.probabilities.shape == whole.probabilities.shape
    torch.testing.assert_close(blocks.probabilities.sum(-1), torch.ones(2, 90, dtype=torch.float64))
    assert (blocks.labels == whole.labels).double().mean() > 0.9


def test_without_support_the_text_decides_first():
    law = FAMILIES["zero-shot-unem-joint"]
    _, family = some_family(law)
    method = FamilyMethod("zero-shot-unem-joint", family)
    task, other = random_task(text=True), random_task(text=True, seed=1)
    same = unem.Task(other.support, task.support_labels, task.query, text=task.text)
    assert torch.equal(method.predict(task).probabilities, method.predict(same).probabilities)
    single = random_task(text=True, queries=1, tasks=6)
    assert torch.equal(method.predict(single).labels, (single.query @ single.text.mT).argmax(-1))
    with pytest.raises(unem.InputError, match="support: without it"):
        unem.GaussianPlus(support=False)


# -- learning -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy():
    labels = torch.arange(12).repeat_interleave(60)
    g = torch.Generator().manual_seed(0)
    table = torch.eye(12, 20)[labels] * 1.6 + torch.randn(720, 20, generator=g)
    split = np.array(["val", "test"])[(torch.arange(720) % 2).numpy()]
    return unem.FeatureSet(table, labels, split=split)


SHORT = unem.FamilyConfig(steps=60, layers=5, queries=(10, 40), tasks=(12, 8), batch=(12, 8), gate_tasks=(12, 8))


def test_a_stopped_learning_goes_on_as_if_it_had_not_been(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("unem.learning.family_training.KEEP_EVERY", 2)
    images, kept = toy.split("val"), tmp_path / "kept.safetensors"

    def stop(what, done, total):
        if done == 5:
            raise KeyboardInterrupt

    whole = unem.train_family(images, shots=3, config=SHORT, seed=0)
    with pytest.raises(KeyboardInterrupt):
        unem.train_family(images, shots=3, config=SHORT, seed=0, checkpoint=kept, progress=stop)
    with pytest.raises(unem.InputError, match=r"checkpoint: .* other settings .*seed"):
        unem.train_family(images, shots=3, config=SHORT, seed=1, checkpoint=kept)
    resumed = unem.train_family(images, shots=3, config=SHORT, seed=0, checkpoint=kept)
    assert resumed == whole
    assert resumed.provenance["runs"] == whole.provenance["runs"]
    kept.write_bytes(b"nothing of the kind")
    with pytest.raises(unem.InputError, match="not a training checkpoint"):
        unem.train_family(images, shots=3, config=SHORT, seed=0, checkpoint=kept)
    assert unem.train_family(images, shots=3, config=SHORT, seed=0, checkpoint=kept, resume=False) == whole


def test_learning_a_family(toy):
    family = unem.train_family(toy.split("val"), shots=3, config=SHORT, seed=0)
    assert family == unem.train_family(toy.split("val"), shots=3, config=SHORT, seed=0)
    method = unem.create("unem-plus", schedule=family)
    for k in (2, 12):
        protocol = unem.Protocol(shots=3, effective_classes=k, queries=40)
        ours, plain = (unem.evaluate(m, toy.split("test"), protocol, tasks=200) for m in (method, "prototypes"))
        assert ours.accuracy > plain.accuracy - 2  # it learned for a moment only
    few = unem.Protocol(shots=3, effective_classes=2, queries=40)
    gain = unem.evaluate(method, toy.split("test"), few, tasks=40).accuracy
    assert gain > unem.evaluate("prototypes", toy.split("test"), few, tasks=40).accuracy + 5


def test_learning_for_one_kind_of_task(toy):
    config = unem.FamilyConfig.fixed(3, 40, steps=60, layers=5, tasks=(40,), batch=(20,))
    family = unem.train_family(toy.split("val"), shots=3, config=config)
    assert (family.effective_classes, family.gate, family.coordinates) == (3, None, 1)
    assert ScheduleFamily.from_dict(json.loads(json.dumps(family.to_dict()))) == family
    method = unem.create("unem-plus", schedule=family)  # needs no hint
    few = unem.Protocol(shots=3, effective_classes=3, queries=40)
    gain = unem.evaluate(method, toy.split("test"), few, tasks=40).accuracy
    assert gain > unem.evaluate("prototypes", toy.split("test"), few, tasks=40).accuracy + 5


def test_learning_for_any_shots_from_several_sets(toy):
    config = replace(SHORT, steps=20)
    sets = [toy.split("val"), toy.split("val").only_classes(range(8))]
    family = unem.train_family(sets, shots=(1, 4), config=config)
    assert family.looks_at_shots
    assert family.ranges["shots"] == (1.0, 4.0)
    assert family.at(3, 40, 12, 1).class_balances != family.at(3, 40, 12, 4).class_balances
    assert family.at(3, 40, 12, 4) == family.at(3, 40, 12, 9)
    with pytest.raises(unem.InputError, match="query: expected one set for each of the 2 feature sets, got 1"):
        unem.train_family(sets, query=toy.split("test"), config=config)


def test_a_task_does_not_depend_on_the_shots_of_others_in_its_batch():
    law = unem.GaussianPlus()
    torch.manual_seed(0)
    model = UnrolledFamily(law, 3, start_values(law), 8)
    with torch.no_grad():
        for raw in model.raw.values():
            raw.add_(0.1 * torch.randn_like(raw))
    method = FamilyMethod("unem-plus", model.family(some_family()[1].gate))
    tasks = [random_task(tasks=1, shots=shots, seed=shots, dtype=torch.float64) for shots in (1, 4, 2)]
    together = method.predict(unem.Task.stack(tasks)).probabilities
    for i, task in enumerate(tasks):
        alone = method.predict(unem.Task.stack([task])).probabilities[0]
        torch.testing.assert_close(together[i], alone, rtol=0, atol=1e-9)
    assert not torch.allclose(*(model.family().at(2, 12, 4, s).class_balances[0] * torch.ones(1) for s in (1, 4)))


def test_learning_with_text(toy):
    split = toy.split("val")
    words = unem.FeatureSet(split.features, split.labels, text_features=torch.eye(12, 20))
    family = unem.train_family(words, shots=2, config=SHORT)
    assert family.law.text
    assert unem.evaluate(unem.create("unem-joint", schedule=family), words, unem.Protocol(shots=2, queries=30), tasks=5)


def test_text_that_is_not_there(toy):
    with pytest.raises(unem.InputError, match="has no text_features"):
        unem.train_family(toy, FAMILIES["unem-joint"])


def test_too_few_images():
    small = unem.FeatureSet(torch.randn(20, 4), torch.arange(20) % 10)
    with pytest.raises(unem.InputError, match="too few images"):
        unem.train_family(small, shots=5)


def test_command(toy, tmp_path, monkeypatch):
    toy.save(tmp_path / "toy.safetensors")
    arguments = ["--method", "unem-plus", "--shots", "3", "--layers", "2", "-o", tmp_path / "s.json"]
    done = run("train", tmp_path / "toy.safetensors", *arguments)
    assert done.returncode == 0, done.stderr
    assert "1 effective classes" in done.stdout
    more = ["--method", "unem-plus", "--schedule", tmp_path / "s.json", "--tasks", "5", "--queries", "20"]
    told = run("eval", tmp_path / "toy.safetensors", *more, "--set", "effective_classes=5", "--json", "-")
    free = run("eval", tmp_path / "toy.safetensors", *more, "--json", "-")
    assert told.returncode == free.returncode == 0, told.stderr + free.stderr
    assert json.loads(told.stdout)["accuracy"] != json.loads(free.stdout)["accuracy"]


def test_options_that_do_not_apply_are_refused(toy, tmp_path):
    toy.save(tmp_path / "toy.safetensors")
    done = run(
        "train", tmp_path / "toy.safetensors", "--method", "unem-plus", "--epochs", "1", "-o", tmp_path / "s.json"
    )
    assert done.returncode == 2
    assert "--epochs: does not apply to unem-plus" in done.stderr
    done = run("train", tmp_path / "toy.safetensors", "--fixed", "-o", tmp_path / "s.json")
    assert done.returncode == 2
    assert "--fixed: is for unem-plus and unem-joint" in done.stderr
    with pytest.raises(unem.InputError, match="tasks: expected a tuple"):
        unem.FamilyConfig(tasks=2)


def test_evaluation_does_not_tell_how_many_classes_are_present():
    _, family = some_family()
    from unem.methods import create_for

    assert create_for("unem-plus", unem.Protocol(), 20, schedule=family).effective_classes is None


def test_loop_with_text_needs_weights():
    task = random_task(text=True)
    law = unem.GaussianPlus(**{**OFF, "text": True})
    statistics = law.scaled(law.prepare(task), 1.0)
    with pytest.raises(IndexError):
        iterate(law, statistics, [1.0], [1.0])
