"""From image files to the pixels that a model sees, in this process or in others.

Nothing here imports torch before it is needed, so that processes which only decode start in a moment.
"""

from unem.vision.decoding.decode import MAX_PIXELS, ImageError, open_image, read_file
from unem.vision.decoding.preparation import Source, prepare
from unem.vision.decoding.preprocessing import Preprocessing
from unem.vision.decoding.processes import DecodingProcesses

__all__ = [
    "MAX_PIXELS",
    "DecodingProcesses",
    "ImageError",
    "Preprocessing",
    "Source",
    "open_image",
    "prepare",
    "read_file",
]
