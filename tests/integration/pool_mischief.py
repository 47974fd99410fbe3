"""Image sinks that end or hold up the process that calls them, for pictures whose first pixel tells them to."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path

from PIL import Image

from mmrl.data.images import inspect_image
from mmrl.errors import MmrlError
from mmrl.types import ImageRef

KILL, HANG, EXIT, FULL, ODD = (250, 0, 0), (0, 250, 0), (0, 0, 250), (250, 250, 0), (0, 250, 250)


def mischievous(image: Image.Image | bytes) -> ImageRef:
    assert isinstance(image, bytes)
    pixel = Image.open(io.BytesIO(image)).convert("RGB").getpixel((0, 0))
    if pixel == KILL:
        os.kill(os.getpid(), signal.SIGSEGV)
    if pixel == HANG:
        time.sleep(600)
    if pixel == EXIT:
        os._exit(3)
    if pixel == FULL:
        raise MmrlError("cannot write: No space left on device")
    if pixel == ODD:
        raise LookupError("nobody foresaw this")
    return inspect_image(image)


def note_process(image: Image.Image | bytes) -> ImageRef:
    """Leaves a file named by the process that decoded the image, and says whether torch was imported there."""
    import sys

    folder = Path(os.environ["MMRL_TEST_PROCESSES"])
    (folder / f"{os.getpid()}-{'torch' in sys.modules}").touch()
    return inspect_image(image)
