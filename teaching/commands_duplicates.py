"""The command duplicates."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Any

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import JsonOption, RunOption, make_console, open_run, open_searcher
from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError


@command
def duplicates(
    images: Annotated[
        list[str] | None, typer.Argument(metavar="IMAGE", help="With --not-same: images, or ids as id:12.")
    ] = None,
    run: RunOption = None,
    not_same: Annotated[
        bool, typer.Option("--not-same", help="Say that IMAGE... show different pictures, however alike they are.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last --not-same; again: the one before.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List images that show the same picture, pictures of the same scene, and pictures that look alike.

    Pictures are the same in spite of another size, JPEG quality or brightness, and if one is mirrored, or lacks a
    margin of up to a tenth of each side. Others look alike if their vectors are nearly equal; of these, pictures show
    the same scene if many details of one lie in the other as a shift, turn and zoom would put them. One image then
    stands for all of its picture, or scene. The groups are those of the page, each with the smallest similarity that
    put it together, a correlation of pixels for pictures, else a cosine of vectors. Deleted photos are not listed, and
    no two images in one group that --not-same, or somebody on the page, said are different.

    \b
    Examples:
      visterm duplicates --run photos
      visterm duplicates id:12 id:40 --not-same
      visterm remove id:12 --run photos
    """
    if not_same or undo:
        from .not_same import say_different, undo_different

        if (not_same and undo) or (undo and images):
            raise UserError("--undo takes back the last --not-same; give it alone")
        place, console = open_run(run, None, None)[0], make_console()
        done = undo_different(place) if undo else say_different(place, [[image] for image in images or ()])
        if as_json:
            print(json.dumps(done))
        elif undo:
            console.say(f"undone: of {count(done['images'], 'image')}" if done["step"] else "nothing to undo")
        else:
            again = "'visterm duplicates --undo' takes it back"
            console.say(f"{count(done['images'], 'image')} will not be listed as duplicates of each other; {again}")
        return
    if images:
        raise UserError("images are for --not-same; without it, all duplicates of the run are listed")
    from .overview import compared_pairs, groups_of

    searcher, console = open_searcher(run)
    with console.phase(f"comparing {count(len(searcher.images), 'image')}"):
        pairs = compared_pairs(searcher)

    def described(ids: list[int]) -> list[dict[str, Any]]:
        images = [searcher.images[searcher.place[id_]] for id_ in ids]
        return [{"id": image.id, "path": image.path, "split": image.split} for image in images]

    keys = ("degree", "same", "similarity")
    groups = [
        {key: group[key] for key in keys} | {"images": described(group["ids"])} for group in groups_of(searcher, pairs)
    ]
    blank = described(pairs["blank"])
    if as_json:
        print(json.dumps({"run": searcher.run.name, "groups": groups, "blank": blank}))
        return
    words = {
        "picture": ("image", "of the same picture"),
        "scene": ("picture", "of the same scene"),
        "alike": ("picture", "that look alike"),
    }
    for group in groups:
        noun, what = words[group["degree"]]
        splits = sorted({image["split"] or "no split" for image in group["images"]})
        across = f", in {' and '.join(splits)}" if group["same"] and len(splits) > 1 else ""
        print(f"{count(len(group['images']), noun)} {what}, {group['similarity']:.4f}{across}")
        for image in group["images"]:
            print(f"  id:{image['id']}  {one_line(image['path'])}")
    if blank:
        print(f"{count(len(blank), 'image')} of one colour")
        for image in blank:
            print(f"  id:{image['id']}  {one_line(image['path'])}")
    of_degree = Counter(group["degree"] for group in groups)
    pictures, scenes = count(of_degree["picture"], "picture"), count(of_degree["scene"], "scene")
    console.say(f"{pictures} and {scenes} more than once, {count(of_degree['alike'], 'group')} that look alike")
    if blank:
        console.say(f"{count(len(blank), 'photo')} {'is' if len(blank) == 1 else 'are'} blank, and in no group")
