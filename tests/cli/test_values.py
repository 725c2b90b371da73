"""Names and defaults that the command line repeats, beside the library's own."""

from __future__ import annotations

from dataclasses import asdict
from typing import get_args

import unem.cli._values as values
from unem.cli.pretrain import ConfigOptions
from unem.data import BALANCES, FORMATS, SPLIT_SEPARATOR
from unem.inference import DOUBTFUL, Decision
from unem.inference.result import WRITERS
from unem.learning import TrainingConfig
from unem.learning.losses import LOSSES
from unem.methods import list_methods
from unem.vision.backbones.base import PRECISIONS
from unem.vision.extraction import SHARD
from unem.vision.extraction.engines import DECODING
from unem.vision.networks import NETWORKS
from unem.vision.pretraining import PretrainingConfig


def test_they_are_the_library_s():
    own = {name: getattr(values, name) for name in values.__all__}
    assert all(callable(getattr(TrainingConfig, name)) for name in own.pop("RECIPES"))
    assert own == {
        "BALANCES": BALANCES,
        "DECISIONS": get_args(Decision),
        "DECODING": DECODING,
        "DOUBTFUL": DOUBTFUL,
        "FORMATS": tuple(FORMATS),
        "LEARNED": tuple(m.name for m in list_methods() if m.learned),
        "LOSSES": tuple(LOSSES),
        "NETWORKS": tuple(NETWORKS),
        "PRECISIONS": ("auto", *PRECISIONS),
        "SHARD": SHARD,
        "SPLIT_SEPARATOR": SPLIT_SEPARATOR,
        "TABLES": tuple(WRITERS),
    }


def test_the_settings_of_a_pretraining_have_the_library_s_defaults():
    options = asdict(ConfigOptions())
    del options["given"]
    library = asdict(PretrainingConfig())
    assert options == {name: library[name] for name in options}
