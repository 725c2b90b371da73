"""The few numbers of ``evidence``, learned by gradient on tasks of many feature sets at once; and without one of them.

Tasks of 5 to 100 classes, 1 to 10 shots and 1 to 300 queries are drawn from each feature file and from two changed
copies of it (half as many features, noisy features). The library prepares them (``fit_likelihood``); what follows
depends on the queries through their inner products alone: the library's layers, with a gradient, for all sets of
numbers at a time. It starts at the numbers chosen by hand, after a check that padded tasks answer as single ones do.

With ``--leave-out SET``, or ``all`` of them in turn, numbers are also learned without that set and tried on its tasks:
numbers that only knew their sets would be worse there than those that were chosen.

Run: python benchmarks/evidence_numbers.py FEATURES... [--device cuda] [--minutes 7] [--leave-out all] [-o numbers.json]

It takes the minutes that it is given, of which a quarter prepares tasks, and then some seconds for the tests; on a CPU,
a few minutes are a trial and no more. It prints the accuracy on each left-out set and writes JSON: ``numbers``, and
``without`` (by set: ``numbers``, ``accuracy``), with the fields of ``EvidenceNumbers``.

Five minutes on an H200 with twelve files gave the library's numbers (``src/unem/methods/evidence.json``). What they
are worth on left-out sets is in ``benchmarks/results/evidence-leave-one-set-out.txt``.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from torch import Tensor

import unem
from unem.core.proportions import CONCENTRATIONS
from unem.methods.evidence import (
    CHOSEN,
    EvidenceNumbers,
    Likelihood,
    Queries,
    fit_likelihood,
    learned_numbers,
    queries_of,
    weigh_beliefs,
)

LAYERS = 4
UNITS = CHOSEN.gate_out.shape
# What is off in the chosen numbers has no gradient: a little of it is allowed at the start.
START = CHOSEN._replace(
    query_weight=torch.ones(LAYERS),
    moved=torch.full((LAYERS,), 0.5),
    moved_unknown=torch.tensor(0.15),
    temperature=torch.ones(LAYERS),
    belief=torch.cat([CHOSEN.belief[:-1], torch.tensor([-3.0])]),
    belief_per_query=torch.cat([CHOSEN.belief_per_query[:-1], CHOSEN.belief_per_query[-2:-1]]),
)
Transform = Callable[[Tensor], Tensor]
FREE: dict[str, tuple[Transform, Transform]] = {  # to parameters without bounds that one step size suits, and back
    **dict.fromkeys(("trust", "query_weight", "even_variance", "temperature", "class_balance"), (torch.log, torch.exp)),
    **dict.fromkeys(("moved", "moved_unknown"), (torch.logit, torch.sigmoid)),
    "belief_per_query": (lambda x: 100 * x, lambda x: x / 100),
}
LEARNED = ("first_evidence", "sharpness", "belief", "belief_per_query", "gate_in", "gate_bias", "gate_out", "doubt")
"""The gate. With the rest learned too, left-out sets had less: 85.3 instead of 85.7 in the situations."""
SHORT_STEPS = ("pivot", "belief_per_query", "gate_in", "gate_bias", "gate_out")
PREPARING, AVERAGED = 0.2, 0.3  # shares of the time: for tasks; at the end, over which numbers are averaged
STEP, PULL, TOLERANCE = 0.02, 1e-3, 1e-4
AT_ONCE, MOST_TASKS = {"cuda": 24e6, "cpu": 2e6}, 8  # in a step: assignments; tasks of a set
MIXED = ("even", "pooled", "few", "dirichlet", "heavy")
SITUATIONS = ("all alike", "three classes", "mostly one")  # as in situations.py
Images = tuple[Tensor, Tensor]  # features, and those of each class: [class, image], -1 for none
Parameters = dict[str, Tensor]  # each [row, ...]
Pool = dict["Shape", "Tasks"]


def parameters_of(numbers: EvidenceNumbers, device: str) -> Parameters:
    """One row, without bounds."""
    rows = {name: value.double().unsqueeze(0) for name, value in numbers._asdict().items()}
    return {name: (FREE[name][0](v) if name in FREE else v).float().to(device) for name, v in rows.items()}


def start_parameters(device: str) -> Parameters:
    """Of START, the units of the gate at random."""
    start = parameters_of(START, device)
    chance = torch.Generator().manual_seed(0)
    for name in ("gate_in", "gate_bias"):
        start[name] = 0.3 * torch.randn(start[name].shape, generator=chance).to(device)
    return start


def bounded(parameters: Parameters) -> EvidenceNumbers:
    """As the library has them, one more dimension in front."""
    return EvidenceNumbers(**{name: FREE[name][1](v) if name in FREE else v for name, v in parameters.items()})


def numbers_of(parameters: Parameters, row: int) -> dict[str, object]:
    """One row, as it is stored."""
    numbers = bounded({name: value[row].double().cpu() for name, value in parameters.items()})
    return {name: _rounded(value.tolist()) for name, value in numbers._asdict().items()}


def _rounded(values: object) -> object:
    return [_rounded(v) for v in values] if isinstance(values, list) else round(float(values), 5)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Shape:
    """Of tasks that can share a batch."""

    classes: int
    shots: int
    queries: int  # at most
    kinds: tuple[str, ...]
    weight: float  # how often it comes up


def read_images(path: Path, device: str) -> list[Images]:
    """The file's; then with half as many features, and with noisy features."""
    stored = unem.FeatureSet.load(path)
    classes = [torch.nonzero(stored.labels == c).flatten() for c in stored.labels.unique()]
    table = torch.nn.utils.rnn.pad_sequence(classes, batch_first=True, padding_value=-1).to(device)
    x, width = stored.features.float().to(device), stored.features.shape[1]
    turn = torch.linalg.qr(torch.randn(width, width))[0][:, : width // 2].to(x)
    noise = (0.6 + 0.6 * random.random()) * x.std(0).mean() * torch.randn_like(x)
    return [(features, table) for features in (x, x @ turn, x + noise)]


def draw(images: Images, shape: Shape, kind: str, tasks: int) -> tuple[Tensor, ...] | None:
    """Support, labels, queries, truth, and which queries are there (first); None where classes have too few images."""
    (x, table), device = images, images[0].device
    spare = 12 if kind in SITUATIONS else 2
    enough = torch.nonzero((table >= 0).sum(1) >= shape.shots + spare).flatten()
    if len(enough) < shape.classes:
        return None
    table = table[enough[torch.rand(tasks, len(enough), device=device).argsort(1)[:, : shape.classes]]]
    order = torch.rand(table.shape, device=device).masked_fill(table < 0, 2.0).argsort(2)
    support, rest = table.gather(2, order).split([shape.shots, table.shape[2] - shape.shots], 2)
    available = (rest >= 0).sum(2)
    fewest = 1 if shape.queries <= 20 else 30 if shape.queries <= 150 else 150
    wanted = torch.randint(fewest, shape.queries + 1, (tasks,), device=device)
    counts = situation_counts(kind, available) if kind in SITUATIONS else mixed_counts(kind, available, wanted)
    picked = (torch.arange(rest.shape[2], device=device) < counts.minimum(available).unsqueeze(-1)).flatten(1)
    key = torch.rand(picked.shape, device=device).masked_fill(~picked, 2.0)
    key = torch.nn.functional.pad(key, (0, max(0, shape.queries - key.shape[1])), value=2.0)
    key, order = key.sort(1)
    mask = key[:, : shape.queries] < 1.5
    order = order[:, : shape.queries] * mask
    query = rest.flatten(1).gather(1, order).clamp_min(0)
    labels = torch.arange(shape.classes, device=device).repeat_interleave(shape.shots).expand(tasks, -1)
    return x[support.flatten(1)], labels, x[query], order // rest.shape[2], mask


def at_random(proportions: Tensor, wanted: Tensor) -> Tensor:
    """Counts of so many draws from proportions, which need not sum to one."""
    most = int(wanted.max())
    drawn = torch.multinomial(proportions + 1e-9, most, replacement=True)
    there = (torch.arange(most, device=drawn.device) < wanted).long()
    return torch.zeros_like(proportions, dtype=torch.long).scatter_add_(1, drawn, there)


def mixed_counts(kind: str, available: Tensor, wanted: Tensor) -> Tensor:
    """Queries of each class, ``[task, class]``: about as many as are wanted."""
    (tasks, classes), device = available.shape, available.device
    wanted, chance = wanted.unsqueeze(1), torch.rand(tasks, classes, device=device)
    rank, some = chance.argsort(1).argsort(1), torch.rand(tasks, 1, device=device)
    if kind == "even":
        each = (wanted // classes).expand_as(available)
        return torch.where(each > 0, each, (rank < wanted).long())
    if kind == "pooled":
        return at_random(available.float(), wanted)
    if kind == "few":
        sizes = torch.tensor([k for k in (1, 2, 3, 5, 10) if k < classes], device=device)
        return at_random((available * (rank < sizes[torch.randint(len(sizes), (tasks, 1))])).float(), wanted)
    if kind == "dirichlet":
        return at_random(torch.distributions.Dirichlet((10**-some).expand(tasks, classes)).sample(), wanted)
    share, which = 0.5 + 0.4 * some, torch.randint(classes, (tasks, 1), device=device)
    most = (share * wanted).round().minimum(available.gather(1, which)).clamp_min(1)
    other = (most * (1 - share) / share / (classes - 1) + chance).floor().long()
    return other.scatter(1, which, most.long())


def situation_counts(kind: str, available: Tensor) -> Tensor:
    """The same of what users have: 12 of each class, 40 of each of three, or seven tenths of one."""
    classes, (most, which) = available.shape[1], available.max(1, keepdim=True)
    if kind == "all alike":
        return torch.full_like(available, 12)
    if kind == "three classes":
        three = (which + torch.arange(3, device=which.device)) % classes
        return torch.zeros_like(available).scatter(1, three, 40)
    other = (most * 0.3 / 0.7 / (classes - 1)).floor().clamp_min(1).long()
    return other.expand_as(available).scatter(1, which, most)


def shapes() -> list[Shape]:
    """The situations that users have, often; and many others."""
    of_some = ((1, 20), (1, 150), (2, 150), (3, 20), (3, 150), (5, 20), (5, 150), (5, 300), (10, 150))
    of_47 = ((1, 150), (2, 75), (3, 150), (5, 20), (5, 150), (5, 300))
    of_100 = ((1, 150), (3, 150), (5, 75), (5, 150), (5, 300))
    sizes = {5: of_some, 8: of_some, 12: of_some, 20: of_some, 47: of_47, 100: of_100}
    out = [Shape(k, *size, MIXED, 0.3) for k, several in sizes.items() for size in several]
    return out + [Shape(k, n, 300, SITUATIONS, weight) for k, weight in ((15, 3.0), (10, 1.0)) for n in (3, 5)]


@dataclass(frozen=True)
class Tasks:
    """What the numbers act on: products of whitened queries and support sums, and what the support says."""

    gram: Tensor  # [task, query, query]
    cross: Tensor  # [task, query, class]: with the sums of the support
    squares: Tensor  # [task, class]: of those sums
    counts: Tensor  # [task, class]
    scale: Tensor  # [task], as the three that follow
    spread: Tensor
    apart: Tensor
    calibrated: Tensor
    number: Tensor  # of queries
    mask: Tensor  # [task, query], as the two that follow
    truth: Tensor
    single: Tensor  # probability of the truth, each query by itself
    origin: Tensor  # [task]: number of the feature set
    changed: Tensor  # [task]: whether it is a changed copy

    def __getitem__(self, rows: Tensor) -> Tasks:
        """Some tasks, with as many queries as the largest of them has."""
        some = Tasks(*(getattr(self, f.name)[rows] for f in fields(self)))
        top = int(some.number.max())
        cut = {name: getattr(some, name)[:, :top] for name in ("cross", "mask", "truth", "single")}
        return replace(some, gram=some.gram[:, :top, :top], **cut)

    @property
    def likelihood(self) -> Likelihood:
        """Without a view: all products are known."""
        known = self.squares, self.counts, self.scale, self.spread, self.apart, None, self.calibrated
        return Likelihood(None, None, *known)  # type: ignore[arg-type]

    @property
    def queries(self) -> Queries:
        return Queries(self.gram, self.cross, None, self.mask.to(self.gram).unsqueeze(-1))


@torch.no_grad()
def prepared(drawn: Sequence[Tensor], classes: int, origin: int, changed: bool) -> Tasks:
    support, labels, query, truth, mask = drawn
    task = unem.Task(support, labels, query, num_classes=classes, validate=False)
    found = fit_likelihood(task)
    _, seen = queries_of(found, query, None)
    known = found.squares, found.counts, found.scale, found.spread, found.apart, found.calibrated
    single = found.of_support(seen.cross, CHOSEN.to(query)).softmax(-1).gather(2, truth.unsqueeze(-1)).squeeze(-1)
    about = (torch.full_like(truth[:, 0], value) for value in (origin, int(changed)))
    return Tasks(seen.gram, seen.cross, *known, mask.sum(1), mask, truth, single, *about)


def prepare_pool(sets: Sequence[Sequence[Images]], end: float) -> Pool:
    """Tasks of every shape, twice over; fewer where time ends before (at least one shape is prepared)."""
    parts: dict[Shape, list[Tasks]] = {}
    for shape in random.sample(shapes(), len(shapes())) * 2:
        if parts and time.monotonic() > end:
            break
        for origin, copies in enumerate(sets):
            for copy, images in enumerate(copies):
                tasks = (4 if shape.kinds == SITUATIONS else 2) * (1 if copy else 2)
                drawn = [d for kind in shape.kinds if (d := draw(images, shape, kind, tasks)) is not None]
                if drawn:
                    together = [torch.cat(values) for values in zip(*drawn, strict=True)]
                    parts.setdefault(shape, []).append(prepared(together, shape.classes, origin, copy > 0))
    return {
        shape: Tasks(*(torch.cat([getattr(part, f.name) for part in several]) for f in fields(Tasks)))
        for shape, several in parts.items()
    }


def answers(parameters: Parameters, tasks: Tasks) -> Tensor:
    """Probabilities for every row of the parameters, ``[row, task, query, class]``: the library's own layers."""
    likelihood, queries = tasks.likelihood, tasks.queries

    def of_row(numbers: EvidenceNumbers) -> Tensor:
        beliefs = weigh_beliefs(numbers, likelihood, queries)
        return likelihood.doubted(beliefs.average(), beliefs.independent, numbers)

    return torch.func.vmap(of_row)(bounded(parameters))


@torch.no_grad()
def check_against_library(images: Images) -> None:
    """Padded tasks give the answers that the library gives to each by itself."""
    for shots, name in ((1, "chosen"), (5, "chosen"), (1, "learned"), (5, "learned")):
        drawn = draw(images, Shape(5, shots, 75, MIXED, 1.0), "pooled", 3)
        assert drawn is not None, "the first file has fewer than 5 classes of 7 images"
        numbers = CHOSEN if name == "chosen" else learned_numbers()
        ours = answers(parameters_of(numbers, str(images[0].device)), prepared(drawn, 5, 0, False))[0]
        method = unem.create_method("evidence", numbers=name)
        support, labels, query, _, mask = drawn
        for i, queries in enumerate(mask.sum(1).tolist()):
            task = unem.Task(support[i], labels[i], query[i, :queries])
            apart = (method.predict(task).probabilities - ours[i, :queries]).abs().max().item()
            assert apart < TOLERANCE, f"{name} numbers, {shots} shots: {apart:.1e} from the library's answer"


# -- learning ----------------------------------------------------------------------------------------------------------


def losses(u: Tensor, t: Tasks) -> Tensor:
    """``[numbers, task]``: how improbable the truth is, and how much more so than for each query by itself."""
    share = t.mask / t.number.unsqueeze(1)
    right = u.gather(3, t.truth.expand(len(u), -1, -1).unsqueeze(-1)).squeeze(-1).clamp_min(1e-6)
    worse = (share * (t.single.clamp_min(1e-6).sqrt() - right.sqrt())).sum(-1).clamp_min(0)
    return (share * (2 * (1 - right.sqrt()) - 0.2 * right.log())).sum(-1) + 2 * worse


def some_tasks(pool: Pool, rows: int) -> Tasks:
    """Of one shape, as many of each set."""
    (shape,) = random.choices(list(pool), [s.weight for s in pool])
    tasks = pool[shape]
    sets = [torch.nonzero(tasks.origin == origin).flatten() for origin in tasks.origin.unique()]
    size = rows * len(CONCENTRATIONS) * shape.classes * shape.queries * len(sets)
    each = min(MOST_TASKS, max(1, int(AT_ONCE[tasks.gram.device.type] / size)))
    return tasks[torch.cat([of[torch.randint(len(of), (each,), device=of.device)] for of in sets])]


def clip_gradients(parameters: Parameters) -> None:
    """To length one, for each row by itself."""
    gradients = [value.grad.nan_to_num_(0.0, 0.0, 0.0) for value in parameters.values() if value.grad is not None]
    length = torch.cat([gradient.reshape(len(gradient), -1) for gradient in gradients], 1).norm(dim=1)
    for gradient in gradients:
        gradient /= length.clamp_min(1).view(-1, *(1,) * (gradient.ndim - 1))


def learn(pool: Pool, used: Tensor, end: float) -> Parameters:
    """A row of parameters for each row of ``used``, the sets that it learns from; the mean over the last part."""
    begin, device = time.monotonic(), str(used.device)
    start = {name: value.expand(len(used), *value.shape[1:]) for name, value in start_parameters(device).items()}
    parameters = {name: value.clone().requires_grad_(name in LEARNED) for name, value in start.items()}
    sizes = {name: STEP / 2 if name in SHORT_STEPS else STEP for name in LEARNED}
    groups = [{"params": [parameters[name]], "base": sizes[name]} for name in LEARNED]
    optimizer = torch.optim.Adam(groups, lr=STEP, betas=(0.9, 0.98))
    totals, averaged, step, part = {name: torch.zeros_like(v) for name, v in start.items()}, 0, 0, 0.0
    while part < 1:
        part = min(1.0, (time.monotonic() - begin) / max(1e-9, end - begin))
        for group in optimizer.param_groups:
            group["lr"] = group["base"] * min(1, (step + 1) / 20) * (0.52 + 0.5 * math.cos(math.pi * part))
        tasks = some_tasks(pool, len(used))
        weights = used[:, tasks.origin]
        loss = (losses(answers(parameters, tasks), tasks) * weights).sum(1)
        pull = sum((value - start[name]).square().sum() for name, value in parameters.items())
        optimizer.zero_grad()
        ((loss / weights.sum(1).clamp_min(1)).sum() + PULL * pull).backward()
        clip_gradients(parameters)
        optimizer.step()
        step += 1
        if part > 1 - AVERAGED:
            averaged += 1
            for name, value in parameters.items():
                totals[name] += value.detach()
    print(f"{step} steps in {time.monotonic() - begin:.0f} s", flush=True)
    return {name: total / averaged for name, total in totals.items()}


@torch.no_grad()
def accuracy(parameters: Parameters, pool: Pool, origin: int) -> list[float]:
    """Of each row of parameters on the unchanged tasks of a set, in percent (all shapes count alike); or nothing."""
    found = []
    for tasks in pool.values():
        own = torch.nonzero((tasks.origin == origin) & (tasks.changed == 0)).flatten()
        if len(own):
            parts = [tasks[rows] for rows in own.split(8)]
            right = [((answers(parameters, t).argmax(-1) == t.truth) & t.mask).sum(-1) / t.number for t in parts]
            found.append(torch.cat(right, 1).mean(1))
    return (100 * torch.stack(found).mean(0)).tolist() if found else []


def try_left_out(learned: Parameters, pool: Pool, names: Sequence[str], left_out: Sequence[str]) -> dict[str, object]:
    """Numbers and accuracy of each left-out set; row i of what was learned is without the i-th, the last with all."""
    device, out = str(learned["scale"].device), {}
    print(f"{'accuracy':32}{'chosen':>9}{'without':>9}{'with it':>9}")
    for i, name in enumerate(left_out):
        both, origin = {key: value[[i, -1]] for key, value in learned.items()}, names.index(name)
        rows = accuracy(parameters_of(CHOSEN, device), pool, origin) + accuracy(both, pool, origin)
        found = [round(a, 2) for a in rows]
        print(f"{name:32}" + "".join(f"{a:9.2f}" for a in found), flush=True)
        about = dict(zip(("chosen", "without", "with_it"), found, strict=False))
        out[name] = {"numbers": numbers_of(learned, i), "accuracy": about}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--leave-out", help="name of a file without its ending, or all")
    parser.add_argument("-o", "--output", type=Path, default=Path("numbers.json"))
    given = parser.parse_args()
    names = [file.stem for file in given.files]
    left_out = names if given.leave_out == "all" else [given.leave_out] if given.leave_out else []
    if not set(left_out) <= set(names) or (left_out and len(names) < 2):
        parser.error(f"--leave-out: expected all, or one of two or more files: {', '.join(names)}")
    torch.manual_seed(0)
    random.seed(0)
    begin = time.monotonic()
    sets = [read_images(file, given.device) for file in given.files]
    check_against_library(sets[0][0])
    pool = prepare_pool(sets, begin + 60 * PREPARING * given.minutes)
    print(f"{sum(len(t.truth) for t in pool.values())} tasks, {time.monotonic() - begin:.0f} s", flush=True)
    used = torch.tensor([[float(name != out) for name in names] for out in [*left_out, None]], device=given.device)
    learned = learn(pool, used, begin + 60 * given.minutes)
    without = try_left_out(learned, pool, names, left_out) if left_out else {}
    content = {"numbers": numbers_of(learned, -1), "without": without}
    given.output.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
