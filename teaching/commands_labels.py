"""Commands below ``visterm label``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import JsonOption, RunOption, check_file, make_console, open_run, open_searcher
from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError, system_errors_explained

from .label_counts import list_counts

if TYPE_CHECKING:
    from .labels import LabelEditCounts, LabelEditor

LabelArgument = Annotated[str, typer.Argument(metavar="LABEL", help="The label.")]
ImagesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH", help="Images, folders, or ids as id:12; none: read from standard input."),
]


def _editor(run: str | None) -> LabelEditor:
    from .labels import LabelEditor

    return LabelEditor(open_run(run, None, None)[0])


def _images(given: list[str] | None) -> list[str]:
    """The images given, or those on standard input: a line each, or what `search` prints as JSON or CSV."""
    if given:
        return given
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError("no images given; give files, folders, id:N, or the results of a search on standard input")
    with system_errors_explained("standard input", "cannot be read", ""):
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    if text.lstrip().startswith(("[", "{")):
        try:
            try:
                return list(_in_json(json.loads(text)))
            except ValueError:  # a line for each query, of `search -`
                return list(_in_json([json.loads(line) for line in text.splitlines() if line.strip()]))
        except ValueError as error:
            raise UserError(f"standard input: not JSON ({error}); give what 'visterm search --json' prints") from None
    lines = [line for line in text.splitlines() if line]
    if lines and "path" in lines[0].split(","):
        import csv
        import io

        from visterm.pipeline.store.label_edits import unquoted

        return [unquoted(row["path"]) for row in csv.DictReader(io.StringIO(text)) if row["path"]]
    return lines


def _in_json(value: Any) -> Iterator[str]:
    """Images in what commands print: ids, or else paths."""
    if isinstance(value, list):
        for item in value:
            yield from [item] if isinstance(item, str) else [f"id:{item}"] if isinstance(item, int) else _in_json(item)
    elif isinstance(value, dict):
        if isinstance(value.get("id"), int):
            yield f"id:{value['id']}"
        elif isinstance(value.get("path"), str):
            yield value["path"]
        else:
            for key in ("results", "images"):
                yield from _in_json(value.get(key))


def _say(done: LabelEditCounts, what: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(done))
        return
    rest = f"; {done['unchanged']:,} unchanged" if done["unchanged"] else ""
    undo = "; 'visterm label undo' takes it back" if done["changed"] else ""
    make_console().say(f"{what} {count(done['changed'], 'image')}{rest}{undo}")


@command
def add(
    label: LabelArgument, images: ImagesArgument = None, run: RunOption = None, as_json: JsonOption = False
) -> None:
    """Add a label to images, over what folders and tables say.

    \b
    Examples:
      visterm label add sunset sea/17.jpg id:12 --run photos
      visterm search a.jpg -k 50 --json | visterm label add sunset
    """
    done = _editor(run).add(label, _images(images), source="command")
    _say(done, f"label {one_line(label)} added to", as_json)


@command
def remove(
    label: LabelArgument, images: ImagesArgument = None, run: RunOption = None, as_json: JsonOption = False
) -> None:
    """Remove a label from images, also one that comes from their folder or a table.

    \b
    Example:
      visterm label remove dog id:12 --run photos
    """
    done = _editor(run).remove(label, _images(images), source="command")
    _say(done, f"label {one_line(label)} removed from", as_json)


@command
def rename(
    label: LabelArgument,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name; a label that exists takes its images in.")],
    run: RunOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rename a label, as one step.

    \b
    Example:
      visterm label rename dgo dog --run photos
    """
    _renamed([label], new, run, as_json)


@command
def merge(
    labels: Annotated[list[str], typer.Argument(metavar="LABEL", help="Labels that become one.")],
    into: Annotated[str, typer.Option("--into", metavar="LABEL", help="The label that their images get.")],
    run: RunOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge labels into one, as one step.

    \b
    Example:
      visterm label merge cat cats kitten --into cat --run photos
    """
    _renamed(labels, into, run, as_json)


def _renamed(labels: list[str], into: str, run: str | None, as_json: bool) -> None:
    rows = _editor(run).rename(labels, into, source="command")
    n_changed = len({row.image for row in rows if row.weight is not None or row.change == 1})
    done: LabelEditCounts = {"step": rows[0].step if rows else None, "changed": n_changed, "unchanged": 0}
    _say(
        done,
        f"{' and '.join(map(one_line, labels))} {'is' if len(labels) == 1 else 'are'} now {one_line(into)} on",
        as_json,
    )


@command
def undo(run: RunOption = None, as_json: JsonOption = False) -> None:
    """Undo the last step of edits; again: the one before."""
    rows = _editor(run).undo(source="command")
    if as_json:
        print(json.dumps({"undone": len(rows), "step": rows[0].step if rows else None}))
        return
    if not rows:
        make_console().say("no edit of labels to undo")
        return
    names = ", ".join(sorted({one_line(row.label) for row in rows}))
    make_console().say(f"undone: {count(len(rows), 'edit')} of label {names[:200]}")


@command
def suggest(
    label: LabelArgument,
    run: RunOption = None,
    k: Annotated[int, typer.Option("-k", min=1, help="List so many images at most.")] = 100,
    min_certainty: Annotated[
        float, typer.Option(min=0, max=1, help="Only images that are at least so certain, as answers say.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """List images without a label that surely have it, the surest first.

    Learned from the images with the label, and from those that people said do not have it.

    \b
    Examples:
      visterm label suggest sunset --run photos
      visterm label suggest sunset --min-certainty 0.95 --json | visterm label add sunset
    """
    from visterm.pipeline.store.label_edits import LabelEdits

    from .concepts import learn_concept

    searcher, console = open_searcher(run)
    known = learn_concept(searcher, label, LabelEdits(searcher.run.label_edits).decided().refused)
    certainty = known.certainty(searcher)
    if certainty is None and min_certainty:
        raise UserError(
            f"label {one_line(label)}: certainty is measured with ten answers, three of yes and no each; so far "
            f"{len(known.yes):,} and {len(known.no):,}: answer on the page, or 'visterm label remove' what is not one"
        )
    values: list[float | None] = [None] * len(known.sure) if certainty is None else certainty.round(3).tolist()
    listed = [(searcher.images[row], value) for row, value in zip(known.sure.tolist(), values, strict=True)]
    listed = [(image, value) for image, value in listed if value is None or value >= min_certainty][:k]
    if as_json:
        print(json.dumps([{"id": image.id, "path": image.path, "certainty": value} for image, value in listed]))
        return
    for image, value in listed:
        print(f"id:{image.id}  {'' if value is None else f'{100 * value:.0f} %  '}{one_line(image.path)}")
    console.say(
        f"{count(len(listed), 'image')}, from {len(known.yes):,} with the label and {len(known.no):,} that people "
        "said do not have it"
    )


@command
def list_labels(
    images: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="Images, folders, or ids as id:12.")
    ] = None,
    run: RunOption = None,
    edits: Annotated[bool, typer.Option("--edits", help="Every edit and undo, in order.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the labels of images, or all labels with their numbers of images."""
    if edits:
        if images:
            raise UserError("give images or --edits, not both")
        rows = _editor(run).history()
        if as_json:
            print(json.dumps(rows))
            return
        signs = {1: "added", -1: "removed", 0: "as before"}
        for row in rows:
            undone = " (undo)" if row["undoes"] else ""
            print(f"{row['time']}  {signs[row['change']]} {one_line(row['label'])}: {one_line(row['path'])}{undone}")
    elif images:
        labels = _editor(run).of(images)
        if as_json:
            print(json.dumps([{"path": path, "labels": list(own)} for path, own in labels.items()]))
            return
        for path, own in labels.items():
            print(f"{one_line(path)}: {', '.join(map(one_line, own)) or 'no label'}")
    else:
        list_counts(run, as_json)


@command
def export(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="CSV file (default: standard output).")] = None,
    run: RunOption = None,
    xmp: Annotated[
        bool, typer.Option("--xmp", help="Into sidecars beside the images, such as a.jpg.xmp, for photo programs.")
    ] = False,
) -> None:
    """Write all labels, as edited, as a CSV table that --set collection.labels=FILE reads, or into XMP sidecars.

    Sidecars of other programs keep all that these wrote; images are never changed.

    \b
    Examples:
      visterm label export labels.csv --run photos
      visterm label export --xmp
    """
    editor = _editor(run)
    if xmp:
        if file is not None:
            raise UserError(f"--xmp writes a sidecar beside each image, and no {file}; leave one of the two out")
        done, console = editor.export_sidecars(), make_console()
        for warning in done.warnings:
            console.warn(warning)
        console.say(f"{count(done.written, 'sidecar')} written; {count(done.unchanged, 'image')} had these labels")
        return
    if file is None or str(file) == "-":
        # Paths keep bytes that are no UTF-8, as in a file. For mypy stdout is any TextIO, which cannot do this.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        editor.export(sys.stdout)
        return
    import io

    from visterm.pipeline.store.files import write_text

    check_file("label export", file, "table")
    text = io.StringIO()
    n_rows = editor.export(text)
    with system_errors_explained(file, "cannot be written", ""):
        write_text(file, text.getvalue())
    make_console().say(f"{count(n_rows, 'row')} in {file}")
    if joined := [label for label in editor.counts() if re.search("[|;]", label)]:
        make_console().warn(
            f"{count(len(joined), 'label')} with | or ;, such as {one_line(joined[0])}: read the table with --set "
            "collection.label_separator=none"
        )


commands = typer.Typer(name="label", help="Labels that you add and remove.", no_args_is_help=True)
for _function in (add, remove, rename, merge, undo, suggest, export):
    commands.command()(_function)
commands.command("list")(list_labels)
