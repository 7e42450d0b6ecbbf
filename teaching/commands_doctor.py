"""Command ``visterm doctor``."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import JsonOption, RunOption, one_name, open_searcher
from visterm.pipeline.console import count, in_columns, one_line
from visterm.pipeline.errors import UserError


@command
def doctor(
    run: RunOption = None,
    learner: Annotated[
        str | None,
        typer.Option("--learner", metavar="NAME", help="A learner with a table of teachers (default: oasis)."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="List so many labels and so many images at most.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List labels that are likely wrong, and training images that harm the ranking.

    A label is listed with its probability, and with the label that fits better, as all other images with labels say.
    Labels that people added or confirmed are skipped. Images are listed without which the learner would rank held-out
    images better, with what they taught it.

    \b
    Examples:
      visterm doctor --run photos
      visterm doctor -k 100 --json
    """
    from .harmful import LEAST_GAIN, find_harmful, in_words
    from .wrong_labels import find_wrong_labels

    chosen = one_name(learner)
    searcher, console = open_searcher(run)
    name, why = chosen or "oasis", None
    if chosen is None and name not in searcher.learners:
        harmful, why = None, f"{name} is not trained"
    else:
        try:
            with console.phase("measuring what training images do to held-out ones"):
                harmful = find_harmful(searcher, name, k)
        except UserError as error:
            if chosen is not None:
                raise
            harmful, why = None, str(error)
    with console.phase(f"judging the labels of {count(len(searcher.images), 'image')}"):
        labels = find_wrong_labels(searcher, k)
    if as_json:
        print(json.dumps({"run": searcher.run.name, "labels": labels, "harmful": harmful, "no_harmful": why}))
        return
    of_run = searcher.run.option
    print("\n".join(["Labels that are likely wrong", *_in_words(labels)]) if labels else "No label looks wrong")
    if harmful is not None:
        known = f"the mAP of {name}, {harmful['map']:.4f} on {harmful['measured_on']}"
        if harmful["images"]:
            shares = f"{harmful['share_harmful']:.0%} of all, by chance {harmful['share_by_chance']:.0%}"
            print("\n".join([f"Images without which {known}, would be higher ({shares})", *in_words(harmful)]))
        else:
            print(f"No training image lowers {known}, by {LEAST_GAIN:.4f} or more")
    if labels:
        image, wrong, right = (shlex.quote(str(labels[0][key])) for key in ("id", "label", "suggested"))
        remove, add = (
            f"visterm label remove {wrong} id:{image} {of_run}",
            f"visterm label add {right} id:{image} {of_run}",
        )
        console.say(f"to correct a label: '{remove}' and '{add}'")
    if harmful is None:
        console.say(f"images that harm the ranking are not listed: {why}")
    elif harmful["images"]:
        forget = f"visterm forget id:{harmful['images'][0]['id']} --learner {name} {of_run}"
        console.say(f"to take out what an image taught: '{forget}'")


def _in_words(labels: list[dict[str, Any]]) -> list[str]:
    """Return labels that are likely wrong as lines of a table."""
    rows = [
        (
            f"  {one['score']:.3f}",
            f"id:{one['id']}",
            one_line(one["path"]),
            f"{one_line(one['label'])} {one['probability']:.0%}",
            f"{one_line(one['suggested'])} {one['suggested_probability']:.0%}",
        )
        for one in labels
    ]
    heads = ("  score", "id", "image", "label", "fits better")
    return in_columns([heads, *rows])
