"""`unem features info`."""

from __future__ import annotations

import json

from helpers.command_line import run


def test_features_info(features):
    info = json.loads(run("features", "info", features, "--json").stdout)
    assert info["splits"]["val"]["images"] == 78
    assert "78 images, 6 classes" in run("features", "info", features).stdout
