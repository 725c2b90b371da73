"""Correct the doubtful answers, and label again.

Two examples of each digit are too few for many of 150 others. Each round a person says the class of the ten least sure
ones. They count as labelled examples for the rest: the picture compares that with what the corrections alone would
bring. More: docs/tutorial.md.
"""

import matplotlib.pyplot as plt
import torch

from unem.data import load_digits
from unem.inference import label_features

digits = load_digits().split("test")
order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
rows = [order[digits.labels[order] == k][:17] for k in range(10)]
few, new = torch.cat([r[:2] for r in rows]), torch.cat([r[2:] for r in rows])
truth = digits.labels[new]

corrections: dict[int, int] = {}  # number of the image: its class
again, alone = [], []
for _ in range(6):
    answer = label_features(
        digits.features[few], digits.labels[few], digits.features[new], digits.class_names, corrections=corrections
    )
    if not corrections:
        first = answer.labels
    given = torch.zeros(len(new), dtype=torch.bool)
    given[list(corrections)] = True
    again.append(100 * float((answer.labels == truth).double().mean()))
    alone.append(100 * float(((first == truth) | given).double().mean()))
    sure = answer.probabilities.amax(-1).masked_fill(given, 2)
    corrections |= {int(i): int(truth[i]) for i in sure.argsort()[:10]}
print(f"{again[0]:.0f} % right, {again[-1]:.0f} % after 50 corrections; {alone[-1]:.0f} % without labelling again")

figure, ax = plt.subplots(figsize=(6, 3.2))
ax.plot(range(0, 60, 10), again, "o-", label="labelled again")
ax.plot(range(0, 60, 10), alone, "^--", label="corrections alone")
ax.set(xlabel="images corrected, of 150", ylabel="right, %")
ax.legend()
figure.savefig("corrections.png")
