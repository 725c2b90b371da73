"""What anyone's new law or method must satisfy: call :func:`check_law` or :func:`check_method` in a test.

Each check is a function of its own with a name that says what must hold; the first that fails raises an
``AssertionError`` with that sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from unem._io import plain
from unem.core.em import gem
from unem.core.laws import LAWS, Law
from unem.core.schedule import Schedule
from unem.core.task import Inputs, Task
from unem.data import FeatureSet, Protocol
from unem.errors import InputError
from unem.learning import LEARNABLE, UNEM, train
from unem.methods import Method

__all__ = ["LAW_CHECKS", "METHOD_CHECKS", "check_law", "check_method", "random_task"]

TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-3}


def check_law(law: Law, *, schedule: Schedule | None = None) -> None:
    """Test a law: shapes, probabilities, batches, orders, padding, the objective, gradients, learning.

    Args:
        schedule: β, T and T_z that suit the law; moderate ones when left out.

    Example:
        >>> import unem
        >>> check_law(unem.Gaussian())
    """
    schedule = schedule or Schedule((0.5, 1.0, 1.0), 1.5, law.neutral_scale, text_weight=5.0)
    for check in LAW_CHECKS:
        _run(check, law, schedule)


def check_method(method: Method) -> None:
    """Test a method: probabilities, single tasks, batches, orders, padding, awkward sizes, what it says of itself.

    Example:
        >>> import unem
        >>> check_method(unem.create_method("paddle", iterations=5))
    """
    for check in METHOD_CHECKS:
        _run(check, method)


def random_task(
    inputs: Inputs = "features",
    *,
    tasks: int = 3,
    classes: int = 4,
    shots: int = 3,
    queries: int = 9,
    features: int = 6,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Task:
    """Tasks of well-separated clusters, of the kind a law or method takes."""
    generator = torch.Generator().manual_seed(seed)

    def noise(*size: int) -> Tensor:
        return torch.randn(*size, features, generator=generator, dtype=dtype)

    centres = 2 * noise(classes)
    text = normalize(centres + 0.3 * noise(classes), dim=-1)
    labels = torch.arange(classes).repeat_interleave(shots).expand(tasks, -1)
    truth = torch.randint(classes, (tasks, queries), generator=generator)
    support, query = (centres[y] + 0.7 * noise(*y.shape) for y in (labels, truth))
    if inputs == "features":
        return Task(support, labels, query, num_classes=classes)
    support, query = normalize(support, dim=-1), normalize(query, dim=-1)
    if inputs == "similarities":
        near = (0.25 + 0.05 * x @ text.mT for x in (support, query))  # as CLIP's cosines lie
        return Task(next(near), labels, next(near), num_classes=classes)
    return Task(support, labels, query, num_classes=classes, text=text)


def _run(check: Callable[..., None], *subject: Any) -> None:
    try:
        check(*subject)
    except (AssertionError, InputError) as error:  # the loop refuses what is not a number by itself
        rule = (check.__doc__ or check.__name__).strip()
        raise AssertionError(f"{_name(subject[0])}: {rule} {error}") from error


def _name(subject: Any) -> str:
    return f"{type(subject).__name__} ({subject.name})"


def _probabilities(subject: Any, *rest: Any) -> Callable[[Task], Tensor]:
    if isinstance(subject, Law):
        (schedule,) = rest
        return lambda task: gem(task, subject, schedule).probabilities
    return lambda task: subject.predict(task).probabilities


def _equal(a: Tensor, b: Tensor, factor: float = 1.0) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=factor * TOLERANCE[a.dtype], check_dtype=False)


# -- what holds for laws and methods alike
# --------------------------------------------------------------------------------


def gives_probabilities(subject: Any, *rest: Any) -> None:
    """Every query gets finite numbers of at least 0 that sum to 1, in the precision and on the shape of the task."""
    predict = _probabilities(subject, *rest)
    for dtype in TOLERANCE:
        task = random_task(subject.inputs, dtype=dtype)
        u = predict(task)
        assert u.shape == (len(task), task.num_queries, task.num_classes), f"got shape {tuple(u.shape)}"
        assert u.dtype == dtype, f"got {u.dtype} for {dtype}"
        assert bool(torch.isfinite(u).all()), "got numbers that are not finite"
        assert float(u.min()) >= 0, f"got {float(u.min())}"
        _equal(u.sum(-1), torch.ones_like(u[..., 0]), factor=10)


def takes_a_single_task(subject: Any, *rest: Any) -> None:
    """A task without a task dimension gives an answer without one."""
    task, predict = random_task(subject.inputs, tasks=1), _probabilities(subject, *rest)
    single = Task(task.support[0], task.support_labels[0], task.query[0], num_classes=task.num_classes, text=task.text)
    _equal(predict(single), predict(task)[0])


def tasks_do_not_see_each_other(subject: Any, *rest: Any) -> None:
    """A task's answer is the same alone and in a batch."""
    if not getattr(subject, "tasks_are_independent", True):
        return
    task, predict = random_task(subject.inputs), _probabilities(subject, *rest)
    _equal(torch.cat([predict(task[i : i + 1]) for i in range(len(task))]), predict(task))


def order_of_queries_does_not_matter(subject: Any, *rest: Any) -> None:
    """Queries in another order get the same answers."""
    task, predict = random_task(subject.inputs), _probabilities(subject, *rest)
    order = torch.randperm(task.num_queries, generator=torch.Generator().manual_seed(1))
    _equal(predict(task.of_queries(order)), predict(task)[:, order], factor=100)


def names_of_classes_do_not_matter(subject: Any, *rest: Any) -> None:
    """Classes with other numbers get the same answers under their new numbers."""
    task, predict = random_task(subject.inputs), _probabilities(subject, *rest)
    new = torch.randperm(task.num_classes, generator=torch.Generator().manual_seed(2))
    old = new.argsort()  # the class that has a new number
    support, query = task.support, task.query
    if subject.inputs == "similarities":
        support, query = support[..., old], query[..., old]
    text = None if task.text is None else task.text[old]
    renamed = Task(support, new[task.support_labels], query, num_classes=task.num_classes, text=text)
    _equal(predict(renamed)[..., new], predict(task), factor=100)


def padding_does_not_matter(subject: Any, *rest: Any) -> None:
    """Tasks with supports of different sizes in one batch get the answers that they get alone."""
    if not getattr(subject, "tasks_are_independent", True):
        return
    parts = [random_task(subject.inputs, tasks=1, shots=shots, seed=3) for shots in (2, 3)]
    predict = _probabilities(subject, *rest)
    _equal(predict(Task.stack(parts)), torch.cat([predict(part) for part in parts]), factor=10)


def sizes_may_be_awkward(subject: Any, *rest: Any) -> None:
    """One query, one shot, two classes, more classes than queries: probabilities all the same."""
    predict = _probabilities(subject, *rest)
    for sizes in (
        {"queries": 1},
        {"shots": 1},
        {"classes": 2},
        {"classes": 12, "queries": 3},
        {"shots": 1, "queries": 1},
    ):
        u = predict(random_task(subject.inputs, **sizes))  # type: ignore[arg-type]
        assert bool(torch.isfinite(u).all()), f"not finite for {sizes}"
        _equal(u.sum(-1), torch.ones_like(u[..., 0]), factor=10)


def inputs_are_left_alone(subject: Any, *rest: Any) -> None:
    """The features of a task are not changed."""
    task = random_task(subject.inputs)
    before = task.support.clone(), task.query.clone()
    _probabilities(subject, *rest)(task)
    assert torch.equal(task.support, before[0]), "the support was changed"
    assert torch.equal(task.query, before[1]), "the queries were changed"


# -- laws
# -----------------------------------------------------------------------------------------------------------------


def has_a_name_of_its_own(law: Law, schedule: Schedule) -> None:
    """A law has a name that no other law has, and says what its inputs are."""
    assert isinstance(law.name, str), f"name is {law.name!r}"
    assert LAWS.get(law.name) is type(law), f"{law.name!r} is the name of {LAWS.get(law.name)}"
    assert law.inputs in ("features", "similarities", "image+text"), f"inputs is {law.inputs!r}"
    assert law.proportion_floor > 0, f"proportion_floor is {law.proportion_floor!r}"


def objective_decreases(law: Law, schedule: Schedule) -> None:
    """With the same β and T in all layers, eq. 1 decreases from layer to layer (where the law can be traced)."""
    fixed = Schedule(1.0, 1.0, schedule.feature_scale, layers=8)
    try:
        trace: Any = gem(random_task(law.inputs), law, fixed, trace=True).trace
    except InputError:
        return  # it says that it has no trace
    rises = trace.objective.diff(dim=0).max().item()
    scale = max(1.0, trace.objective.abs().max().item())
    assert rises <= 1e-6 * scale, f"it rises by {rises}"


def gradients_are_right(law: Law, schedule: Schedule) -> None:
    """The gradient of ln u in β, T and T_z is that of finite differences."""
    start = Schedule((0.5, 1.2), (1.5, 1.2), schedule.feature_scale, text_weight=schedule.text_weights[0], law=law.name)
    model = UNEM(law, start, learn=LEARNABLE, constraints="log").double()
    statistics = law.prepare(random_task(law.inputs, tasks=1, queries=4))
    names = list(model.raw)
    weights = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64)

    def objective(*raw: Tensor) -> Tensor:
        replaced = {f"numbers.raw.{name}": value for name, value in zip(names, raw, strict=True)}
        log_u: Tensor = torch.func.functional_call(model, replaced, (statistics,))
        return (weights * log_u).sum()

    values = [model.raw[name].detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(objective, values, eps=1e-6, atol=1e-4, rtol=1e-3)


def a_schedule_is_learned(law: Law, schedule: Schedule) -> None:
    """Training gives a schedule that is for this law and for no other."""
    task = random_task("features", tasks=1, shots=24, seed=5)
    text = None if law.inputs == "features" else task.class_sums(task.support_rows)[0]
    features = FeatureSet(task.support[0].float(), task.support_labels[0], text_features=text)
    protocol = Protocol(shots=2, effective_classes=2, queries=8)
    learned = train(features, law, protocol, tasks=4, epochs=1, batch_size=2, validation_tasks=2, layers=2)
    assert learned.law == law.name, f"it says {learned.law!r}"
    other = next(kind for kind in LAWS.values() if kind.name != law.name)
    try:
        gem(random_task(law.inputs), other(), learned)
    except InputError:
        return
    raise AssertionError(f"the {other.name} law takes it")


# -- methods
# --------------------------------------------------------------------------------------------------------------


def says_what_it_is(method: Method) -> None:
    """A method has a name and inputs, and what it says of itself is plain data."""
    assert isinstance(method.name, str), f"name is {method.name!r}"
    assert method.inputs in ("features", "similarities", "image+text"), f"inputs is {method.inputs!r}"
    describe: Any = getattr(method, "describe", None)
    if describe is not None:
        json.dumps(plain(describe()))


def is_deterministic(method: Method) -> None:
    """The same task gets the same answer again."""
    task = random_task(method.inputs)
    assert torch.equal(method.predict(task).probabilities, method.predict(task).probabilities)


_COMMON = (
    gives_probabilities,
    takes_a_single_task,
    tasks_do_not_see_each_other,
    order_of_queries_does_not_matter,
    names_of_classes_do_not_matter,
    padding_does_not_matter,
    sizes_may_be_awkward,
    inputs_are_left_alone,
)
LAW_CHECKS = (has_a_name_of_its_own, *_COMMON, objective_decreases, gradients_are_right, a_schedule_is_learned)
"""What :func:`check_law` checks."""
METHOD_CHECKS = (says_what_it_is, *_COMMON, is_deterministic)
"""What :func:`check_method` checks."""
