"""The command export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import (
    JsonOption,
    LearnedWeightOption,
    LearnerOption,
    RunOption,
    make_console,
    one_name,
    open_run,
    recommended_learner,
)
from visterm.pipeline.console import count


@command
def export(
    to: Annotated[
        list[str], typer.Option("--to", metavar="FORMAT", help="npz, onnx, pixels, parquet or faiss; several: a,b.")
    ],
    run: RunOption = None,
    learner: LearnerOption = None,
    learned_weight: LearnedWeightOption = None,
    precision: Annotated[
        str,
        typer.Option("--precision", metavar="NAME", help="Of a dense gallery: float32, float16, or int8 with a scale."),
    ] = "float32",
    since: Annotated[
        Path | None,
        typer.Option("--since", metavar="FOLDER", help="Only images that this earlier export lacks; removed.csv."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FOLDER", help="Where to write (default: RUN-LEARNER).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the similarity and the gallery for other programs.

    Writes similarity.npz (gallery and query map), similarity.onnx (the maps of both sides), pixels.onnx (from pixels
    of a photo to its query, of runs of a network), gallery.parquet (gallery with paths and labels) or gallery.faiss (an
    index that maps its queries, and images.csv with the paths); and export.json, the origin of all. Prints the paths of
    the files; plugins/export/README.md shows how to load each without visterm.

    \b
    Examples:
      visterm export --to onnx --run photos
      visterm export --to faiss,parquet --learner wsabie
      visterm export --to npz --learned-weight 1 --output exported
      visterm export --to parquet --precision int8
      visterm export --to parquet --since photos-oasis --output changes
    """
    from .export import export as stage

    place, configuration = open_run(run, None, None)
    console = make_console()
    name = one_name(learner) or recommended_learner(place, configuration, console)
    kinds = [kind for text in to for kind in text.replace(",", " ").split()]
    folder = output or Path(f"{place.name}-{name}")
    written = stage(
        place, name, kinds, folder, console, learned_weight=learned_weight, precision=precision, since=since
    )
    if as_json:
        print(json.dumps(written))
        return
    share = "" if written["learned_weight"] == 1 else f" (learned weight {written['learned_weight']:g})"
    gone = f"; {count(written['n_removed'], 'image')} removed since" if since else ""
    what = f"as {name} compares them" if set(kinds) <= {"parquet"} else f"and the similarity of {name}"
    console.say(f"exported {count(written['n_images'], 'image')} {what}{share}{gone}")
    for file in written["files"]:
        print(file)
