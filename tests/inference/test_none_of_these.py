"""Queries of no class in the support."""

from __future__ import annotations

import pytest
import torch

from unem.errors import InputError
from unem.inference import label_features


def test_none_of_these():
    torch.manual_seed(0)
    labels = torch.arange(60) % 4
    make = lambda y: 12 * torch.eye(64)[y] + torch.randn(len(y), 64)  # noqa: E731
    own, stranger = make(torch.arange(200) % 4), make(torch.full((50,), 9))
    answer = label_features(make(labels), labels, torch.cat([own, stranger]), list("abcd"), none_of_these=0.05)
    marked = answer.none_of_these
    assert marked[200:].float().mean() > 0.9
    assert marked[:200].float().mean() <= 0.1  # 5 % asked for, of sixty images
    looser = label_features(make(labels), labels, torch.cat([own, stranger]), list("abcd"), none_of_these=0.3)
    assert looser.none_of_these.sum() >= marked.sum()
    few = label_features(make(labels[:8]), labels[:8], own, list("abcd"), none_of_these=0.05)
    assert any("too few" in note for note in few.notes)
    with pytest.raises(InputError, match="none_of_these"):
        label_features(make(labels), labels, own, list("abcd"), none_of_these=1.5)
