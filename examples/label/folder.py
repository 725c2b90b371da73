"""Label a folder of images.

Four examples of each of seven shapes are in folders of their class; 56 other pictures are in one folder. All of
them are labelled jointly, on the features of a backbone that needs no download. The picture shows the sixteen least
sure answers, wrong ones in red: polygons at any angle look alike to it. On the command line: docs/predict.md.
"""

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
from PIL import Image

from unem.inference import label_images, query_images, support_images
from unem.vision.backbones import create
from unem.web.examples import shape_images

with TemporaryDirectory() as name:
    folder = Path(name)
    (folder / "new").mkdir()
    for shape, files in shape_images((12,) * 7, seed=6).items():
        (folder / "few" / shape).mkdir(parents=True)
        for i, content in enumerate(files):
            place = f"few/{shape}/{i}.png" if i < 4 else f"new/{shape}-{i}.png"
            Image.open(io.BytesIO(content)).save(folder / place)

    backbone = create("efficientnet-lite0")
    labelling = label_images(support_images(folder / "few"), query_images(folder / "new"), backbone)
    right = sum(row.path.startswith(row.label) for row in labelling.rows)
    print(f"{right} of {len(labelling)} right; {', '.join(f'{n} {shape}' for shape, n in labelling.counts().items())}")

    figure, axes = plt.subplots(4, 4, figsize=(6, 6.6))
    for ax, i in zip(axes.flat, labelling.by_doubt, strict=False):
        row = labelling.rows[i]
        ax.imshow(plt.imread(folder / "new" / row.path))
        colour = "black" if row.path.startswith(row.label) else "red"
        ax.set_title(f"{row.label} {100 * row.probability:.0f} %", color=colour, fontsize=10, weight="normal")
        ax.axis("off")
    figure.savefig("folder.png")
