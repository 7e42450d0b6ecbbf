"""The command ``visterm demo``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import JsonOption, make_console, run_named


@command
def demo(
    run: Annotated[str, typer.Option("--run", help="Name of the run.")] = "demo", as_json: JsonOption = False
) -> None:
    """Run the whole pipeline on bundled photos.

    The images are crops of photos that scikit-image and scikit-learn ship, written to runs/<run>/images. Prints the
    path of the report.
    """
    from visterm.pipeline.config.loading import load_config
    from visterm.pipeline.stages.pipeline import run_pipeline

    from .demo_images import DEMO_SETTINGS, write_demo_images

    place, console = run_named(run), make_console()
    images = place.folder / "images"
    if not images.exists():
        console.say(f"writing demo images to {images}")
        place.folder.mkdir(parents=True, exist_ok=True)
        write_demo_images(images)
    place.make_current()
    report = run_pipeline(place, load_config(None, DEMO_SETTINGS), images, console)
    metrics = json.loads(report.with_name("metrics.json").read_text())
    if as_json:
        print(json.dumps(metrics))
        return
    oasis, cosine = (metrics["systems"][name]["map"] for name in ("oasis", "cosine"))
    console.say(f"mAP {oasis:.3f} with OASIS, {cosine:.3f} with cosine. Open the report in a browser:")
    print(report)
