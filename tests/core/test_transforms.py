"""Feature transforms that depend on the task."""

from __future__ import annotations

import torch

from unem import Task
from unem.core.transforms import scale_channels

SUPPORT, LABELS, QUERY = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2]), torch.randn(5, 4)


def test_channel_scaling_leaves_constant_channels_alone():
    query = torch.cat([QUERY, torch.full((5, 1), 3.0)], 1)
    scaled = scale_channels(Task(torch.cat([SUPPORT, torch.ones(6, 1)], 1), LABELS, query))
    spread = scaled.query.amax(1) - scaled.query.amin(1)
    torch.testing.assert_close(spread[0], torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0]))
    assert torch.isfinite(scaled.support).all()
