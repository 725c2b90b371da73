"""The algorithms as the paper states them, in numpy and float64, one task at a time: slow, direct, and written
independently of the library's forms (no Gram matrices, no implicit solves, explicit θ)."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize, root
from scipy.special import digamma, gammaln, logsumexp, softmax

import unem


def random_task(
    tasks: int = 3,
    classes: int = 4,
    shots: int = 2,
    queries: int = 12,
    features: int = 5,
    seed: int = 0,
    similarities: bool = False,
    dtype: torch.dtype = torch.float64,
) -> unem.Task:
    """Clustered Gaussian features, or cosine-like similarities to the classes; shots vary from class to class."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.arange(classes).repeat_interleave(shots), torch.randint(classes, (2,), generator=g)])
    labels = labels.expand(tasks, -1)
    truth = torch.randint((classes + 1) // 2, (tasks, queries), generator=g)
    if similarities:
        support = 0.2 + 0.03 * torch.randn(tasks, labels.shape[1], classes, generator=g, dtype=torch.float64)
        query = 0.2 + 0.03 * torch.randn(tasks, queries, classes, generator=g, dtype=torch.float64)
        support += 0.06 * torch.nn.functional.one_hot(labels, classes)
        query += 0.06 * torch.nn.functional.one_hot(truth, classes)
    else:
        centres = 2 * torch.randn(tasks, classes, features, generator=g, dtype=torch.float64)
        support = centres.gather(1, labels.unsqueeze(-1).expand(-1, -1, features))
        query = centres.gather(1, truth.unsqueeze(-1).expand(-1, -1, features))
        support = support + torch.randn(support.shape, generator=g, dtype=torch.float64)
        query = query + torch.randn(query.shape, generator=g, dtype=torch.float64)
    return unem.Task(support.to(dtype), labels, query.to(dtype), num_classes=classes)


def gaussian_gem(support, labels, query, classes, betas, temperatures, scale, floor=1e-6):
    """Algorithm 2: θ explicit, squared distances by broadcasting."""
    support, query = scale * support, scale * query
    onehot = np.eye(classes)[labels]
    theta = onehot.T @ support / onehot.sum(0)[:, None]
    pi = np.ones(classes)
    for beta, temperature in zip(betas, temperatures, strict=True):
        distance = ((query[:, None] - theta[None]) ** 2).sum(-1)
        u = softmax((-0.5 * distance + beta * np.log(pi + floor)) / temperature, axis=1)
        theta = (onehot.T @ support + u.T @ query) / (onehot.sum(0) + u.sum(0))[:, None]
        pi = u.mean(0)
    return u


def dirichlet_nll(alpha, log_z, weights):
    """Eq. (dir_log-likelihood)."""
    normaliser = gammaln(alpha).sum() - gammaln(alpha.sum())
    return (weights * (normaliser - log_z @ (alpha - 1))).sum()


def fit_dirichlet(mean_log):
    """Maximum likelihood by a general-purpose optimiser in ln α."""

    def objective(log_alpha):
        alpha = np.exp(log_alpha)
        value = gammaln(alpha).sum() - gammaln(alpha.sum()) - ((alpha - 1) * mean_log).sum()
        return value, alpha * (digamma(alpha) - digamma(alpha.sum()) - mean_log)

    best = minimize(
        objective, np.zeros(len(mean_log)), jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 5000}
    )

    def equations(log_alpha):
        alpha = np.exp(log_alpha)
        return digamma(alpha) - digamma(alpha.sum()) - mean_log

    polished = root(equations, best.x, method="hybr", options={"xtol": 1e-13})
    better = np.abs(equations(polished.x)).max() < np.abs(equations(best.x)).max()
    return np.exp(polished.x if better else best.x)


def dirichlet_gem(support, labels, query, classes, betas, temperatures, scale, floor=1e-15, hard=False):
    """Algorithm 3 with each M-step minimised by scipy."""
    log_s = np.log(softmax(scale * support, axis=1) + 1e-15)
    log_q = np.log(softmax(scale * query, axis=1) + 1e-15)
    onehot = np.eye(classes)[labels]
    u = softmax(scale * query, axis=1)
    for beta, temperature in zip(betas, temperatures, strict=True):
        mean_log = (onehot.T @ log_s + u.T @ log_q) / (onehot.sum(0) + u.sum(0))[:, None]
        alpha = np.stack([fit_dirichlet(row) for row in mean_log])
        log_prob = log_q @ (alpha - 1).T - gammaln(alpha).sum(1) + gammaln(alpha.sum(1))
        joint = log_prob + beta * np.log(u.mean(0) + floor)
        u = np.eye(classes)[joint.argmax(1)] if hard else softmax(joint / temperature, axis=1)
    return u


def objective(task, law, u, theta_from, beta, temperature, scale):
    """Eq. 1 for one task of the batch, with θ fitted to ``theta_from`` and Ψ as the floor sees it."""
    support, query = (t[0].numpy() for t in (task.support, task.query))
    labels = task.support_labels[0].numpy()
    onehot = np.eye(task.num_classes)[labels]
    pi = u.mean(0) + law.proportion_floor
    balance = beta * len(u) * -(pi * np.log(pi)).sum()
    entropy = temperature * np.where(u > 0, u * np.log(np.maximum(u, 1e-300)), 0).sum()
    total = np.concatenate([onehot, theta_from])
    weights = np.concatenate([onehot, u])
    if law.name == "gaussian":
        z = scale * np.concatenate([support, query])
        theta = total.T @ z / total.sum(0)[:, None]
        likelihood = 0.5 * (weights * ((z[:, None] - theta[None]) ** 2).sum(-1)).sum()
    else:
        raw = scale * np.concatenate([support, query])
        log_z = np.log(np.exp(raw - logsumexp(raw, axis=1, keepdims=True)) + 1e-15)
        mean_log = total.T @ log_z / total.sum(0)[:, None]
        likelihood = sum(dirichlet_nll(fit_dirichlet(m), log_z, weights[:, k]) for k, m in enumerate(mean_log))
    return likelihood + balance + entropy


def mix(x: int) -> int:
    """The finaliser of MurmurHash3 with an added constant, in Python's integers."""
    mask = 2**64 - 1
    x = ((x ^ x >> 33) * 0xFF51AFD7ED558CCD + 0x1E3779B97F4A7C15) & mask
    x = ((x ^ x >> 33) * 0xC4CEB9FE1A85EC53) & mask
    return x ^ x >> 33


def hash_of(*values: int) -> int:
    state = 0x2545F4914F6CDD1D
    for value in values:
        state = mix(state ^ value % 2**64)
    return state


def swap_or_not(x: int, size: int, key: int) -> int:
    for number in range(32):
        round_key = mix((key + number) % 2**64)
        partner = ((round_key - 2**64 * (round_key >> 63)) - x) % size  # keys are signed
        x = partner if mix(max(x, partner) ^ round_key) & 1 else x
    return x


def drawn_task(protocol, labels: list[int], seed: int, task: int):
    """Rows of one task from a single pool, with K_eff a number, by lists and loops: no batches, no devices."""
    support_, _, classes_, query_, within, order = range(6)
    classes = max(labels) + 1
    rows = [[i for i, y in enumerate(labels) if y == k] for k in range(classes)]
    kept = 0 if protocol.overlap else protocol.shots
    free = [len(r) - kept for r in rows]
    candidates = sorted((k for k in range(classes) if free[k] > 0), key=lambda k: (-free[k], k))
    high, queries = protocol.effective_classes, protocol.queries

    def image(purpose, k, j):
        return rows[k][swap_or_not(j, len(rows[k]), hash_of(seed, task, purpose, k))]

    for attempt in range(129):
        among = high + round((len(candidates) - high) * (1 - max(0, attempt - 64) / 64))
        key = hash_of(seed, task, classes_, attempt)
        chosen = [candidates[j if attempt == 128 else swap_or_not(j, among, key)] for j in range(high)]
        counts = [queries // high + (j < queries % high) for j in range(high)]
        if protocol.balance == "pooled":
            counts = [free[k] for k in chosen]
        if sum(counts) >= queries and all(n <= free[k] for n, k in zip(counts, chosen, strict=True)):
            break
    owner = [(k, j) for k, n in zip(chosen, counts, strict=True) for j in range(n)]
    pooled = protocol.balance == "pooled"
    key = hash_of(seed, task, query_ if pooled else order)
    drawn = [owner[swap_or_not(i, len(owner), key)] for i in range(queries)]
    if not protocol.overlap:
        query = [image(support_, k, kept + j) for k, j in drawn]
    else:
        query = [rows[k][j] if pooled else image(within, k, j) for k, j in drawn]
    return [image(support_, k, j) for k in range(classes) for j in range(protocol.shots)], query


def unit_rows(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def residual(x, labels):
    return x - np.stack([x[labels == k].mean(0) for k in range(labels.max() + 1)])[labels]


def whitened_rows(support, labels, points, b, a):
    """Unit length, centred, channels divided, both once more, then a root of (1−a) S_w + a v I, unit length.

    The centre is that of class means, weighed by the roots of their samples. With one sample of each class there is no
    S_w, and the rest remains.
    """

    def centre(x):
        sizes = np.bincount(labels)
        means = [x[labels == k].mean(0) for k in np.flatnonzero(sizes)]
        return np.average(means, 0, np.sqrt(sizes[sizes > 0]))

    x, z = unit_rows(support), unit_rows(points)
    x, z = x - centre(x), z - centre(x)
    variance = (x**2).sum(0) / (len(x) - 1) + (residual(x, labels) ** 2).sum(0)
    trusted = (1 - b) * (len(x) - 1) / (len(x) + 2)
    gain = np.sqrt(variance.mean() / (trusted * variance + (1 - trusted) * variance.mean()))
    x, z = unit_rows(x * gain), unit_rows(z * gain)
    x, z = x - centre(x), z - centre(x)
    freedom = len(x) - len(set(labels))
    if freedom == 0:
        return unit_rows(x), unit_rows(z)
    within = residual(x, labels).T @ residual(x, labels) / freedom
    sigma = (1 - a) * within + a * np.diag(within).mean() * np.eye(len(within))
    root = np.linalg.cholesky(sigma)
    return unit_rows(np.linalg.solve(root, x.T).T), unit_rows(np.linalg.solve(root, z.T).T)
