"""What must hold for every registered method: awkward input, batches, orders, names of classes, and nothing of the
queries' labels."""

from __future__ import annotations

import pytest
import torch

import unem
from helpers.families import FAMILIES, some_family
from unem import InputError
from unem.core.rows import Rows
from unem.data import load_digits
from unem.methods import method_info
from unem.testing import check_method

SCHEDULES = {
    **{name: some_family(method_info(name).law)[1] for name in FAMILIES},
    "unem-gaussian": unem.Schedule((1.0, 3.0, 2.0), (1.5, 1.0, 0.8), 1.2),
    "unem-dirichlet": unem.Schedule((1.0, 3.0, 2.0), (1.5, 1.0, 0.8), 25.0),
}
SHORT = {
    "alpha-am": {"iterations": 4, "learning_rate": 0.01},
    "alpha-tim": {"iterations": 10, "learning_rate": 0.01},
    "baseline": {"steps": 20},
    "lp++": {"iterations": 30},
    "lr-ici": {"penalties": 10, "steps": 30},
    "tim-gd": {"iterations": 10, "learning_rate": 0.01},
    **{name: {"schedule": schedule} for name, schedule in SCHEDULES.items()},
}
NAMES = [info.name for info in unem.list_methods() if info.name != "coop"]  # which needs a text encoder, and says so


def make(name):
    return unem.create_method(name, **SHORT.get(name, {}))


def build(name, support, labels, query, text=None):
    """A task of the kind the method takes, from features of any kind: for similarities the text plays the classes."""
    kind = method_info(name).inputs
    if kind == "features":
        return unem.Task(support, labels, query)
    text = torch.nn.functional.normalize(text, dim=-1)
    support, query = (torch.nn.functional.normalize(z, dim=-1) for z in (support, query))
    if kind == "similarities":
        return unem.Task(support @ text.mT, labels, query @ text.mT)
    return unem.Task(support, labels, query, text=text)


def draw(tasks=3, classes=4, shots=3, queries=9, features=6, dtype=torch.float64, seed=0):
    """Support, labels, queries and texts in clusters."""
    g = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(classes, features, generator=g, dtype=dtype)
    labels = torch.arange(classes).repeat_interleave(shots).expand(tasks, -1)
    truth = torch.randint(classes, (tasks, queries), generator=g)
    support, query = (
        centres[y] + 0.7 * torch.randn(*y.shape, features, generator=g, dtype=dtype) for y in (labels, truth)
    )
    return support, labels, query, centres + 0.3 * torch.randn(classes, features, generator=g, dtype=dtype)


# -- awkward input
# ---------------------------------------------------------------------------------------------------------


def negative(**kwargs):
    support, labels, query, text = draw(**kwargs)
    return -support.abs(), labels, -query.abs(), text


def identical(value):
    def tasks(**kwargs):
        support, labels, query, text = draw(**kwargs)
        return torch.full_like(support, value), labels, torch.full_like(query, value), text

    return tasks


def identical_classes(**kwargs):
    """One sample that serves every class, and texts that do not differ either."""
    support, labels, query, text = draw(**kwargs)
    return support[:, :1].expand_as(support), labels, query, text[:1].expand_as(text)


def far_away(**kwargs):
    """A third of the queries belongs to no class of the support, and is a thousand times farther than those that do."""
    support, labels, query, text = draw(**kwargs)
    query[:, ::3] = -1e3 * support.mean(1, keepdim=True) + query[:, ::3]
    return support, labels, query, text


AWKWARD = {
    "negative features": negative,
    "one query": lambda **k: draw(queries=1, **k),
    "one shot": lambda **k: draw(shots=1, **k),
    "one shot, one query": lambda **k: draw(shots=1, queries=1, **k),
    "two classes": lambda **k: draw(classes=2, **k),
    "two classes, one shot": lambda **k: draw(classes=2, shots=1, **k),
    "one feature": lambda **k: draw(features=1, **k),
    "identical features": identical(1.0),
    "zero features": identical(0.0),
    "identical classes": identical_classes,
    "far away": far_away,
    "more classes than queries": lambda **k: draw(classes=12, queries=3, **k),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings(
    "ignore:some classes are more concentrated:unem.errors.UnemWarning"
)  # one shot has no most likely Dirichlet law
def test_awkward_input_gives_probabilities(name, dtype):
    for what, tasks in AWKWARD.items():
        task = build(name, *tasks(dtype=dtype))
        u = make(name).predict(task).probabilities
        assert u.shape == (len(task), task.num_queries, task.num_classes), what
        assert u.dtype == dtype, what
        assert torch.isfinite(u).all(), what
        assert (u >= 0).all(), what
        torch.testing.assert_close(u.sum(-1), torch.ones_like(u[..., 0]), rtol=0, atol=1e-5, msg=what)


@pytest.mark.parametrize("name", NAMES)
def test_queries_far_away_leave_the_others_finite_and_classified(name):
    """A prediction is made for every query, even where there is nothing to say: some class, never none."""
    task = build(name, *far_away(dtype=torch.float32))
    assert (make(name).predict(task).probabilities.amax(-1) >= 1 / task.num_classes - 1e-5).all()


@pytest.mark.parametrize("where", ["support", "query"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_what_no_method_can_use_is_refused_by_name(where, value):
    """Every method takes a task, so what a task refuses reaches none."""
    support, labels, query, _ = draw(dtype=torch.float32)
    {"support": support, "query": query}[where][0, 0, 0] = value
    with pytest.raises(InputError, match=where):
        unem.Task(support, labels, query)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:some classes are more concentrated:unem.errors.UnemWarning")
def test_every_method_conforms(name):
    check_method(make(name))


# -- what must not matter
# --------------------------------------------------------------------------------------------------


def uneven(name):
    """Tasks with supports of different sizes in one batch."""
    support, labels, query, text = draw()
    keep = torch.tensor([i for i in range(labels.shape[1]) if i not in (1, 2, 4)])
    parts = [build(name, support[0, keep], labels[0, keep], query[0], text)]
    return unem.Task.stack([*parts, *(build(name, support[i], labels[i], query[i], text) for i in (1, 2))])


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_its_tasks_one_by_one(name):
    """Each alone, without the others and without their padding."""
    task, method = uneven(name), make(name)
    together = method.predict(task).probabilities
    for i in range(len(task)):
        there = task.support_labels[i] >= 0
        one = unem.Task(task.support[i, there], task.support_labels[i, there], task.query[i], text=task.text)
        torch.testing.assert_close(method.predict(one).probabilities, together[i], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_permuted_queries_permute_the_answers(name):
    task, method = uneven(name), make(name)
    order = torch.randperm(task.num_queries)
    permuted = method.predict(task.with_features(task.support, task.query[:, order])).probabilities
    torch.testing.assert_close(permuted, method.predict(task).probabilities[:, order], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_permuted_support_changes_nothing(name):
    task, method = uneven(name), make(name)
    order = torch.randperm(task.support_labels.shape[1])
    shuffled = unem.Task(task.support[:, order], task.support_labels[:, order], task.query, text=task.text)
    torch.testing.assert_close(
        method.predict(shuffled).probabilities, method.predict(task).probabilities, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("name", NAMES)
def test_renamed_classes_permute_the_columns(name):
    support, labels, query, text = draw()
    new = torch.randperm(4)
    u = make(name).predict(build(name, support, labels, query, text)).probabilities
    renamed = make(name).predict(build(name, support, new[labels], query, text[new.argsort()])).probabilities
    torch.testing.assert_close(renamed[..., new], u, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_a_table_are_the_samples_they_stand_for(name):
    """Tasks that are drawn stay row numbers; the answer is that of the tensors."""
    plain = build(name, *draw())
    tables = [z.flatten(0, 1) for z in (plain.support, plain.query)]
    index = [torch.arange(len(t)).view(len(plain), -1) for t in tables]
    support, query = (Rows(t, i) for t, i in zip(tables, index, strict=True))
    drawn = unem.Task.drawn(support, query, plain.num_classes, plain.text)
    expected = make(name).predict(plain).probabilities
    torch.testing.assert_close(make(name).predict(drawn).probabilities, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_left_as_it_was(name):
    task = build(name, *draw())
    before = [z.clone() for z in (task.support, task.support_labels, task.query)]
    make(name).predict(task)
    for old, new in zip(before, (task.support, task.support_labels, task.query), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize("name", [n for n in NAMES if not method_info(n).transductive])
def test_inductive_methods_see_one_query_at_a_time(name):
    task, method = uneven(name), make(name)
    u = method.predict(task).probabilities
    for q in range(task.num_queries):
        alone = method.predict(task.with_features(task.support, task.query[:, q : q + 1])).probabilities
        torch.testing.assert_close(alone[:, 0], u[:, q], rtol=0, atol=1e-7)


def test_a_task_carries_nothing_of_the_queries_but_their_features():
    """Together with the order of queries, which does not matter, this is why no method can see a query's label."""
    seen = []

    class Spy:
        name, inputs = "spy", "features"

        def predict(self, task):
            seen.append(task)
            return unem.create_method("prototypes").predict(task)

    unem.evaluate(Spy(), load_digits(), unem.Protocol(shots=2, effective_classes=3, queries=12), tasks=2)
    carried = {"support_rows", "query_rows", "support_labels", "num_classes", "single", "text", "even_shots"}
    for task in seen:
        assert set(vars(task)) <= carried | {"support", "query"}  # the last two are gathered from the rows
        assert set(vars(task.query_rows)) == {"table", "index", "cache"}  # cache: functions of the table
        assert task.query_rows.table.is_floating_point()
        assert task.support_labels.shape == task.support_rows.shape[:2]
