"""Commands for the collection: features, add, remove, compact."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from visterm.pipeline.console import count, duration, one_line
from visterm.pipeline.errors import UserError

from .errors import command
from .options import (
    ConfigOption,
    ForceOption,
    JsonOption,
    RunOption,
    SchedulerOption,
    SetOption,
    make_console,
    open_run,
    with_flags,
    with_scheduler,
)
from .output import say_kept
from .runs import run_of_moved


@command
def features(
    images: Annotated[str | None, typer.Argument(metavar="IMAGES", help="Directory of images.")] = None,
    run: RunOption = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            "--vectors", metavar="FILE", help="Precomputed vectors: a file, a pattern in quotes, or a folder."
        ),
    ] = None,
    ids: Annotated[
        str | None, typer.Option("--ids", metavar="FILE", help="Image ids of the vectors: as --vectors, .txt or .csv.")
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Vectors of a neural network instead of visterms.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Skip rows of tables that make no sense, and count them.")
    ] = False,
    scheduler: SchedulerOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Extract vectors from new and changed images. Or import precomputed vectors.

    Labels come from the folders: IMAGES/<class>/..., or IMAGES/{train,test,validation}/<class>/..., or from tables:
    --set collection.labels=FILE. What is not used of a table is counted. Unreadable files are listed and skipped.
    Without --run, the run is named after the configuration file, or else after the directory.

    \b
    Examples:
      visterm features photos/
      visterm features photos/ --deep
      visterm features photos/ --run small --set features.n_visterms=1000
      visterm features --vectors photos.npy --ids photos.txt
      visterm features --vectors 'img_emb/*.npy' --ids 'metadata/*.parquet'
    """
    from visterm.pipeline.stages.features import features as stage

    if images == "":
        raise UserError("the name of the image directory is empty; give a directory (make: IMAGES=directory)")
    root = None if images is None else Path(images)
    flags = {
        f"--vectors {vectors}": None if vectors is None else f"collection.vectors.file={json.dumps(vectors)}",
        f"--ids {ids}": None if ids is None else f"collection.vectors.ids={json.dumps(ids)}",
        "--deep": "features.kind=deep" if deep else None,
        "--skip-bad-rows": "collection.skip_bad_rows=true" if skip_bad_rows else None,
    }
    settings = with_flags(with_scheduler(settings, scheduler), flags)
    named_after = root
    if vectors and root is None:  # after the file, or the folder of a pattern
        named_after = Path(vectors if Path(vectors).is_dir() else re.sub(r"/?[^/]*[*?[].*|\.\w+$", "", vectors) or ".")
    place, configuration = open_run(run, config, settings, named_after)
    if deep and configuration.collection.vectors.file is not None:
        raise UserError("give --deep or --vectors, not both: precomputed vectors need no network")
    console = make_console()
    if root is not None and run is None and not place.folder.exists() and (moved := run_of_moved(root)) is not None:
        console.say(
            f"the images of run {moved.name} lie in {one_line(str(root))} now; to use that run, with its labels and "
            f"learners: visterm features {shlex.quote(str(root))} {moved.option}"
        )
    summary = stage(place, configuration, root, console, force=force)
    place.make_current()
    say_kept(place, configuration, settings, console)
    if as_json:
        print(json.dumps({"run": place.name} | summary))
        return

    steps = [
        f"{count(summary[step], 'image')} {step}" for step in ("extracted", "removed", "relabelled") if summary[step]
    ]
    done = ", ".join(steps) or "nothing to do"
    following = "train" if summary["labelled"] else "search IMAGE"
    console.say(
        f"{done} in {duration(summary['seconds'])}; {count(summary['n_images'], 'image')} in {place.collection}. "
        f"Next: visterm {following} {place.option}"
    )


@command
def add(
    images: Annotated[list[str], typer.Argument(metavar="PATH", help="Images, or folders of images.")],
    run: RunOption = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME", help="Label of all added images; may be repeated.")
    ] = None,
    scheduler: SchedulerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add images to a run; they are searchable at once.

    Visterms, idf and learners do not change. Images inside the run's directory get their labels from the folders or
    the table of labels, other images from --label. Unreadable images are reported and skipped; the exit code is then
    1, or 2 if none could be read.

    \b
    Examples:
      visterm add new.jpg --run photos
      visterm add ~/holiday another.png --label sunset
    """
    from visterm.pipeline.stages.edit import add as stage

    place, configuration = open_run(run, None, with_scheduler(None, scheduler))
    console = make_console()
    done = stage(place, configuration, images, console, labels=label or [])
    if as_json:
        print(json.dumps({"run": place.name} | done))
    else:
        n_new = done["added"] + done["changed"] - done["skipped"]
        there = f", {done['present']:,} already there" if done["present"] else ""
        console.say(
            f"{count(max(n_new, 0), 'image')} added{there}; {done['n_images']:,} in run {place.name} "
            f"({duration(done['seconds'])})"
        )
    if done["skipped"]:
        raise typer.Exit(1 if done["added"] + done["changed"] + done["present"] > done["skipped"] else 2)


@command
def remove(
    images: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="Images, folders, or ids as id:12.")
    ] = None,
    run: RunOption = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="Remove all images with this label; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove images from a run; the files stay on disk.

    Prints the removed images. `features` will not re-add them; `add` will.

    \b
    Examples:
      visterm remove cats/17.jpg id:12 --run photos
      visterm remove --label blurred --dry-run
    """
    from visterm.pipeline.stages.edit import remove as stage

    place, _ = open_run(run, None, None)
    console = make_console()
    done = stage(place, images or [], console, labels=label or [], dry_run=dry_run)
    if as_json:
        print(json.dumps({"run": place.name} | done))
        return
    for image in done["images"]:
        print(f"id:{image['id']}  {one_line(image['path'])}")
    before = f", {done['already']:,} already removed" if done["already"] else ""
    console.say(
        f"{count(done['removed'], 'image')} {'would be removed' if dry_run else 'removed'}{before}; "
        f"{done['n_images']:,} {'would be ' if dry_run else ''}left in run {place.name}"
    )
    if done["removed"] and not dry_run and "oasis" in place.learners():
        console.say(f"what they taught oasis stays; 'visterm forget ID... {place.option}' takes it out")


@command
def compact(run: RunOption = None, as_json: JsonOption = False) -> None:
    """Merge small segments and drop dead rows.

    Dead rows are those of changed and removed images. Search results do not change. Useful when info reports many
    segments or dead rows.

    \b
    Example:
      visterm compact --run photos
    """
    from visterm.pipeline.stages.edit import compact as stage

    place, _ = open_run(run, None, None)
    console = make_console()
    done = stage(place, console)
    if as_json:
        print(json.dumps({"run": place.name} | done))
        return
    console.say(
        f"{count(done['segments_before'], 'segment')} before, {done['segments']:,} now; "
        f"dropped {count(done['dropped_rows'], 'dead row')} and {count(done['tombstones'], 'entry')} of the catalogue"
    )
