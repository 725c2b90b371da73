"""How many classes are present decides which method is good.

The same methods on tasks in which one, two, … or all ten digits are among the 75 images to label. Nobody tells them.
EM with a fixed class balance suits few classes or many; ``evidence`` weighs the explanations by how well they fit.
More: docs/how-it-works.md.
"""

import matplotlib.pyplot as plt

import unem
from unem.data import load_digits

PRESENT = (1, 2, 3, 5, 10)

digits = load_digits().split("test")
figure, ax = plt.subplots(figsize=(6, 3.6))
looks = {"evidence": "o-", "paddle": "^--", "soft-kmeans": "s-.", "whitened-mean": "D:"}
for name, look in looks.items():
    accuracies = []
    for present in PRESENT:
        protocol = unem.Protocol(shots=3, effective_classes=present, queries=75)
        accuracies.append(unem.evaluate(name, digits, protocol, tasks=40, seed=1).accuracy)
    print(f"{name:14}", *(f"{a:4.0f}" for a in accuracies))
    ax.plot(PRESENT, accuracies, look, label=name)
ax.set(xlabel="classes present, of ten", ylabel="accuracy, %", xticks=PRESENT)
ax.legend()
figure.savefig("situations.png")
