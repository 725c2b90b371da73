"""Data: tables of frozen features and the tasks that are drawn from them.

A :class:`FeatureSet` is a table of features with labels, read from and written to files (:mod:`unem.data.formats`). A
:class:`Protocol` says what a task is, a :class:`Sampler` draws its images as row numbers, and a :class:`TaskSource`
gathers them into batches of tasks.
"""

from unem.data.digits import load_digits
from unem.data.features import SPLIT_SEPARATOR, FeatureSet
from unem.data.formats import FORMATS
from unem.data.protocol import BALANCES, Protocol
from unem.data.sampler import Draw, Sampler
from unem.data.source import TaskSource

__all__ = [
    "BALANCES",
    "FORMATS",
    "SPLIT_SEPARATOR",
    "Draw",
    "FeatureSet",
    "Protocol",
    "Sampler",
    "TaskSource",
    "load_digits",
]
