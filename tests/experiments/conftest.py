"""A folder of two small feature files."""

from __future__ import annotations

import pytest

from helpers.experiment_data import write_features


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("features")
    write_features(path, "toy__one")
    write_features(path, "toy__two", seed=1, text=False, splits=False, classes=8)
    return path
