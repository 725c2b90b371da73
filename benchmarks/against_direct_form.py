"""How much the library's forms gain over the direct ones, measured in one process, interleaved.

The direct forms are the paper's algorithms as they read: explicit means and squared distances by broadcasting (Gaussian),
majorise-minimise iterations (Dirichlet). Prints medians and their ratio; a ratio travels between machines, a time does not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

import unem

LAYERS, QUERIES = 10, 75


def direct_gaussian(task: unem.Task, beta: Tensor, temperature: Tensor, scale: Tensor) -> Tensor:
    """ln u of Algorithm 2, as printed."""
    support, query = scale * task.support, scale * task.query
    onehot = torch.nn.functional.one_hot(task.support_labels, task.num_classes).to(query.dtype)
    theta = onehot.mT @ support / onehot.sum(1).unsqueeze(-1)
    pi = query.new_ones(len(task), task.num_classes)
    for layer in range(LAYERS):
        distance = (query.unsqueeze(2) - theta.unsqueeze(1)).square().sum(-1)
        joint = -0.5 * distance + beta[layer] * torch.log(pi + 1e-6).unsqueeze(1)
        log_u = (joint / temperature[layer]).log_softmax(-1)
        u = log_u.exp()
        theta = (onehot.mT @ support + u.mT @ query) / (onehot.sum(1) + u.sum(1)).unsqueeze(-1)
        pi = u.mean(1)
    return log_u


def random_task(tasks: int, classes: int, features: int, shots: int) -> unem.Task:
    labels = torch.arange(classes).repeat_interleave(shots).expand(tasks, -1)
    centres = (
        torch.randn(tasks, classes, features)
        if features != classes
        else 0.2 + 0.06 * torch.eye(classes).expand(tasks, -1, -1)
    )
    noise = 1.0 if features != classes else 0.03
    truth = torch.randint(5, (tasks, QUERIES))
    gather = [centres.gather(1, y.unsqueeze(-1).expand(-1, -1, features)) for y in (labels, truth)]
    support, query = (x + noise * torch.randn_like(x) for x in gather)
    return unem.Task(support, labels, query)


def compare(name: str, tasks: int, direct: Callable[[], object], ours: Callable[[], object], repeats: int) -> None:
    direct(), ours()
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for times, function in zip(seconds, (direct, ours), strict=True):
            began = time.perf_counter()
            function()
            times.append((time.perf_counter() - began) / tasks)
    ratios = [a / b for a, b in zip(*seconds, strict=True)]
    middle = [1000 * statistics.median(s) for s in seconds]
    spread = f"{min(ratios):.1f}–{max(ratios):.1f}"
    print(
        f"{name:34s} direct {middle[0]:9.3f} ms/task   ours {middle[1]:8.3f}   ratio {statistics.median(ratios):6.1f} ({spread})"
    )


def gaussian(classes: int, features: int, shots: int, tasks: int) -> None:
    task = random_task(tasks, classes, features, shots)
    law = unem.Gaussian()
    schedule = unem.Schedule((1.5,) * LAYERS, (1.3,) * LAYERS, 0.5)
    beta, temperature = torch.full((LAYERS,), 1.5, requires_grad=True), torch.full((LAYERS,), 1.3, requires_grad=True)
    scale = torch.tensor(0.5, requires_grad=True)
    labels = torch.randint(classes, (tasks, QUERIES))
    model = unem.UNEM(law, schedule, learn=("class_balance", "temperature", "feature_scale"))
    kept = law.prepare(task)  # training computes these once for all epochs

    def loss(log_u: Tensor) -> None:
        torch.nn.functional.nll_loss(log_u.flatten(0, 1), labels.flatten()).backward()  # type: ignore[no-untyped-call]

    name = f"Gaussian K={classes} d={features} s={shots}"
    with torch.no_grad():
        compare(
            f"{name}, forward",
            tasks,
            lambda: direct_gaussian(task, beta, temperature, scale),
            lambda: unem.gem(task, law, schedule),
            5,
        )
    compare(
        f"{name}, training step",
        tasks,
        lambda: loss(direct_gaussian(task, beta, temperature, scale)),
        lambda: loss(model(kept)),
        5,
    )


def dirichlet(classes: int, tasks: int) -> None:
    task = random_task(tasks, classes, classes, 4)
    schedule = unem.Schedule(classes / 5, 1.0, 30.0, layers=LAYERS)
    compare(
        f"Dirichlet K={classes}, forward",
        tasks,
        lambda: unem.gem(task, unem.Dirichlet(solver="mm"), schedule),
        lambda: unem.gem(task, unem.Dirichlet(), schedule),
        3,
    )


if __name__ == "__main__":
    torch.manual_seed(0)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, L = {LAYERS}, |Q| = {QUERIES}; medians, ratio (range)"
    )
    gaussian(20, 512, 5, tasks=20)
    gaussian(160, 640, 5, tasks=4)
    dirichlet(47, tasks=8)
    dirichlet(100, tasks=4)
