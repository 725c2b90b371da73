"""Find images of none of the classes.

Only the digits 0 to 4 have labelled examples, but a fifth of the images to label are sevens. Asked for 5 % of false
alarms, the labelling marks images that are farther from every class than the labelled images are from each other; with
so few of these the 5 % hold roughly. The picture shows how far each image is: 1 is the limit. More: docs/trust.md.
"""

import matplotlib.pyplot as plt
import torch

from unem.data import load_digits
from unem.inference import label_features

digits = load_digits().split("test")
order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(1))
rows = {k: order[digits.labels[order] == k] for k in (0, 1, 2, 3, 4, 7)}
few = torch.cat([rows[k][:10] for k in range(5)])
new = torch.cat([rows[k][10:26] for k in range(5)] + [rows[7][:20]])

answer = label_features(
    digits.features[few], digits.labels[few], digits.features[new], digits.class_names[:5], none_of_these=0.05
)
stranger = digits.labels[new] == 7
found, alarms = int(answer.none_of_these[stranger].sum()), int(answer.none_of_these[~stranger].sum())
print(f"of 20 sevens {found} are marked, of 80 others {alarms}")

figure, ax = plt.subplots(figsize=(6, 3.2))
bins = torch.linspace(0, float(answer.novelty.max()), 24).tolist()
ax.hist([answer.novelty[~stranger], answer.novelty[stranger]], bins, stacked=True, label=["0 to 4", "7: no examples"])
ax.axvline(1, color="black", linestyle="--")
ax.set(xlabel="novelty", ylabel="images", ylim=(0, 14))
ax.legend(loc="upper left", ncols=2)
figure.savefig("none_of_these.png")
