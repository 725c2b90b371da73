"""The gate of ``evidence``, learned by gradient on tasks of many feature sets at once; and without one of them.

Tasks of 3 to 100 classes, 1 to 20 shots and 1 to 500 queries are drawn from each feature file and, one in four, from
three changed copies of it (half as many features, noisy features, very noisy features). The library runs all beliefs on
them; what is learned decides only how much each belief counts, and how much each query by itself (``LEARNED``), so that
all that learning needs of a task is kept once: what the gate sees, and the probability that each belief gives to the
truth of each query. The linear classifier is that of the library's present numbers, and answers with the share that it
has in the library.

Then three numbers more are fitted, which change no label: to what power probabilities are raised, by overlap and shots,
so that they are as sure as they are right (``certainty``, by log-loss).

With ``--leave-out SET``, or ``all`` of them in turn, numbers are also learned without that set (and its copies): what
they are worth on it is the honest test. ``situations.py --numbers FILE`` and ``evidence_cells.py grid --numbers FILE``
try each set with the numbers that were learned without it.

Run: python benchmarks/evidence_numbers.py FEATURES... [--minutes 10] [--leave-out all] [-o numbers.json]

It prepares tasks for the minutes that it is given, then takes 800 steps for all sets of numbers at a time: some two
minutes on one core. It writes JSON: ``numbers``, and ``without`` (by set: ``numbers``, ``accuracy``), with the fields
of ``EvidenceNumbers``. The library's numbers are ``src/unem/methods/evidence.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

import unem
from unem.methods.evidence import (
    CHOSEN,
    EvidenceNumbers,
    GateInputs,
    belief_weights,
    doubt_at,
    fit_likelihood,
    fit_linear,
    learned_numbers,
    linear_share,
    queries_of,
    run_beliefs,
)

LAYERS = 4
START = CHOSEN._replace(
    query_weight=torch.ones(LAYERS),
    moved=torch.full((LAYERS,), 0.5),
    moved_unknown=torch.tensor(0.3),
    temperature=torch.tensor([2.0, 1.43, 1.18, 1.0]),
    linear=torch.tensor(8.0),
    linear_collision=torch.tensor(4.0),
    sharpness=torch.tensor([math.log(0.5), 0.0, 0.0]),
    collision=torch.tensor([0.5, 0.0, 0.0, 1.5, -1.0]),
    belief=torch.cat([CHOSEN.belief[:-1], torch.tensor([-3.0])]),
    belief_per_class=torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, -0.2, 0.0, 0.0]),
    belief_per_query=torch.tensor([0.0, 0.0, 0.0, 0.001, 0.006, 0.001, 0.01, 0.01]),
    belief_per_query_unknown=torch.tensor([0.0, 0.0, 0.0, 0.001, 0.006, -0.01, 0.02, 0.02]),
)
PER_HUNDRED = ("belief_per_class", "belief_per_query", "belief_per_query_unknown")
"""Learned times 100, so that one step size suits all."""
UNITS = ("gate_in", "gate_bias", "gate_out")
LEARNED = ("sharpness", "collision", "belief", *PER_HUNDRED, *UNITS, "doubt")
"""The gate. With the layers' numbers learned too, left-out sets had less: 85.3 instead of 85.7 in the situations."""
STEPS, BATCH, STEP, PULL, AVERAGED = 800, 512, 0.02, 1e-3, 0.3  # numbers are averaged over the last part of the steps
WORSE = 4.0  # how much it hurts, beside all else, to be worse than each query by itself
TOLERANCE = 1e-3  # outcomes are kept in half precision
KEPT = 300  # queries of a task, at most
ANSWERED, ASKED, WIDEST = 100, 20, 24  # tasks of a set that certainty is fitted to; queries and classes of them
COPIES = (0,) * 9 + (1, 2, 3)  # how often a file's features are used as they are, and each changed copy
MIXED = ("even", "pooled", "few", "dirichlet", "heavy", "long tail", "long tail")
SITUATIONS = ("all alike", "three classes", "mostly one")  # as in situations.py
Images = tuple[Tensor, Tensor]  # features, and those of each class: [class, image], -1 for none
Parameters = dict[str, Tensor]  # each [row, ...]


def start_parameters(rows: int) -> Parameters:
    """Of START, the units of the gate at random."""
    chance, start = torch.Generator().manual_seed(0), START._asdict()
    for name in ("gate_in", "gate_bias"):
        start[name] = 0.3 * torch.randn(start[name].shape, generator=chance)
    start |= {name: 100 * start[name] for name in PER_HUNDRED}
    return {name: start[name].float().expand(rows, *start[name].shape).clone() for name in LEARNED}


def numbers_at(parameters: Parameters) -> EvidenceNumbers:
    """As the library has them; what is not learned, as at the start."""
    return START.to(parameters["doubt"])._replace(**(parameters | {n: parameters[n] / 100 for n in PER_HUNDRED}))


def numbers_of(parameters: Parameters, certainty: Tensor, row: int) -> dict[str, object]:
    """One row, as it is stored."""
    numbers = numbers_at({name: value[row].double() for name, value in parameters.items()})
    numbers = numbers._replace(certainty=certainty[row].double())
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


def read_images(path: Path) -> list[Images]:
    """The file's; then with half as many features, with noisy features, and so noisy that classes overlap."""
    stored = unem.FeatureSet.load(path)
    classes = [torch.nonzero(stored.labels == c).flatten() for c in stored.labels.unique()]
    table = torch.nn.utils.rnn.pad_sequence(classes, batch_first=True, padding_value=-1)
    x, width = stored.features.float(), stored.features.shape[1]
    turn = torch.linalg.qr(torch.randn(width, width))[0][:, : width // 2]
    amounts = 0.6 + 0.6 * random.random(), 1.5 + random.random()
    noisy = (x + amount * x.std(0).mean() * torch.randn_like(x) for amount in amounts)
    return [(features, table) for features in (x, x @ turn, *noisy)]


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
    if kind == "long tail":
        shares = (1.0 + rank) ** -(0.6 + 0.8 * some)
        if random.random() < 0.5:
            return at_random(shares, wanted)
        return (shares / shares.sum(1, keepdim=True) * wanted).round().clamp_min(1).long()
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
    sizes = ((1, 20), (1, 150), (2, 150), (3, 20), (3, 150), (5, 20), (5, 150), (5, 300), (10, 150))
    weights = (1.0, 1.0, 0.6, 0.5, 1.0, 0.5, 1.0, 0.5, 0.8)
    out = [Shape(k, *size, MIXED, w) for k in (3, 5, 8, 12, 15, 20, 24) for size, w in zip(sizes, weights, strict=True)]
    out += [Shape(47, *size, MIXED, 0.9) for size in ((1, 150), (3, 150), (5, 20), (5, 150), (5, 300), (10, 75))]
    out += [Shape(60, 5, 75, MIXED, 1.5), Shape(60, 20, 75, MIXED, 0.3)]
    out += [Shape(47, 1, 20, MIXED, 1.0), Shape(60, 1, 20, MIXED, 0.7), Shape(60, 1, 500, MIXED, 0.4)]
    out += [Shape(47, 5, 500, MIXED, 0.4), Shape(60, 5, 500, MIXED, 0.5)]
    out += [Shape(20, 1, 500, MIXED, 0.5), Shape(20, 5, 500, MIXED, 0.5)]
    out += [Shape(100, 1, 150, MIXED, 0.6), Shape(100, 5, 150, MIXED, 1.5)]
    often = ((1, 2.0), (2, 2.0), (3, 6.0), (5, 6.0), (10, 2.0))
    return out + [Shape(k, n, 300, SITUATIONS, w) for k in (10, 15) for n, w in often]


# -- what is kept of a task --------------------------------------------------------------------------------------------


class Outcomes(NamedTuple):
    """What came of all beliefs.

    Attributes:
        inputs: what the gate sees.
        right: probability of the truth by each belief and by the linear classifier, ``[task, belief, query]``.
        cautious: the same of the answer that doubt mixes in.
        share: one over the number of queries; 0 for rows that are no query.
        collision, ratio: what the share of the linear classifier depends on.
        hits: share of right labels by each belief and by the linear classifier, ``[task, belief]``.
        origin, changed: number of the feature set, and whether it is a changed copy.
    """

    inputs: GateInputs
    right: Tensor
    cautious: Tensor
    share: Tensor
    collision: Tensor
    ratio: Tensor
    hits: Tensor
    origin: Tensor
    changed: Tensor

    def of(self, rows: Tensor) -> Outcomes:
        return Outcomes(GateInputs(*(value[rows] for value in self.inputs)), *(value[rows] for value in self[1:]))


class Answers(NamedTuple):
    """Of tasks, by every belief, each query by itself and the linear classifier.

    Attributes:
        inputs: what the gate sees.
        each: probabilities, ``[task, belief, query, class]``.
        cautious: of the answer that doubt mixes in.
        collision, ratio: what the share of the linear classifier depends on.
    """

    inputs: GateInputs
    each: Tensor
    cautious: Tensor
    collision: Tensor
    ratio: Tensor


def answers_of(drawn: Sequence[Tensor], classes: int) -> Answers:
    support, labels, query, _, mask = drawn
    found = fit_likelihood(unem.Task(support, labels, query, num_classes=classes, validate=False))
    seen = replace(queries_of(found, query, None)[1], there=mask.to(query).unsqueeze(-1))
    beliefs = run_beliefs(START.to(query), found, seen)
    beliefs = replace(beliefs, weights=belief_weights(learned_numbers().to(query), beliefs.seen))
    linear = fit_linear(found, seen, beliefs)
    others = torch.stack([beliefs.independent.softmax(-1), linear.logits.softmax(-1)], 1)
    shares = linear.collision(beliefs), linear.sure / found.counts.sum(1)
    return Answers(beliefs.seen, torch.cat([beliefs.answers, others], 1), found.cautious(beliefs.independent), *shares)


@torch.no_grad()
def outcomes(drawn: Sequence[Tensor], classes: int, origin: int, changed: bool) -> Outcomes:
    """Of drawn tasks, with ``KEPT`` queries."""
    truth, mask = drawn[3:]
    found = answers_of(drawn, classes)
    right = found.each.gather(3, truth.view(len(truth), 1, -1, 1).expand(-1, found.each.shape[1], -1, 1)).squeeze(-1)
    cautious = found.cautious.gather(2, truth.unsqueeze(-1)).squeeze(-1)
    share = mask / mask.sum(1, keepdim=True)
    hits = ((found.each.argmax(-1) == truth.unsqueeze(1)) * share.unsqueeze(1)).sum(-1)
    kept_share = mask[:, :KEPT] / mask[:, :KEPT].sum(1, keepdim=True)  # queries that are there come first
    kept = (torch.nn.functional.pad(x, (0, KEPT - x.shape[-1])).half() for x in (right, cautious, kept_share))
    marks = (torch.full_like(truth[:, 0], int(value)) for value in (origin, changed))
    return Outcomes(found.inputs, *kept, found.collision, found.ratio, hits, *marks)


def prepare(sets: Sequence[Sequence[Images]], end: float) -> Outcomes:
    """Tasks of shapes at random until then, of every set in turn."""
    kinds, parts = shapes(), []
    while not parts or time.monotonic() < end:
        (shape,) = random.choices(kinds, [s.weight for s in kinds])
        for origin, copies in enumerate(sets):
            copy, kind = random.choice(COPIES), random.choice(shape.kinds)
            drawn = draw(copies[copy], shape, kind, 2 if shape.classes <= 24 else 1)
            if drawn is not None:
                drawn = [values[drawn[-1].any(1)] for values in drawn]  # a task without a query is none
                parts.append(outcomes(drawn, shape.classes, origin, copy > 0))
    inputs = GateInputs(*(torch.cat(values) for values in zip(*(part.inputs for part in parts), strict=True)))
    return Outcomes(inputs, *(torch.cat(values) for values in zip(*(part[1:] for part in parts), strict=True)))


# -- learning ----------------------------------------------------------------------------------------------------------


def weigh(parameters: Parameters, tasks: Outcomes | Answers) -> tuple[Tensor, Tensor]:
    """For each row of parameters: weights of beliefs and linear classifier, ``[row, task, belief]``; doubt."""

    def of_row(parameters: Parameters) -> tuple[Tensor, Tensor]:
        numbers = numbers_at(parameters)
        weights = belief_weights(numbers, tasks.inputs)
        share = linear_share(numbers, tasks.inputs, weights, tasks.collision, tasks.ratio).unsqueeze(1)
        few, others = weights[:, :-2], weights[:, -2:]
        weights = torch.cat([(1 - share) * few, others, share * few.sum(1, keepdim=True)], 1)
        return weights, doubt_at(numbers, tasks.inputs.overlap, tasks.inputs.calibrated)

    weights, doubt = torch.func.vmap(of_row)(parameters)
    return weights, doubt


def mixed(parameters: Parameters, tasks: Outcomes) -> tuple[Tensor, Tensor]:
    """For each row of parameters: weights of beliefs and linear classifier, ``[row, task, belief]``; probability of the
    truth."""

    weights, doubt = weigh(parameters, tasks)
    right = torch.einsum("rtb,tbq->rtq", weights, tasks.right.float())
    return weights, (1 - doubt.unsqueeze(-1)) * right + doubt.unsqueeze(-1) * tasks.cautious.float()


@torch.no_grad()
def check_against_library(images: Images) -> None:
    """Padded tasks, mixed here, are what the library makes of each by itself, but for the power."""
    plain = learned_numbers()._replace(certainty=CHOSEN.certainty)
    numbers = {n: v.unsqueeze(0).float() for n, v in learned_numbers()._asdict().items() if n in LEARNED}
    numbers |= {name: 100 * numbers[name] for name in PER_HUNDRED}
    for shots in (1, 5):
        drawn = draw(images, Shape(5, shots, 75, MIXED, 1.0), "pooled", 3)
        assert drawn is not None, "the first file has fewer than 5 classes of 7 images"
        found = mixed(numbers, outcomes(drawn, 5, 0, False))[1][0]
        support, labels, query, truth, mask = drawn
        for i, queries in enumerate(mask.sum(1).tolist()):
            task = unem.Task(support[i], labels[i], query[i, :queries])
            with patch("unem.methods.evidence.learned_numbers", lambda: plain):
                said = unem.create_method("evidence").predict(task).probabilities
            apart = (said.gather(1, truth[i, :queries, None]).squeeze(1) - found[i, :queries]).abs().max().item()
            assert apart < TOLERANCE, f"{shots} shots: {apart:.1e} from the library's answer"


def losses(right: Tensor, tasks: Outcomes) -> Tensor:
    """``[row, task]``: how improbable the truth is, and how much more so than for each query by itself."""
    share, single = tasks.share.float(), tasks.right[:, -2].float()
    right = right.clamp_min(1e-6)
    worse = (share * (single.clamp_min(1e-6).sqrt() - right.sqrt())).sum(-1).clamp_min(0)
    careful = torch.where(tasks.inputs.calibrated.bool(), WORSE, 2 * WORSE)  # where nothing could be held out
    return (share * (2 * (1 - right.sqrt()) - 0.2 * right.log())).sum(-1) + careful * worse


def clip_gradients(parameters: Parameters) -> None:
    """To length one, for each row by itself."""
    gradients = [value.grad for value in parameters.values() if value.grad is not None]
    length = torch.cat([gradient.reshape(len(gradient), -1) for gradient in gradients], 1).norm(dim=1)
    for gradient in gradients:
        gradient /= length.clamp_min(1).view(-1, *(1,) * (gradient.ndim - 1))


def learn(tasks: Outcomes, used: Tensor) -> Parameters:
    """A row of parameters for each row of ``used``, the sets that it learns from; the mean over the last part."""
    start = start_parameters(len(used))
    parameters = {name: value.clone().requires_grad_() for name, value in start.items()}
    groups = [
        {"params": [v], "base": STEP / 2 if name in (*PER_HUNDRED, *UNITS) else STEP} for name, v in parameters.items()
    ]
    optimizer = torch.optim.Adam(groups, lr=STEP, betas=(0.9, 0.98))
    totals = {name: torch.zeros_like(value) for name, value in start.items()}
    frequency = tasks.origin.bincount(minlength=used.shape[1]).float().reciprocal()[tasks.origin]
    for step in range(STEPS):
        part = step / STEPS
        for group in optimizer.param_groups:
            group["lr"] = group["base"] * min(1, (step + 1) / 20) * (0.52 + 0.5 * math.cos(math.pi * part))
        some = tasks.of(torch.multinomial(frequency, BATCH, replacement=True))
        weights = used[:, some.origin]
        loss = (losses(mixed(parameters, some)[1], some) * weights).sum(1) / weights.sum(1)
        pull = sum((value - start[name]).square().sum() for name, value in parameters.items())
        optimizer.zero_grad()
        (loss.sum() + PULL * pull).backward()
        clip_gradients(parameters)
        optimizer.step()
        if part >= 1 - AVERAGED:
            for name, value in parameters.items():
                totals[name] += value.detach() / (AVERAGED * STEPS)
    return totals


# -- certainty ---------------------------------------------------------------------------------------------------------


class Certain(NamedTuple):
    """What the power of probabilities is fitted to.

    Attributes:
        logits: of the answers of each row of parameters, ``[row, task, query, class]``, padded.
        truth: of the queries, ``[task, query]``.
        coordinates: what ``certainty`` is multiplied with; zeros where nothing could be held out.
        origin: number of the feature set.
    """

    logits: Tensor
    truth: Tensor
    coordinates: Tensor
    origin: Tensor


@torch.no_grad()
def answer_some(sets: Sequence[Sequence[Images]], learned: Parameters) -> Certain:
    """``ANSWERED`` unchanged tasks of every set, some queries of each."""
    kinds = [shape for shape in shapes() if shape.classes <= WIDEST]
    parts, marks = [], []
    for origin, copies in enumerate(sets):
        done = 0
        while done < ANSWERED:
            (shape,) = random.choices(kinds, [s.weight for s in kinds])
            drawn = draw(copies[0], shape, random.choice(shape.kinds), 1)
            if drawn is None or int(drawn[-1].sum()) < ASKED:
                continue
            found, done = answers_of(drawn, shape.classes), done + 1
            weights, doubt = weigh(learned, found)
            joint = torch.einsum("rb,bqk->rqk", weights[:, 0], found.each[0, :, :ASKED])
            joint = (1 - doubt.unsqueeze(-1)) * joint + doubt.unsqueeze(-1) * found.cautious[0, :ASKED]
            wide = torch.nn.functional.pad(joint, (0, WIDEST - shape.classes))
            parts.append((wide.clamp_min(1e-12).log(), drawn[3][0, :ASKED]))
            size = found.inputs
            ratios = torch.stack([size.overlap / 4, size.shots / 4], 1).log()
            marks.append((size.calibrated[0] * torch.cat([torch.ones(1), ratios[0]]), origin))
    logits, truth = (torch.stack(values) for values in zip(*parts, strict=True))
    return Certain(
        logits.transpose(0, 1), truth, torch.stack([seen for seen, _ in marks]), torch.tensor([at for _, at in marks])
    )


def fit_certainty(answers: Certain, used: Tensor) -> Tensor:
    """By log-loss, a row for each row of parameters."""
    rows = []
    for logits, allowed in zip(answers.logits, used, strict=True):
        own = allowed[answers.origin].bool()
        value = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.LBFGS([value], max_iter=50, line_search_fn="strong_wolfe")

        def loss(value: Tensor = value, own: Tensor = own, logits: Tensor = logits) -> Tensor:
            power = (answers.coordinates[own] @ value).exp().view(-1, 1, 1)
            lost = torch.nn.functional.cross_entropy((power * logits[own]).flatten(0, 1), answers.truth[own].flatten())
            return lost + PULL * value.square().sum()

        def step(optimizer: torch.optim.Optimizer = optimizer, loss: Callable[[], Tensor] = loss) -> Tensor:
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        optimizer.step(step)
        rows.append(value.detach())
    return torch.stack(rows)


@torch.no_grad()
def try_left_out(
    learned: Parameters, certainty: Tensor, tasks: Outcomes, names: Sequence[str], left_out: Sequence[str]
) -> dict[str, object]:
    """Numbers and accuracy of each left-out set; row i of what was learned is without the i-th, the last with all.

    The accuracy is that of a belief drawn by its weight, on the unchanged tasks of the set.
    """
    out = {}
    print(f"{'accuracy':32}{'by itself':>10}{'without':>10}{'with it':>10}")
    for i, name in enumerate(left_out):
        own = tasks.of(torch.nonzero((tasks.origin == names.index(name)) & (tasks.changed == 0)).flatten())
        weights = mixed({key: value[[i, -1]] for key, value in learned.items()}, own)[0]
        found = [100 * float(own.hits[:, -2].mean()), *(100 * (weights * own.hits).sum(-1).mean(1)).tolist()]
        print(f"{name:32}" + "".join(f"{a:10.2f}" for a in found), flush=True)
        accuracy = dict(zip(("by_itself", "without", "with_it"), (round(a, 2) for a in found), strict=True))
        out[name] = {"numbers": numbers_of(learned, certainty, i), "accuracy": accuracy}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0, help="of preparing tasks")
    parser.add_argument("--leave-out", help="name of a file without its ending, or all")
    parser.add_argument("-o", "--output", type=Path, default=Path("numbers.json"))
    given = parser.parse_args()
    names = [file.stem for file in given.files]
    left_out = names if given.leave_out == "all" else [given.leave_out] if given.leave_out else []
    if not set(left_out) <= set(names) or (left_out and len(names) < 2):
        parser.error(f"--leave-out: expected all, or one of two or more files: {', '.join(names)}")
    torch.manual_seed(0)
    random.seed(0)
    sets = [read_images(file) for file in given.files]
    check_against_library(sets[0][0])
    tasks = prepare(sets, time.monotonic() + 60 * given.minutes)
    print(f"{len(tasks.origin)} tasks", flush=True)
    used = torch.tensor([[float(name != out) for name in names] for out in [*left_out, None]])
    learned = learn(tasks, used)
    certainty = fit_certainty(answer_some(sets, learned), used)
    without = try_left_out(learned, certainty, tasks, names, left_out) if left_out else {}
    content = {"numbers": numbers_of(learned, certainty, -1), "without": without}
    given.output.write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
