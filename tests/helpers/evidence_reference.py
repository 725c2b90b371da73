"""`evidence` as docs/evidence.md states it, sections 1 to 6, in NumPy and float64, one task at a time: slow, with plain
loops, and written from that page alone. A sample is left out by forming the within-class scatter without it and
inverting that anew. Left out: known queries and streams, more than 192 samples or 2,048 queries, and which one of some
copies that are not quite the same stands for them (here the first).

`predict` and `predict_with_texts_alone` are what to call; `numbers` is `dataclasses.asdict(unem.evidence.Numbers())`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, exp, lgamma, log, sqrt
from types import SimpleNamespace

import numpy as np

GAMMAS = (2.0, 5.0, 10.0, 20.0, 40.0, 70.0, 100.0)
ROUNDING = (32 * 2.0**-52) ** 2  # of rows that coincide with the centre
HYPOTHESES = ("few", "uneven", "dominant", "even")


@dataclass
class Whitening:
    """Section 1, fitted to a support."""

    centre: np.ndarray
    channels: np.ndarray | None
    second_centre: np.ndarray
    ridge: float
    scatter: np.ndarray  # RᵀR
    metric: np.ndarray  # M

    def placed(self, unit: np.ndarray) -> np.ndarray:
        """Rows before their length under M is made one."""
        if self.channels is None:  # nothing varies
            return unit - self.centre
        rows = np.array([unit_length(row) for row in (unit - self.centre) * self.channels])
        return rows - self.second_centre

    def rows(self, unit: np.ndarray) -> np.ndarray:
        return lengths_one(self.placed(unit), self.metric)


@dataclass
class Calibration:
    """Section 2."""

    known: bool
    scale: float
    rho: float
    distance: float  # Δ²
    overlap: float  # R
    slope: float
    gamma: float = 0.0


@dataclass
class Answer:
    """All that is compared with the library."""

    probabilities: np.ndarray
    independent: np.ndarray
    evidence: np.ndarray
    weights: np.ndarray
    shift: float
    detail: SimpleNamespace = field(default_factory=SimpleNamespace)


def unit_length(row: np.ndarray) -> np.ndarray:
    length = sqrt(float(row @ row))
    return row / length if length > 0 else row


def lengths_one(rows: np.ndarray, metric: np.ndarray) -> np.ndarray:
    result = np.zeros_like(rows)
    for i, row in enumerate(rows):
        square = float(row @ metric @ row)
        result[i] = row / sqrt(square) if row @ row > ROUNDING else row
    return result


def softmax(row: np.ndarray) -> np.ndarray:
    shares = np.exp(row - row.max())
    return shares / shares.sum()


def log_softmax(row: np.ndarray) -> np.ndarray:
    return row - row.max() - log(float(np.exp(row - row.max()).sum()))


def distance(x: np.ndarray, y: np.ndarray, metric: np.ndarray) -> float:
    return float((x - y) @ metric @ (x - y))


def class_means(rows: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    return np.array([rows[labels == k].mean(0) for k in range(classes)])


def counts_of(labels: np.ndarray, classes: int) -> np.ndarray:
    return np.array([float((labels == k).sum()) for k in range(classes)])


def weighted_mean(rows: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """A class of n samples counts √n."""
    total, weight = np.zeros(rows.shape[1]), 0.0
    for row, label in zip(rows, labels, strict=True):
        total += row / sqrt(counts[label])
        weight += 1 / sqrt(counts[label])
    return total / weight


def whiten(unit: np.ndarray, labels: np.ndarray, classes: int, numbers: dict) -> Whitening:
    """Section 1."""
    samples, features = unit.shape
    counts = counts_of(labels, classes)
    centre = weighted_mean(unit, labels, counts)
    moved = unit - centre
    means = class_means(moved, labels, classes)
    freedom = samples - 1
    spread = np.zeros(features)
    for row, label in zip(moved, labels, strict=True):
        spread += (row - means[label]) ** 2
        if freedom:
            spread += row**2 / freedom
    t = (1 - numbers["channel_shrink"]) * freedom / (freedom + numbers["channel_samples"])
    average = spread.mean()
    if average < 1e-10:
        return Whitening(centre, None, centre, 1.0, np.zeros((features, features)), np.eye(features))
    channels = np.sqrt(average / (t * spread + (1 - t) * average))
    rows = np.array([unit_length(row) for row in moved * channels])
    second = weighted_mean(rows, labels, counts)
    rows = rows - second
    means = class_means(rows, labels, classes)
    scatter = np.zeros((features, features))
    if samples > classes:
        for row, label in zip(rows, labels, strict=True):
            scatter += np.outer(row - means[label], row - means[label]) / (samples - classes)
    shrink = numbers["covariance_shrink"]
    ridge = shrink * np.trace(scatter) / features / (1 - shrink)
    if ridge == 0:
        ridge = 1.0
    metric = ridge * np.linalg.inv(scatter + ridge * np.eye(features))
    return Whitening(centre, channels, second, ridge, scatter, metric)


def left_out(whitening: Whitening, unit: np.ndarray, labels: np.ndarray, classes: int) -> list[tuple]:
    """Of each sample whose class has another one: its label, squared distances to all means, variances of these."""
    placed = whitening.placed(unit)
    counts, means = counts_of(labels, classes), class_means(placed, labels, classes)
    samples, features = unit.shape
    result = []
    for i, label in enumerate(labels):
        n = counts[label]
        if n < 2:
            continue
        residual = placed[i] - means[label]
        scatter = whitening.scatter - n / (n - 1) * np.outer(residual, residual) / (samples - classes)
        metric = whitening.ridge * np.linalg.inv(scatter + whitening.ridge * np.eye(features))
        rows = lengths_one(placed, metric)
        others = np.array([j for j in range(samples) if j != i])
        rest = class_means(rows[others], labels[others], classes)
        distances = np.array([distance(rows[i], rest[k], metric) for k in range(classes)])
        variances = 1 / counts_of(labels[others], classes)
        result.append((i, label, distances, variances))
    return result


def slope_of_lengths(means: np.ndarray, counts: np.ndarray, metric: np.ndarray) -> float:
    """How ‖m‖² falls with 1/n: least squares over the classes, kept in 0 … 1."""
    lengths = np.array([float(m @ metric @ m) for m in means])
    v = 1 / counts
    across = float(((v - v.mean()) ** 2).sum())
    if across < 1e-12:
        return 0.0
    return min(1.0, max(0.0, float(((v - v.mean()) * (lengths - lengths.mean())).sum()) / across))


def is_calibrated(counts: np.ndarray) -> bool:
    classes = len(counts)
    enough = max(2, ceil(classes / 2))
    return int((counts >= 2).sum()) >= enough


def vertex(values: list[float], step: float) -> tuple[float, float]:
    """Where the parabola through the three values about the best one has its least, at most a step away; its value."""
    best = min(max(int(np.argmin(values)), 1), len(values) - 2)
    before, at, after = values[best - 1], values[best], values[best + 1]
    bend, slope = max(before - 2 * at + after, 1e-9), 0.5 * (after - before)
    offset = min(1.0, max(-1.0, -slope / bend))
    return (best + offset) * step, at + offset * slope + 0.5 * bend * offset**2


def calibrate(whitening, unit, labels, classes, cosines, numbers) -> Calibration:
    """Section 2, and the weight of texts of section 6."""
    counts = counts_of(labels, classes)
    means = class_means(whitening.rows(unit), labels, classes)
    slope = slope_of_lengths(means, counts, whitening.metric)
    v = 1 / counts
    text_prior = lambda gamma: (log(gamma / numbers["text_weight"]) / numbers["text_weight_spread"]) ** 2 / 2  # noqa: E731
    if not is_calibrated(counts):
        overlap, gamma = numbers["unknown_overlap"], 0.0
        if cosines is not None:
            overlap = numbers["unknown_overlap_text"]
            losses = []
            for g in (*GAMMAS, 140.0):
                loss = text_prior(g)
                for i, label in enumerate(labels):
                    loss -= log_softmax(g * cosines[i])[label]
                losses.append(loss)
            gamma = (*GAMMAS, 140.0)[int(np.argmin(losses))]
        return Calibration(False, numbers["unknown_scale"], 1.0, 2 / overlap, overlap, slope, gamma)
    held = left_out(whitening, unit, labels, classes)
    rho = sum(d[y] for _, y, d, _ in held) / sum(1 + var[y] for _, y, _, var in held)
    e = (slope - rho) * (v - v.mean())
    apart = [d[k] - rho * (1 + var[k]) - e[k] for _, y, d, var in held for k in range(classes) if k != y]
    delta = max(float(np.mean(apart)) if apart else 0.0, 2 * rho / numbers["largest_overlap"], 0.01)
    overlap = max(2 * rho / delta, 0.1)
    step = 2.7 * log(10) / 13
    found = []
    for gamma in GAMMAS if cosines is not None else (0.0,):
        losses = []
        for j in range(14):
            s = 10 ** (2.7 * j / 13)
            loss = (log(s / numbers["scale"]) / numbers["scale_spread"]) ** 2 / 2
            for i, y, d, var in held:
                logits = -0.5 * s * (d - rho * (1 + var) - e)
                if cosines is not None:
                    logits = logits + gamma * cosines[i]
                loss -= log_softmax(logits)[y]
            losses.append(loss + (text_prior(gamma) if gamma else 0.0))
        log_scale, least = vertex(losses, step)
        found.append((least, log_scale, gamma))
    _, log_scale, gamma = min(found)
    kappa = numbers["trust"] * overlap
    out = float(np.mean([var for _, _, _, var in held]))
    scale = exp(log_scale) * (1 + kappa * out) / (1 + kappa * v.mean())
    return Calibration(True, scale, rho, delta, overlap, slope, gamma)


def span_inverse(gram: np.ndarray) -> np.ndarray:
    mean = np.trace(gram) / len(gram)
    return np.linalg.inv(gram + 1e-5 * mean * np.eye(len(gram))) if mean > 0 else np.zeros_like(gram)


def shift_of(unit, labels, classes, queries, numbers) -> tuple[float, np.ndarray]:
    """Section 4: its share, and the offset that is not in the span of the class means."""
    samples, counts = len(unit), counts_of(labels, classes)
    means = class_means(unit, labels, classes)
    centre = means.mean(0)
    span = means - centre
    offset = queries.mean(0) - centre
    b = offset - span.T @ (span_inverse(span @ span.T) @ (span @ offset))
    across = float((span**2).sum()) / max(classes - 1, 1)
    if samples > classes:
        within = sum(float(((unit[i] - means[y]) ** 2).sum()) for i, y in enumerate(labels)) / (samples - classes)
    else:
        within = across / 2
    w = within * float((1 / counts).mean())
    outside = max(0.0, 1 - w / across) if across > 0 else 0.0
    nearest = [int(np.argmin([float(((row - mean) ** 2).sum()) for mean in means])) for row in queries]
    collision = float(((np.bincount(nearest, minlength=classes) / len(queries)) ** 2).sum())
    uneven = numbers["offset_error"] * max(0.0, collision - 1 / classes)
    epsilon = within / len(queries) + w / classes + uneven * w * outside
    return max(0.0, 1 - epsilon / max(float(b @ b), 1e-12)), b


def likelihood(x, means, counts, metric, calibration, shares, numbers) -> np.ndarray:
    """Section 3; `shares` of queries (or none) are in the means, and each is judged without its own."""
    classes = len(counts)
    harmonic = 1 / float((1 / counts).mean())
    kappa = numbers["trust"] * calibration.overlap
    rho, s = calibration.rho, calibration.scale
    e = (calibration.slope - rho) * (1 / counts - (1 / counts).mean())
    result = np.zeros((len(x), classes))
    for k in range(classes):
        u = np.zeros(len(x)) if shares is None else shares[:, k]
        size = counts[k] + u.sum()
        mean = (counts[k] * means[k] + (u[:, None] * x).sum(0)) / size
        for n in range(len(x)):
            o = size - u[n]
            w = counts[k] + (u**2).sum() - u[n] ** 2
            v = w / o**2
            like = (w + harmonic - counts[k]) / (o + harmonic - counts[k]) ** 2
            d = distance(x[n], mean, metric) * (size / o) ** 2
            believed = s * (1 + kappa / harmonic) / (1 + kappa * like)
            missing = e[k] * (counts[k] / o) ** 2
            result[n, k] = -0.5 * believed * (d - rho * (1 + v) - missing - numbers["pivot"] * calibration.distance)
    return result


@dataclass
class Dominant:
    """The class that most queries are of, each by itself."""

    which: int

    @classmethod
    def of(cls, logits):
        return cls(int(np.argmax(np.array([softmax(row) for row in logits]).sum(0))))


def judged(logits, r, a0, caution) -> np.ndarray:
    """Each query by the counts of the others; a0 is a concentration, or the class that dominates."""
    result = np.zeros_like(logits)
    classes = logits.shape[1]
    for n in range(len(logits)):
        others = r.sum(0) - r[n]
        if isinstance(a0, Dominant):
            rest = (others.sum() - others[a0.which] + 1) / max(classes - 1, 1)
            counts = np.array([others[k] + 1 if k == a0.which else rest for k in range(classes)])
        else:
            counts = others + a0
        result[n] = softmax(logits[n] + caution * np.log(counts))
    return result


def elbo(logits, r, a0) -> float:
    queries, classes = logits.shape
    counts = r.sum(0)
    if isinstance(a0, Dominant):
        one, rest = counts[a0.which], counts.sum() - counts[a0.which]
        total = 1 + (classes > 1)
        value = lgamma(total) - lgamma(total + queries) + lgamma(one + 1)
        if classes > 1:
            value += lgamma(rest + 1) - rest * log(classes - 1) - log(classes)
    else:
        value = lgamma(classes * a0) - lgamma(classes * a0 + queries)
        for k in range(classes):
            value += lgamma(counts[k] + a0) - lgamma(a0)
    for k in range(classes):
        for n in range(queries):
            if r[n, k] > 0:
                value += r[n, k] * (logits[n, k] - log(r[n, k]))
    return value


def even_numbers(logits, variance) -> np.ndarray:
    """softmax(ℓ − η)."""
    queries, classes = logits.shape
    eta = np.zeros(classes)
    for _ in range(10):
        r = np.array([softmax(row - eta) for row in logits])
        gap = eta - variance * (r.sum(0) - queries / classes)
        eta = eta - 0.7 * gap / (1 + variance * (r * (1 - r)).sum(0))
    return np.array([softmax(row - eta) for row in logits])


def collision(r) -> float:
    queries = len(r)
    return float((r.sum(0) ** 2 - (r**2).sum(0)).sum()) / queries**2 + 1 / queries


def expected_collision(x, means, counts, metric, calibration, numbers) -> float:
    queries, classes, middle = len(x), len(means), means.mean(0)
    pairs = [(x[n] - middle) @ metric @ (x[m] - middle) for n in range(queries) for m in range(queries) if m != n]
    alike = float(np.mean(pairs)) if pairs else 0.0
    more = 2 * alike / calibration.distance - calibration.overlap * float((1 / counts).mean()) / classes
    c = min(1.0, 1 / classes + numbers["collision_excess"] * max(0.0, more))
    return c + (1 - c) / queries


def linear(x, sure, guesses, means, counts, metric, texts, mean_texts, numbers) -> np.ndarray:
    """Logistic regression on the queries that are sure and on the class means: its answer to all queries."""
    classes = len(means)
    rows = np.concatenate([means, x[sure]])
    weights = np.concatenate([counts, np.ones(len(sure))])
    targets = np.concatenate([np.eye(classes), np.eye(classes)[guesses]])
    known = np.concatenate([mean_texts, texts[sure]])
    root = np.sqrt(weights)
    gram = root[:, None] * (rows @ metric @ rows.T) * root[None, :]
    c = numbers["linear_weight"]
    step = 1 / (1 + 0.5 * c * float(np.abs(gram).sum(1).max()))
    shares = before = np.zeros((len(rows), classes))
    t = 1.0
    for _ in range(20):
        later = (1 + sqrt(1 + 4 * t * t)) / 2
        ahead = shares + (t - 1) / later * (shares - before)
        before, t = shares, later
        logits = (gram @ ahead) / root[:, None] + known
        errors = np.array([softmax(row) for row in logits]) - targets
        shares = ahead - step * (ahead + c * root[:, None] * errors)
    logits = x @ metric @ rows.T @ (root[:, None] * shares) + texts
    return np.array([softmax(row) for row in logits])


def from_mean(rows) -> float:
    """Mean squared distance of rows from their mean."""
    return float(np.mean([distance(row, rows.mean(0), np.eye(rows.shape[1])) for row in rows]))


def first_of_copies(rows, labels, metric, limit) -> np.ndarray:
    """For each row the first one that it is a copy of, or itself."""
    first = np.arange(len(rows))
    if rows.shape[1] < 8:
        return first
    for i in range(len(rows)):
        for j in range(i):
            if labels[i] == labels[j] and first[j] == j and distance(rows[i], rows[j], metric) < limit + 1e-12:
                first[i] = j
                break
    return first


def answer_together(x, base, texts, mean_texts, means, counts, metric, calibration, share, numbers):
    """Sections 5 and 6 on distinct queries, down to p: p, the hypotheses' evidence and weights, sure queries."""
    queries, classes = base.shape
    caution = 1 - numbers["offset_caution"] * share
    harmonic = 1 / float((1 / counts).mean())
    bias, explained = np.zeros(classes), 0.0
    if share > 0:
        middle = means.mean(0)
        span = means - middle
        a = span @ metric @ (x.mean(0) - middle)
        bias = -calibration.scale * share * a
        inverse = span_inverse(span @ metric @ span.T)
        explained = calibration.scale * queries * (share - share**2 / 2) * float(a @ inverse @ a)
    expected = expected_collision(x, means, counts, metric, calibration, numbers)
    suffix = "" if calibration.known else "_unknown"
    bonus = {
        "few": 0.0,
        "uneven": numbers[f"uneven_bonus{suffix}"],
        "dominant": numbers[f"uneven_bonus{suffix}"],
        "even": numbers[f"even_bonus{suffix}"],
    }
    answers, evidence, scores = [], [], []
    for name in HYPOTHESES:
        a0, logits = numbers.get(name, Dominant.of(base)), base + (bias if name == "even" else 0.0)
        r = np.array([softmax(row) for row in logits])
        for _ in range(10):
            r = judged(logits, r, a0, caution)
        value = elbo(logits, r, a0) + (explained if name == "even" else 0.0)
        if name == "even":
            r = even_numbers(logits, numbers["even_variance"])
        moved = likelihood(x, means, counts, metric, calibration, r, numbers) + texts
        later = numbers["moved"] * moved + (1 - numbers["moved"]) * base + (bias if name == "even" else 0.0)
        if name == "even":
            last = even_numbers(later, numbers["even_variance"])
        else:
            last = judged(later, r, a0, caution)
        gap = log(collision(last)) - log(expected)
        answers.append(last)
        evidence.append(value)
        scores.append(
            numbers["evidence"] * value
            + queries * calibration.overlap * bonus[name]
            - (numbers["dominant_penalty"] * classes if name == "dominant" else 0.0)
            - numbers["collision"] * harmonic * (1 - share) ** 2 * gap**2
        )
    weights = softmax(np.array(scores))
    unequal = weights[:-1].sum()
    average = sum(weight * answer for weight, answer in zip(weights[:-1], answers, strict=False)) / unequal
    sure = np.array([n for n in range(queries) if average[n].max() > numbers["linear_sure"]], int)
    if len(sure):
        by_linear = linear(x, sure, average[sure].argmax(1), means, counts, metric, texts, mean_texts, numbers)
        part = numbers["linear_share"] * len(sure)
        part = part / (part + counts.sum())
        average = (1 - part) * average + part * by_linear
    p = unequal * average + weights[-1] * answers[-1]
    return p, np.array(evidence), weights, len(sure)


def finished(p, alone, power, doubt) -> np.ndarray:
    """Of a query: raised to a power, and with a part of the doubt of the independent answer."""
    p = (p / p.max()) ** power
    p = p / p.sum()
    y = int(p.argmax())
    most = 1 - doubt * (1 - alone[y])
    return p + (p[y] - most) / (p[y] - alone[y]) * (alone - p) if p[y] > most else p


def predict(support, labels, queries, numbers, text=None, classes=None) -> Answer:
    """Support, labels and queries (and texts of the classes) to probabilities of all queries."""
    support, queries = np.asarray(support, float), np.asarray(queries, float)
    labels = np.asarray(labels, int)
    classes = int(labels.max()) + 1 if classes is None else classes
    if text is not None:
        text = np.array([unit_length(row) for row in np.asarray(text, float)])
    unit = np.array([unit_length(row) for row in support])
    asked = np.array([unit_length(row) for row in queries])

    plain = np.eye(support.shape[1])
    first = first_of_copies(unit, labels, plain, numbers["copy_distance"] * from_mean(unit))
    kept = first == np.arange(len(unit))
    unit, labels = unit[kept], labels[kept]
    counts = counts_of(labels, classes)
    harmonic = 1 / float((1 / counts).mean())

    whitening = whiten(unit, labels, classes, numbers)
    calibration = calibrate(whitening, unit, labels, classes, None if text is None else unit @ text.T, numbers)
    first = first_of_copies(asked, np.zeros(len(asked), int), plain, numbers["copy_distance"] * from_mean(asked))
    distinct = np.flatnonzero(first == np.arange(len(asked)))
    place = {n: at for at, n in enumerate(distinct)}
    share, b = shift_of(unit, labels, classes, asked[distinct], numbers)
    x_all = whitening.rows(np.array([unit_length(row) for row in asked - share * b]))
    x = x_all[distinct]

    means = class_means(whitening.rows(unit), labels, classes)
    base = likelihood(x, means, counts, whitening.metric, calibration, None, numbers)
    texts, mean_texts = np.zeros_like(base), np.zeros((classes, classes))
    if text is not None:
        texts = calibration.gamma * asked[distinct] @ text.T
        mean_texts = calibration.gamma * class_means(unit @ text.T, labels, classes)
    base = base + texts
    p, evidence, weights, sure = answer_together(
        x, base, texts, mean_texts, means, counts, whitening.metric, calibration, share, numbers
    )
    by_itself = likelihood(whitening.rows(asked), means, counts, whitening.metric, calibration, None, numbers)
    if text is not None:
        by_itself = by_itself + calibration.gamma * asked @ text.T
    power = 1.0
    if calibration.known:
        log_power = numbers["certainty"]
        log_power += numbers["certainty_overlap"] * log(calibration.overlap / 4)
        log_power += numbers["certainty_shots"] * log(harmonic / 4)
        power = exp(log_power)
    alone = [softmax(row if calibration.known else row / 2) for row in base]
    final = np.array([finished(*both, power, numbers["doubt"]) for both in zip(p, alone, strict=True)])
    rows = [place[n] for n in first]
    detail = SimpleNamespace(calibration=calibration, distinct=distinct, kept=kept, sure=sure)
    return Answer(final[rows], by_itself, evidence, weights, share, detail)


def predict_with_texts_alone(text, queries, numbers) -> Answer:
    """No samples at all."""
    text = np.array([unit_length(row) for row in np.asarray(text, float)])
    asked = np.array([unit_length(row) for row in np.asarray(queries, float)])
    base = numbers["text_scale"] * asked @ text.T
    answers, evidence = [], []
    for name in HYPOTHESES:
        a0 = numbers.get(name, Dominant.of(base))
        r = np.array([softmax(row) for row in base])
        for _ in range(10):
            r = judged(base, r, a0, 1.0)
        evidence.append(elbo(base, r, a0))
        if name == "even":
            r = even_numbers(base, numbers["even_variance"])
        answers.append(r)
    weights = softmax(numbers["evidence"] * np.array(evidence))
    p = sum(weight * answer for weight, answer in zip(weights, answers, strict=True))
    return Answer(p, base, np.array(evidence), weights, 0.0)
