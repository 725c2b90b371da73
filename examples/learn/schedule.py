"""Learn a schedule on validation tasks.

UNEM's class balance λ and temperature T of each layer are learned on tasks whose labels are known, in seconds, and used
on other images. The picture shows what was learned. More: docs/how-it-works.md.
"""

import unem
from unem.data import load_digits
from unem.report import schedule_figure

digits = load_digits()
protocol = unem.Protocol(shots=3, effective_classes=3, queries=75)
schedule = unem.train(digits.split("val"), unem.Gaussian(), protocol, tasks=100, epochs=10, seed=0)

em = unem.Schedule(class_balance=1.0, temperature=1.0, feature_scale=schedule.feature_scale, layers=10)
for name, one in {"EM": em, "learned": schedule}.items():
    result = unem.evaluate(unem.UNEM(unem.Gaussian(), one), digits.split("test"), protocol, tasks=200, seed=1)
    print(f"{name:8}{result.accuracy:5.1f} ± {result.interval:.1f} %")

schedule_figure({"EM": em, "learned": schedule}, num_queries=75).savefig("schedule.png", facecolor="white")
