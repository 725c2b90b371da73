"""Watch a schedule at work, layer by layer.

A task of 75 digits of three classes goes through the ten layers of a learned schedule. The share of each class among
the assignments moves from an even guess to the true one; classes that are not there die out. More:
docs/how-it-works.md.
"""

import unem
from unem.data import TaskSource, load_digits
from unem.report import proportions_figure

digits = load_digits()
protocol = unem.Protocol(shots=3, effective_classes=3, queries=75)
schedule = unem.train(digits.split("val"), unem.Gaussian(), protocol, tasks=100, epochs=10, seed=0)

task, labels = TaskSource(protocol, digits.split("test"), seed=4).batch(0, 1)
prediction = unem.gem(task, unem.Gaussian(), schedule, trace=True)
for layer in (0, 2, 9):
    shares = prediction.trace.proportions[layer, 0]
    print(f"layer {layer}: {int((shares > 0.02).sum())} classes have more than 2 % of the images")
print(f"{100 * (prediction.labels == labels).double().mean():.0f} % right")

figure = proportions_figure(prediction.trace, labels[0], class_names=digits.class_names)
figure.savefig("layers.png", facecolor="white")
