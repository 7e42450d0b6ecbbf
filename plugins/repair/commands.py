"""The commands ``visterm info`` and ``visterm repair``."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import JsonOption, RunOption, make_console, open_run
from visterm.pipeline.console import count, one_line

if TYPE_CHECKING:
    from visterm.pipeline.store.run import Run


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
    from .info import describe_run

    place, configuration = open_run(run, None, None)
    description = describe_run(place, configuration)
    if not skipped:
        description.pop("skipped_files")
    if as_json:
        print(json.dumps(description, indent=1))
        return

    for key, value in description.items():
        if key == "skipped_files":
            for path, reason in value:
                print(f"{one_line(path)}: {reason}")
        elif key == "evaluations":
            for evaluation in value.values():
                if "error" not in evaluation:  # a line of `damaged`
                    print(f"{'evaluated:':12} {_evaluation_in_words(evaluation)}")
        elif key in ("damaged", "not_used"):
            for line in value:
                print(f"{key.replace('_', ' ') + ':':12} {one_line(line)}")
        elif key == "segments":
            if "error" not in value:
                print(f"{'segments:':12} {_segments_in_words(value)}")
        elif key == "indexes":
            for name, index in value.items():
                share = f"{index['recall']:.1%} of the {index['k']} nearest of {index['images']:,} images"
                held = f"; {index['held']:,} in Milvus, {index['milvus']}" if "milvus" in index else ""
                print(f"{'index:':12} {name} finds {share} (measured with {index['queries']:,} of them){held}")
        elif key == "drift":
            if value is not None:
                print(f"{'drift:':12} {_drift_in_words(value, place)}")
        elif isinstance(value, dict):
            of = " strength" if key == "neighbours" else ""
            figures = ", ".join(f"{name}{of} {figure}" for name, figure in value.items())
            print(f"{key + ':':12} {figures or 'none'}")
        else:
            print(f"{key + ':':12} {one_line(str(value))}")


def _segments_in_words(segments: dict) -> str:
    dead, merged = segments["dead_rows"], segments["to_merge"]
    compact = f"; 'visterm compact' merges {merged:,}" if merged else ""
    return f"{segments['number']:,} ({dead:,} dead rows{compact})"


def _drift_in_words(drift: dict, place: Run) -> str:
    n, cosine = drift["images"], drift["mean_cosine"]
    change = "" if cosine is None else f"; mean cosine to vectors with today's idf {cosine:.3f}"
    pays = f"out of date: 'visterm features --force --run {shlex.quote(place.name)}' learns them again"
    return f"{count(n, 'image')} added since visterms and idf were learned{change}; " + (
        pays if drift["refit"] else "up to date"
    )


def _evaluation_in_words(evaluation: dict) -> str:
    figures = ", ".join(f"{system} {value}" for system, value in evaluation["map"].items())
    stale = " (out of date: evaluate again)" if evaluation["stale"] else ""
    return f"{evaluation['protocol']}, {evaluation['n_queries']:,} queries, mAP: {figures}{stale}"
