"""Compare methods on the same tasks.

Each of 200 tasks has three labelled examples of each of ten digits, and 75 images of three of them. All methods see the
same tasks, so that the difference of two is far more certain than their accuracies: the picture shows the difference to
the best, with its paired 95 % interval. More: docs/how-to-choose.md.
"""

import matplotlib.pyplot as plt

import unem
from unem.data import load_digits

METHODS = ["evidence", "paddle", "em-gaussian", "label-propagation", "whitened-mean", "logistic", "prototypes"]

protocol = unem.Protocol(shots=3, effective_classes=3, queries=75)
comparison = unem.compare(METHODS, load_digits().split("test"), protocol, tasks=200, seed=1)
rows = sorted(comparison.rows(), key=lambda row: row["accuracy"])
for row in reversed(rows):
    print(f"{row['method']:18}{row['accuracy']:5.1f} ± {row['interval']:.1f} %")

figure, ax = plt.subplots(figsize=(6, 3.2))
differences, widths = ([row[key] for row in rows] for key in ("difference", "difference_interval"))
ax.errorbar(differences, range(len(rows)), xerr=widths, fmt="o", capsize=3)
ax.set_yticks(range(len(rows)), [row["method"] for row in rows])
ax.set_xlabel("accuracy less that of the best method, points")
figure.savefig("compare.png")
