"""Find rare classes with a balanced decision.

Of 150 digits to label, 120 are zeros to threes and 30 of the other six classes. The most probable class gives the most
right answers in all, at the price of rare classes. A balanced decision counts each class alike. Both have the same
probabilities; the picture shows how much of each class is found. More: docs/predict.md.
"""

import matplotlib.pyplot as plt
import torch

from unem.data import load_digits
from unem.inference import label_features

digits = load_digits().split("test")
wanted = [30] * 4 + [5] * 6  # images of each class to label
order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
rows = [order[digits.labels[order] == k][: n + 3] for k, n in enumerate(wanted)]
few, new = torch.cat([r[:3] for r in rows]), torch.cat([r[3:] for r in rows])

found = {}
for decision in ("accuracy", "balanced"):
    answer = label_features(
        digits.features[few], digits.labels[few], digits.features[new], digits.class_names, decision=decision
    )
    right = answer.labels == digits.labels[new]
    found[decision] = [100 * float(right[digits.labels[new] == k].double().mean()) for k in range(10)]
    print(f"{decision}: {100 * right.double().mean():.0f} % right, mean over classes {sum(found[decision]) / 10:.0f} %")

figure, ax = plt.subplots(figsize=(6, 3.4))
for i, (decision, shares) in enumerate(found.items()):
    ax.bar(torch.arange(10) + 0.4 * i - 0.2, shares, 0.38, label=f'decision="{decision}"')
ax.set_xticks(range(10), [f"{k}\n{n}" for k, n in enumerate(wanted)])
ax.set(xlabel="class, and its images to label", ylabel="found, %", ylim=(0, 118))
ax.legend(loc="upper center", ncols=2)
figure.savefig("rare_classes.png")
