"""Label images as they arrive.

Ten images at a time are labelled, of three digits that nobody names. A stream remembers how many images of each class
came before, no image, and forgets it where a batch contradicts it; so later batches are labelled better. The picture is
the mean of 24 streams. More: docs/evidence.md.
"""

import matplotlib.pyplot as plt
import torch

import unem
from unem.data import TaskSource, load_digits
from unem.inference import Stream

BATCHES, SIZE, STREAMS = 8, 10, 24

protocol = unem.Protocol(shots=2, effective_classes=3, queries=BATCHES * SIZE)
tasks, labels = TaskSource(protocol, load_digits().split("test"), seed=1).batch(0, STREAMS)
method = unem.create_method("evidence")

figure, ax = plt.subplots(figsize=(6, 3.2))
for memory, look, name in ((1.0, "o-", "with memory"), (0.0, "^--", "each batch by itself")):
    right = torch.zeros(BATCHES)
    for task, truth in zip((tasks[i] for i in range(STREAMS)), labels, strict=True):
        stream = Stream(method, task.support[0], task.support_labels[0], memory=memory)
        for batch in range(BATCHES):
            part = slice(SIZE * batch, SIZE * (batch + 1))
            answer = stream.predict(task.query[0, part]).labels
            right[batch] += (answer == truth[part]).float().mean() / STREAMS
    print(f"{name}: {100 * right[0]:.0f} % of the first batch, {100 * right[-1]:.0f} % of the last")
    ax.plot(range(1, BATCHES + 1), 100 * right, look, label=name)
ax.set(xlabel=f"batch of {SIZE} images", ylabel="right, %")
ax.legend()
figure.savefig("stream.png")
