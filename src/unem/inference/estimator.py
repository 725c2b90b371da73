"""Transductive classification as a scikit-learn estimator. ``unem.TransductiveClassifier`` imports scikit-learn when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from unem.core.schedule import Schedule
from unem.core.task import Task
from unem.errors import InputError
from unem.inference.auto import CHOOSABLE, choose
from unem.inference.checking import Checked, HeldOut
from unem.learning.unrolled import UNEM
from unem.methods._registry import GEMMethod, Method, create, method_info
from unem.methods.plus import FamilyMethod

__all__ = ["TransductiveClassifier"]


class TransductiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify a batch of samples *jointly*, from a few labelled ones, on embeddings of any kind.

    It is used in either of two ways. As scikit-learn's ``LabelSpreading``: ``fit`` gets all rows, with −1 as the label of those that have
    none, and ``transduction_`` holds the answers. Or as any classifier: ``fit`` gets labelled rows, and ``predict`` a batch of new
    ones, **which are classified together**: what is said of a row depends on the other rows of the batch, in contrast to most classifiers.
    Rows without a label that ``fit`` was given are answered there, and play no part in ``predict``.

    Args:
        method: the name of a method (:func:`unem.list_methods`), or ``"auto"``: ``"unem-plus"``, the best of the library where
            nobody knows how many classes are present, unless looking at rows one by one (``"baseline"``) finds labels that are hidden in turn
            better (:mod:`unem.inference.checking`, which classifies five times more); ``"unem-joint"`` where ``text`` is given.
        schedule: ``"auto"`` (chosen by :func:`unem.inference.auto.choose`, which says why in ``schedule_reason_``), the name of a preset, a
            file, or a schedule. Methods that work without one ignore ``"auto"``.
        options: more settings of the method, by name.
        text: embeddings of the classes' texts, for methods that use images and text: a mapping from label to embedding, or one row for each
            class in the order of ``classes_``. The features are then brought to unit length, as the texts are.
        unlabelled: the label of rows that have none; None and NaN count as such too, whatever it is. In an array of strings, "-1" is −1.
        device: where torch computes.

    Attributes:
        classes_: the labels.
        transduction_: label of each row of ``fit``; given ones as they were given.
        label_distributions_: probability of each class for each row of ``fit``.
        n_iter_: layers of the schedule.
        schedule_: the schedule, if the method has one.
        schedule_reason_: why it was chosen.
        held_out_: what the check of ``"auto"`` saw in ``fit``, if there were rows without a label.
        method_: the method.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Example:
        >>> import numpy as np
        >>> from sklearn.datasets import make_blobs
        >>> X, y = make_blobs(300, n_features=32, centers=10, cluster_std=5.0, random_state=0)
        >>> few = np.where(np.arange(300) < 40, y, -1)
        >>> model = TransductiveClassifier().fit(X, few)
        >>> bool((model.transduction_ == y).mean() > 0.95)
        True
        >>> TransductiveClassifier().fit(X[:40], y[:40]).predict(X[40:115]).shape
        (75,)
    """

    def __init__(
        self,
        method: str = "auto",
        schedule: Any = "auto",
        *,
        options: Mapping[str, Any] | None = None,
        text: Any = None,
        unlabelled: Any = -1,
        device: str = "cpu",
    ) -> None:
        self.method = method
        self.schedule = schedule
        self.options = options
        self.text = text
        self.unlabelled = unlabelled
        self.device = device

    # -- what scikit-learn asks for ---------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> TransductiveClassifier:
        """Take the labelled rows as support, and classify the others, if there are any.

        Args:
            X: features, ``[sample, feature]``.
            y: labels; ``unlabelled`` (−1), None or NaN where there is none.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        features = validate_data(self, X, dtype=[np.float64, np.float32])
        labels = column_or_1d(y, dtype=object if _may_lack(y) else None, warn=True)
        check_consistent_length(features, labels)
        known = ~_is_unlabelled(labels, self.unlabelled)
        if not known.any():
            raise InputError(f"y: none of the {len(labels)} rows has a label; each class needs at least one")
        given = np.asarray(labels[known].tolist()) if labels.dtype == object else labels[known]
        check_classification_targets(given)
        self.classes_, self._support_labels = np.unique(given, return_inverse=True)
        self._support = np.ascontiguousarray(features[known])
        self._text = self._text_rows()
        self._prepare()
        shares = np.zeros((len(features), len(self.classes_)))
        shares[np.flatnonzero(known), self._support_labels] = 1.0
        self.held_out_: HeldOut | None = None
        if not known.all():
            shares[~known] = self._probabilities(features[~known])
            if isinstance(self.method_, Checked):
                self.held_out_ = self.method_.decide(self._task(features[~known])).held_out
        self.label_distributions_ = shares
        self.transduction_ = self.classes_[shares.argmax(1)]
        return self

    def predict(self, X: Any) -> Any:
        """The label of each row, all rows being classified together."""
        shares = self.predict_proba(X)  # which says so when there was no fit
        return self.classes_[shares.argmax(1)]

    def predict_proba(self, X: Any) -> Any:
        """Probability of each class for each row, ``[sample, class]``, all rows being classified together."""
        check_is_fitted(self, "classes_")
        return self._probabilities(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))

    # -- how it is done ---------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Choose schedule and method, by the labelled rows alone, so that every batch is classified alike."""
        self.schedule_reason_: str | None = None
        settings = dict(self.options or {})
        name = self.method
        if name == "auto":
            name = "unem-plus" if self.text is None else "unem-joint"
        takes = method_info(name).options
        if self.schedule == "auto" and name in CHOOSABLE and "schedule" not in settings:
            choice = choose(self._task(self._support), method=name)
            settings["schedule"], self.schedule_reason_ = choice.schedule, choice.reason
        elif not (isinstance(self.schedule, str) and self.schedule == "auto") and self.schedule is not None:
            if "schedule" not in takes:
                raise InputError(f"schedule: method {name!r} works without one; leave it at 'auto'")
            settings["schedule"], self.schedule_reason_ = self.schedule, "it was given"
        self.method_: Method = create(name, **settings)
        if self.method == "auto" and self.text is None:
            self.method_ = Checked(self.method_)
        self.schedule_ = _schedule_of(self.method_)
        self.n_iter_: int = getattr(self.schedule_, "layers", 1)
        if self.method_.inputs == "image+text" and self._text is None:
            raise InputError(f"text: {name!r} needs embeddings of the classes' texts, got None")

    def _probabilities(self, queries: Any) -> Any:
        found = self.method_.predict(self._task(queries)).probabilities.double().cpu().numpy()
        return found / found.sum(1, keepdims=True)  # float32 sums to one but for its rounding

    def _task(self, queries: Any) -> Task:
        support, labels = self._support, torch.as_tensor(self._support_labels)
        if queries.dtype != support.dtype:
            queries = queries.astype(support.dtype)
        text = None
        if self._text is not None:
            support, queries = _unit(support), _unit(queries)
            text = _tensor(self._text).to(self.device)
        return Task(
            _tensor(support).to(self.device),
            labels.to(self.device),
            _tensor(queries).to(self.device),
            num_classes=len(self.classes_),
            text=text,
        )

    def _text_rows(self) -> Any:
        if self.text is None:
            return None
        text = self.text
        if isinstance(text, Mapping):
            missing = [label for label in self.classes_.tolist() if label not in text]
            if missing:
                raise InputError(f"text: there is none for class {missing[0]!r}")
            text = [text[label] for label in self.classes_.tolist()]
        rows = np.asarray(text, dtype=self._support.dtype)
        expected = (len(self.classes_), self._support.shape[1])
        if rows.shape != expected:
            raise InputError(f"text: expected one embedding for each class, {expected}, got shape {rows.shape}")
        return rows


def _schedule_of(method: Method) -> Any:
    if isinstance(method, Checked):
        return _schedule_of(method.jointly)
    if isinstance(method, FamilyMethod):
        return method.family
    if isinstance(method, UNEM):
        return method.schedule()
    if isinstance(method, GEMMethod) and isinstance(method.schedule, Schedule):
        return method.schedule
    return None


def _may_lack(y: Any) -> bool:
    """Whether some entries may be None or the like, which numpy would make something else of."""
    kind = getattr(getattr(y, "dtype", None), "kind", "O")
    return (isinstance(y, list | tuple) and any(_is_missing(v) for v in y)) or (hasattr(y, "iloc") and kind == "O")


def _is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _is_unlabelled(labels: Any, unlabelled: Any) -> Any:
    """Which labels are the mark of rows without one, or missing."""
    if labels.dtype == object:
        marks = {unlabelled, str(unlabelled)} if unlabelled is not None else set()
        return np.array([_is_missing(v) or v in marks for v in labels], dtype=bool)
    if labels.dtype.kind in "US":
        return labels == str(unlabelled)
    missing = np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(len(labels), dtype=bool)
    return missing if unlabelled is None else missing | (labels == unlabelled)


def _tensor(rows: Any) -> torch.Tensor:
    """A copy: torch likes neither what may not be written to nor rows in reverse order."""
    return torch.from_numpy(np.array(rows, order="C"))


def _unit(rows: Any) -> Any:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(rows.dtype).tiny)
