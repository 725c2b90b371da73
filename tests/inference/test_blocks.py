"""Very many queries, in parts."""

from __future__ import annotations

import torch

import unem
from unem.inference import label_features
from unem.inference.blocks import AT_ONCE, predict_in_blocks


def test_many_queries_go_in_blocks():
    """Methods whose memory grows with the square of the queries see parts; independent ones say the same."""
    torch.manual_seed(3)
    labels = torch.arange(6) % 2
    support, query = torch.randn(6, 4), torch.randn(2 * AT_ONCE + 7, 4)
    found = label_features(support, labels, query, ["a", "b"], method="laplacian-shot")
    assert any("at a time" in note for note in found.notes)
    assert len(found.probabilities) == len(query)
    singly = label_features(support, labels, query, ["a", "b"], method="simpleshot")
    part = label_features(support, labels, query[:50], ["a", "b"], method="simpleshot")
    assert torch.allclose(singly.probabilities[:50], part.probabilities, atol=1e-6)


def test_classes_that_come_in_turns_do_not_fall_into_blocks_of_their_own():
    parts = []

    class Recording:
        name, inputs = "laplacian-shot", "features"

        def predict(self, task):
            parts.append(task.query[0, :, 0])
            return unem.Prediction(task.query[0, :, :2])

    count = 3 * AT_ONCE  # in three blocks: every third query
    rows = torch.stack([torch.arange(count) % 3, torch.arange(count)], 1).float()
    found = predict_in_blocks(Recording(), unem.Task(torch.eye(2), torch.arange(2), rows), [])
    assert [len(part.unique()) for part in parts] == [3, 3, 3]
    assert torch.equal(found.probabilities, rows)
