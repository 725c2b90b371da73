"""The estimator beside scikit-learn's own, on digits and on embeddings of text, on the same splits.

    python examples/sklearn_estimator.py [--splits 30]

Nothing is downloaded. The digits are scikit-learn's; the text is the documentation of Python's standard library: every
docstring of a module's
functions, classes and methods is a document, and the module its class. Documents become embeddings by TF-IDF and a
truncated SVD, which see no label.

In a split, some rows of each class keep their label, and a batch of other rows is to be classified: either of all
classes, or of three of them, as when a folder of new pictures holds a few kinds only. Nobody is told which.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.semi_supervised import LabelSpreading

import unem

MODULES = [
    "argparse",
    "asyncio",
    "datetime",
    "decimal",
    "email",
    "fractions",
    "http",
    "ipaddress",
    "logging",
    "mailbox",
    "multiprocessing",
    "pathlib",
    "random",
    "smtplib",
    "sqlite3",
    "statistics",
    "string",
    "tarfile",
    "threading",
    "turtle",
    "unittest",
    "urllib",
    "xml",
    "zipfile",
]
FEWEST = 25  # documents of a module that is used
PRESENT = 3  # classes in a batch of few

Rows = np.ndarray


# -- data
# -----------------------------------------------------------------------------------------------------------------


def digits() -> tuple[Rows, Rows]:
    """1797 handwritten digits of 8 × 8 pixels."""
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def documents() -> tuple[list[str], list[str]]:
    """Docstrings and the module each is from; those of fewer than eight words and repeated ones are left out."""
    texts: dict[str, str] = {}
    for module in MODULES:
        for text in set(_docstrings(module)):
            texts[text] = "" if text in texts else module  # the same words in two modules say nothing of either
    modules = [m for m in MODULES if sum(v == m for v in texts.values()) >= FEWEST]
    pairs = sorted((t, m) for t, m in texts.items() if m in modules)
    return [t for t, _ in pairs], [m for _, m in pairs]


def _docstrings(name: str) -> Iterator[str]:
    root = importlib.import_module(name)
    parts = [root]
    for sub in ("client", "server", "message", "dom.minidom", "sax.handler", "etree.ElementTree", "parse", "request"):
        try:
            parts.append(importlib.import_module(f"{name}.{sub}"))
        except ImportError:
            continue
    for part in parts:
        for thing in vars(part).values():
            if not (inspect.isclass(thing) or inspect.isroutine(thing)):
                continue
            if not (getattr(thing, "__module__", "") or "").startswith((name, f"_{name}")):
                continue
            members = vars(thing).values() if inspect.isclass(thing) else ()
            for one in (thing, *members):
                text = re.sub(r"\s+", " ", getattr(one, "__doc__", None) or "")
                if len(text.split()) >= 8:
                    yield text.replace(name, "").replace(name.capitalize(), "")  # its name would give it away


def embedded_text() -> tuple[Rows, Rows]:
    texts, modules = documents()
    embed = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, stop_words="english"),
        TruncatedSVD(100, random_state=0),
        Normalizer(),
    )
    return embed.fit_transform(texts), np.array(modules)


# -- models
# ---------------------------------------------------------------------------------------------------------------


def spreading(X: Rows) -> LabelSpreading:
    """Its rbf kernel as wide as the rows are near each other: a default that suits neither data would be no
    comparison."""
    nearest = np.partition(pairwise_distances(X[:500], metric="sqeuclidean"), 7, axis=1)[:, 7]
    return LabelSpreading(kernel="rbf", gamma=1 / max(float(np.median(nearest)), 1e-9), max_iter=100)


def searched(X: Rows) -> GridSearchCV:
    """The method chosen by cross-validation on the labelled rows, as for any estimator."""
    grid = {"transductiveclassifier__method": ["unem-plus", "label-propagation", "logistic"]}
    pipeline = make_pipeline(Normalizer(), unem.TransductiveClassifier())
    return GridSearchCV(pipeline, grid, cv=StratifiedKFold(3, shuffle=True, random_state=0))


@dataclass(frozen=True)
class Model:
    name: str
    make: Callable[[Rows], ClassifierMixin]
    spreads: bool = False
    """Whether it wants the rows without a label in ``fit``."""

    def answers(self, X: Rows, y: Rows, batch: Rows) -> Rows:
        model = self.make(np.vstack([X, batch]))
        if not self.spreads:
            return model.fit(X, y).predict(batch)
        names, codes = np.unique(y, return_inverse=True)
        model.fit(np.vstack([X, batch]), np.concatenate([codes, np.full(len(batch), -1)]))
        return names[model.transduction_[len(X) :]]


MODELS = (
    Model("`TransductiveClassifier()`", lambda X: unem.TransductiveClassifier()),
    Model('`TransductiveClassifier("label-propagation")`', lambda X: unem.TransductiveClassifier("label-propagation")),
    Model("the same, method by `GridSearchCV`", searched),
    Model("`LabelSpreading`, knn", lambda X: LabelSpreading(kernel="knn", max_iter=100), spreads=True),
    Model("`LabelSpreading`, rbf", spreading, spreads=True),
    Model("`LogisticRegression`", lambda X: LogisticRegression(C=10.0, max_iter=1000)),
)


# -- splits
# ---------------------------------------------------------------------------------------------------------------


def split(y: Rows, shots: int, queries: int, present: int | None, seed: int) -> tuple[Rows, Rows]:
    """Row numbers of the labelled rows, so many of each class, and of the batch."""
    random = np.random.RandomState(seed)
    order = random.permutation(len(y))
    classes = np.unique(y)
    labelled = np.concatenate([order[y[order] == c][:shots] for c in classes])
    there = classes if present is None else random.choice(classes, present, replace=False)
    rest = order[~np.isin(order, labelled)]
    return labelled, rest[np.isin(y[rest], there)][:queries]


def accuracies(X: Rows, y: Rows, shots: int, queries: int, present: int | None, splits: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {model.name: [] for model in MODELS}
    for seed in range(splits):
        labelled, batch = split(y, shots, queries, present, seed)
        for model in MODELS:
            right = model.answers(X[labelled], y[labelled], X[batch]) == y[batch]
            found[model.name].append(100 * float(np.mean(right)))
    return found


def interval(values: list[float]) -> str:
    """Mean and half width of its 95 % confidence interval."""
    return f"{np.mean(values):.1f} ± {1.96 * np.std(values, ddof=1) / len(values) ** 0.5:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=30)
    parser.add_argument("--queries", type=int, default=75)
    parser.add_argument("--shots", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of models that stop before they have converged
    columns = {}
    for name, (X, y) in {"digits": digits(), "text": embedded_text()}.items():
        print(f"{name}: {len(X)} rows, {X.shape[1]} features, {len(np.unique(y))} classes", file=sys.stderr)
        for present in (None, PRESENT):
            title = f"{name}, {'all classes' if present is None else f'{present} classes'} in the batch"
            columns[title] = accuracies(X, y, arguments.shots, arguments.queries, present, arguments.splits)
    print("| | " + " | ".join(columns) + " |\n|---" * 1 + "|---" * len(columns) + "|")
    for model in MODELS:
        print(f"| {model.name} | " + " | ".join(interval(column[model.name]) for column in columns.values()) + " |")


if __name__ == "__main__":
    main()
