"""The gate against logistic regression."""

from __future__ import annotations

import numpy as np
import torch

from unem.learning.gate import IMITATION, RIDGE, GateExamples, fit_gate


def test_gate_is_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    g = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=g, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(300, generator=g, dtype=torch.float64)).gt(0).long()
    same = torch.ones(300, 2, 5, dtype=torch.float64)  # where all candidates are right, k alone is learned
    gate = fit_gate([GateExamples(x, same, torch.eye(2, dtype=torch.float64)[y], same[:, 0, 0])])
    standard = (x - x.mean(0)) / x.std(0)
    # The sum over both classes of ridge·‖w‖² is half of it for their difference.
    theirs = LogisticRegression(C=IMITATION / (300 * RIDGE), tol=1e-10, max_iter=1000).fit(standard.numpy(), y.numpy())
    w = torch.tensor(gate.weights)
    np.testing.assert_allclose((w[1] - w[0]).numpy(), theirs.coef_[0], rtol=2e-2)


def test_gate_prefers_what_is_right_to_what_is_true():
    """Where the candidate of another k classifies better, it is that one which is wanted."""
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth = torch.tensor([[0.2], [0.9]], dtype=torch.float64).expand(100, 2, 6)
    named = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(100, -1)
    gate = fit_gate([GateExamples(x, truth, named, truth[:, 0, 0])])
    assert gate.bias[1] > gate.bias[0] + 1
