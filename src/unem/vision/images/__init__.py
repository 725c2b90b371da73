"""Image files: what is in a folder, their pixels, and tables of pixels."""

from unem.vision.decoding import MAX_PIXELS, ImageError, open_image, read_file
from unem.vision.images.listing import ENDINGS, UNLABELLED, ImageList, image_files, other_files
from unem.vision.images.pixels import load_pixels
from unem.vision.images.tensors import ImageTensors, split_classes

__all__ = [
    "ENDINGS",
    "MAX_PIXELS",
    "UNLABELLED",
    "ImageError",
    "ImageList",
    "ImageTensors",
    "image_files",
    "load_pixels",
    "open_image",
    "other_files",
    "read_file",
    "split_classes",
]
