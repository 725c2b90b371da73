"""Reasons are data; their sentences are plain English."""

from __future__ import annotations

import re

import pytest

from unem.inference import Reason, sentence
from unem.inference.reasons import CODES, MIXES

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
    "labelled": 60,
    "held_out": 40,
    "jointly": 34,
    "independently": 33,
}


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_sentence_for_any_face(code):
    words = sentence(Reason(code, NUMBERS))
    assert words == str(Reason(code, NUMBERS))
    assert not re.search(r"--\w", words)  # a face has its own way to say how a thing is asked for
    assert not re.search(r"\b1 (classes|shots)\b", words)
    assert "%" not in words


def test_held_out_samples_are_counts():
    numbers = {"classes": 12, "labelled": 60, "held_out": 40, "jointly": 34, "independently": 33}
    assert sentence(Reason("evidence", numbers)) == (
        "the evidence of the task itself says which mix of the 12 classes is present, from 60 labelled images; "
        "of 40 labelled images that could be held out in turn, 34 are labelled right jointly and 33 independently"
    )


def test_a_bare_reason():
    assert sentence(Reason("given")) == "it was given"


@pytest.mark.parametrize(("mix", "words"), MIXES.items())
def test_what_an_answer_rests_on(mix, words):
    said = sentence(Reason("evidence", {"classes": 12, "mix": mix, "mix_share": 0.874}), what="sample")
    rests = "" if mix in ("any", "none") else "87 % of the answer rests on "
    assert said.endswith(f"; {rests}{words.format('sample')}")
    assert ("each sample" in said) is (mix in ("alone", "any"))
