"""`unem presets`."""

from __future__ import annotations

import json

from helpers.command_line import invoke, said


def test_listing():
    presets = json.loads(invoke("presets", "unem-gaussian/*", "--json").stdout)
    assert "unem-gaussian/mini-imagenet/resnet18/5-shot" in presets
    assert "family" in invoke("presets").stdout


def test_one_with_its_numbers():
    assert "CVPR 2025" in invoke("presets", "unem-gaussian/mini-imagenet/resnet18/5-shot").stdout
    shown = " ".join(invoke("presets", "unem-plus/clip-rn50").stdout.split())
    assert "unem-plus/clip-rn50, for 5 effective classes of 50, 75 queries" in shown


def test_a_pattern_that_matches_nothing():
    assert "PATTERN: no preset matches 'zz*'" in said("presets", "zz*")
