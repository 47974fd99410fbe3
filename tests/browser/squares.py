"""Two checkpoints that answered four prompts about a coloured square."""

from __future__ import annotations

from evaluation_builders import SETTINGS, evaluated
from homes import Home
from PIL import Image

from mmrl.data.images import ImageStore
from mmrl.evaluation.panels import PanelSettings, panel_of, save_panel
from mmrl.types import ImagePart, Message, Sample, TextPart


def evaluate_squares(home: Home) -> None:
    """Step 0 and step 100 of a run: one prompt is newly solved, one regresses. Needs the home to be active."""
    colours = {"red": (200, 40, 40), "green": (40, 160, 60), "blue": (40, 80, 200), "grey": (128, 128, 128)}
    store = ImageStore()
    prompts = []
    for name, colour in colours.items():
        content = (ImagePart(store.add(Image.new("RGB", (56, 56), colour))), TextPart("Which colour is it?"))
        prompts.append(Sample(f"square-{name}", (Message("user", content),), name))
    panel = panel_of(prompts, PanelSettings(max_response_tokens=SETTINGS.max_response_tokens), name="squares")
    save_panel(panel, store)
    run = home.path / "runs" / "squares"
    for step, answers in (
        (0, ("red", "blue", "blue", "a grey one")),
        (100, ("a red one", "green", "navy", "light grey")),
    ):
        evaluated(panel, step, *((answer,) for answer in answers), run=run)
