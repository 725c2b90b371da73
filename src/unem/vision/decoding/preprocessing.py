"""From a picture to the numbers a model was trained on: resized, cropped, normalised."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from unem.errors import InputError

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8
    from torch import Tensor

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Preprocessing"]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # as Pillow numbers them


@dataclass(frozen=True)
class Preprocessing:
    """Resize, crop the centre, normalise. Plain data: it can be sent to other processes, and named by a digest.

    Args:
        size: side of the square that the model sees.
        resize: what the image is resized to first: its shortest side (``fit="shortest"``), or both (``fit="square"``,
            which does not keep the proportions).
        mean, std: of each channel, on the scale 0 … 1.
        resample: Pillow's filter.

    Example:
        >>> from PIL import Image
        >>> Preprocessing(size=8, resize=10)(Image.new("RGB", (40, 20), "white")).shape
        torch.Size([3, 8, 8])
    """

    size: int = 224
    resize: int = 256
    fit: Literal["shortest", "square"] = "shortest"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    resample: str = "bicubic"

    def __post_init__(self) -> None:
        if self.size < 1 or self.resize < 1:
            raise InputError(f"preprocessing: expected positive sizes, got size {self.size} and resize {self.resize}")
        if self.resample not in FILTERS or self.fit not in ("shortest", "square"):
            raise InputError(f"preprocessing: unknown filter {self.resample!r} or fit {self.fit!r}")
        if not len(self.mean) == len(self.std) == 3 or min(self.std) <= 0:
            raise InputError(f"preprocessing: expected 3 means and 3 positive stds, got {self.mean} and {self.std}")

    def __call__(self, image: Any) -> Float[Tensor, "3 height width"]:
        """One picture as the model wants it."""
        import torch

        return self.normalise(torch.from_numpy(self.pixels(image))[None])[0].contiguous()

    def pixels(self, image: Any) -> NDArray[np.uint8]:
        """One picture ``[height, width, 3]``, resized and cropped; the part that is worth doing in parallel.

        The margins that the crop takes away are never computed: Pillow resizes from a box of the original.
        """
        picture = image if image.mode == "RGB" else image.convert("RGB")
        across, down = self._resized(*picture.size)
        if (across, down) != picture.size:
            picture = self._resize(picture, across, down)
        else:
            picture = _crop(picture, self.size)
        return np.array(picture, dtype=np.uint8)

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        if self.fit == "square":
            return self.resize, self.resize
        if width <= height:
            return self.resize, max(1, int(self.resize * height / width))
        return max(1, int(self.resize * width / height)), self.resize

    def _resize(self, picture: Any, across: int, down: int) -> Any:
        left, top = (across - self.size) // 2, (down - self.size) // 2
        if left < 0 or top < 0:
            return _crop(picture.resize((across, down), FILTERS.index(self.resample)), self.size)
        x, y = picture.width / across, picture.height / down
        box = (left * x, top * y, (left + self.size) * x, (top + self.size) * y)
        return picture.resize((self.size, self.size), FILTERS.index(self.resample), box=box)

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        """Pixels as numbers, on whatever device they are; channels stay last in memory, as convolutions like it."""
        import torch

        images, height, width, _ = pixels.shape
        # A row of pixels at a time: three numbers do not fill a vector register.
        mean = (torch.tensor(self.mean, device=pixels.device) * 255).repeat(width)
        scale = (1 / (torch.tensor(self.std, device=pixels.device) * 255)).repeat(width)
        rows = pixels.reshape(images, height, width * 3).to(torch.float32).sub_(mean).mul_(scale)
        return rows.view(images, height, width, 3).permute(0, 3, 1, 2)

    def to_dict(self) -> dict[str, Any]:
        """What determines the result, as plain values."""
        return asdict(self)


def _crop(picture: Any, size: int) -> Any:
    """The centre square; a picture that is too small gets a black margin, as image processors do."""
    if picture.size == (size, size):
        return picture
    left, top = (picture.width - size) // 2, (picture.height - size) // 2
    return picture.crop((left, top, left + size, top + size))
