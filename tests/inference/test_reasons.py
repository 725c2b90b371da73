"""Reasons are data; their sentences are plain English."""

from __future__ import annotations

import re

import pytest

from unem.inference import Reason, sentence
from unem.inference.reasons import CODES

NUMBERS = {
    "preset": "unem-plus/resnet18",
    "classes": 1,
    "shots": 1.0,
    "share": 0.8,
    "published_shots": 1,
    "published_classes": 10,
    "scatter": 2.0,
    "scale": 3.0,
    "published_scale": 1.5,
    "method": "baseline",
    "samples": 12,
    "jointly": 80.0,
    "independently": 90.0,
}


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_sentence_for_any_face(code):
    words = sentence(Reason(code, NUMBERS))
    assert words == str(Reason(code, NUMBERS))
    assert not re.search(r"--\w", words)  # a face has its own way to say how a thing is asked for
    assert not re.search(r"\b1 (classes|shots)\b", words)
    assert "80 %" in words


def test_a_bare_reason():
    assert sentence(Reason("given")) == "it was given"
