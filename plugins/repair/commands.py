"""The commands ``visterm info`` and ``visterm repair``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import JsonOption, RunOption, make_console, open_run
from visterm.pipeline.console import one_line


@command
def repair(
    images: Annotated[
        str | None, typer.Argument(metavar="IMAGES", help="Directory of images, if the run no longer tells it.")
    ] = None,
    run: RunOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every file of a run and restore what is damaged.

    Restores the catalogue, label edits, pictures said to be different, relevance marks and ratings from their copies:
    images keep their ids. Extracts the images of damaged segments again. Of damaged learners, indexes and evaluations
    it prints the command that rebuilds them; the exit code is then 2.

    \b
    Examples:
      visterm repair --run photos
      visterm repair photos/ --run photos
    """
    from .repair import repair as stage

    place, configuration = open_run(run, None, None)
    console = make_console()
    done = stage(place, configuration, Path(images) if images else None, console)
    if as_json:
        print(json.dumps({"run": place.name} | done))
    else:
        for title in ("kept", "lost"):
            for line in done[title]:
                console.say(f"{title}: {line}")
        if not done["kept"] and not done["damaged"] and not done["features"]["extracted"]:
            console.say("nothing to repair")
    for line in done["damaged"]:
        print(f"visterm: {one_line(line)}", file=sys.stderr)
    if done["damaged"]:
        raise typer.Exit(2)


@command
def info(
    run: RunOption = None,
    skipped: Annotated[bool, typer.Option("--skipped", help="List every skipped file with its reason.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the contents of a run and what is out of date.

    \b
    Examples:
      visterm info
      visterm info --run photos --skipped
    """
    from .info import show_info

    show_info(run, skipped=skipped, as_json=as_json)
