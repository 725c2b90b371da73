"""Transductive classification as a scikit-learn estimator; scikit-learn is imported with this module alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from unem._words import counted
from unem.core import Inputs, Schedule, Task
from unem.errors import InputError
from unem.inference.auto import Choice, choose, method_named
from unem.inference.decision import Decision, check_decision, decided
from unem.inference.reasons import sentence
from unem.inference.tasks import check_needs, task_from
from unem.learning import ScheduleFamily
from unem.methods import Method, method_info

__all__ = ["TransductiveClassifier"]


class TransductiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify a batch of samples *jointly*, from a few labelled ones, on embeddings of any kind.

    It is used in either of two ways. As scikit-learn's ``LabelSpreading``: ``fit`` gets all rows, with −1 as the label
    of those that have none, and ``transduction_`` holds the answers. Or as any classifier: ``fit`` gets labelled rows,
    and ``predict`` a batch of new ones, **which are classified jointly**: what is said of a row depends on the other
    rows of the batch, in contrast to most classifiers. Rows without a label that ``fit`` was given are answered there,
    and play no part in ``predict``.

    Args:
        method: the name of a method (:func:`unem.list_methods`), or ``"auto"``: ``"evidence"``, which judges by the
            batch itself how many classes are present, and needs no schedule; ``"evidence-joint"`` where ``text`` is
            given; the method that a given schedule was learned for.
        schedule: ``"auto"`` (chosen by :func:`unem.choose`, which says why in ``schedule_reason_``), the name of a
            preset, a file, or a schedule. Methods that work without one ignore ``"auto"``.
        decision: ``"accuracy"``: the label is the most probable class. ``"balanced"``: each class counts alike, so that
            rare ones are found (:func:`unem.inference.decided`). Probabilities are the same.
        options: more settings of the method, by name.
        text: embeddings of the classes' texts, for methods that use images and text: a mapping from label to embedding,
            or one row for each class in the order of ``classes_``. As the method wants it, features are brought to unit
            length beside them, or their cosines with the texts are taken (:func:`unem.inference.task_from`).
        unlabelled: the label of rows that have none; None and NaN count as such too, whatever it is. In an array of
            strings, "-1" is −1. Where −1 is a class, as in labels of −1 and +1, give None.
        device: where torch computes.

    Attributes:
        classes_: the labels.
        transduction_: label of each row of ``fit``; given ones as they were given.
        label_distributions_: probability of each class for each row of ``fit``.
        method_: the method, chosen by the labelled rows alone.
        schedule_: its schedule; None where it has none, such as the automatic method.
        schedule_reason_: why method and schedule were taken; None where a method without a schedule was given.
        notes_: what to know of the answers, such as that too few classes have two labels to calibrate them.
        n_iter_: layers of the schedule; 1 without one.
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
        decision: Decision = "accuracy",
        options: Mapping[str, Any] | None = None,
        text: Any = None,
        unlabelled: Any = -1,
        device: str = "cpu",
    ) -> None:
        self.method = method
        self.schedule = schedule
        self.decision = decision
        self.options = options
        self.text = text
        self.unlabelled = unlabelled
        self.device = device

    # -- what scikit-learn asks for ------------------------------------------------------------------------------------

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
            raise InputError(f"y: none of {counted(len(labels), 'row')} has a label; each class needs at least one")
        given = np.asarray(labels[known].tolist()) if labels.dtype == object else labels[known]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # few labels of many classes are what this is for
            check_classification_targets(given)
        self.classes_, self._support_labels = np.unique(given, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(_only_one_class(self.classes_[0], int((~known).sum()), self.unlabelled))
        self._support = np.ascontiguousarray(features[known])
        self._prepare()
        shares = np.zeros((len(features), len(self.classes_)))
        shares[np.flatnonzero(known), self._support_labels] = 1.0
        if not known.all():
            shares[~known] = self._probabilities(features[~known])
        self.label_distributions_ = shares
        numbers = shares.argmax(1)
        if not known.all():
            numbers[~known] = self._decided(shares[~known])
        self.transduction_ = self.classes_[numbers]
        return self

    def predict(self, X: Any) -> Any:
        """The label of each row, all rows being classified jointly."""
        shares = self.predict_proba(X)  # which says so when there was no fit
        return self.classes_[self._decided(shares)]

    def predict_proba(self, X: Any) -> Any:
        """Probability of each class for each row, ``[sample, class]``, all rows being classified jointly."""
        check_is_fitted(self, "classes_")
        return self._probabilities(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))

    # -- what the answers are by ---------------------------------------------------------------------------------------

    @property
    def method_(self) -> Method:
        return self._choice.method

    @property
    def schedule_(self) -> Schedule | ScheduleFamily | None:
        return self._choice.schedule

    @property
    def schedule_reason_(self) -> str | None:
        choice = self._choice
        return None if choice.preset is None and choice.reason.code == "given" else sentence(choice.reason, "row")

    @property
    def notes_(self) -> tuple[str, ...]:
        return self._choice.notes

    @property
    def n_iter_(self) -> int:
        return 1 if self.schedule_ is None else self.schedule_.layers

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Choose method and schedule, by the labelled rows alone, so that every batch is classified alike."""
        check_decision(self.decision)
        schedule = (self.options or {}).get("schedule", self.schedule)
        kind: Inputs = "features" if self.text is None else "image+text"
        info = method_info(method_named(self.method, schedule, kind))
        check_needs(info, support=True, text=self.text is not None)
        self._inputs: Inputs = info.inputs
        self._text, self._on = self.text, self.device
        fixed = {"method": self.method, "schedule": self.schedule, "options": self.options}
        self._choice: Choice = choose(self._task(self._support), inputs=kind, **fixed)

    def _probabilities(self, queries: Any) -> Any:
        prediction = self._choice.method.predict(self._task(queries))
        shares = prediction.probabilities.double().cpu().numpy()
        return shares / shares.sum(1, keepdims=True)  # float32 sums to one but for its rounding

    def _decided(self, shares: Any) -> Any:
        return decided(torch.from_numpy(shares), self.decision).numpy()

    def _task(self, queries: Any) -> Task:
        of: dict[str, Any] = {"class_names": self.classes_.tolist(), "text": self._text, "device": self._on}
        return task_from(self._support, self._support_labels, queries, inputs=self._inputs, **of)


def _only_one_class(name: Any, unlabelled: int, mark: Any) -> str:
    """Labels of −1 and +1 are two classes to many, and one class with unlabelled rows here."""
    rows = counted(unlabelled, "row counts", "rows count")
    doubt = (
        f"; {rows} as unlabelled, since {mark!r} means that (unlabelled=None if it is a class)" if unlabelled else ""
    )
    return f"y: expected at least two classes among the labels, there is only one class, {name}{doubt}"


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
