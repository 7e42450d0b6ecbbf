"""The command line. Results go to standard output, words to standard error; 2 is the exit code of a user's mistake."""

from __future__ import annotations

import enum
import json
import os
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .config import Config
    from .console import Console
    from .run import Run

app = typer.Typer(
    name="visterm",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: the same in a terminal, a pipe and the documentation
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 2 a mistake in the call, the configuration or the input; 130 interrupted. "
    "Start with: visterm demo",
)


class Format(enum.StrEnum):
    """How results are printed."""

    table = "table"
    json = "json"
    csv = "csv"


class _Globals:
    """What the options before the command said."""

    debug = False
    quiet = False
    progress: bool | None = None


RunOption = Annotated[
    str | None, typer.Option("--run", envvar="VISTERM_RUN", help="Name of the run, a folder below runs/.")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="Configuration file (YAML).")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="One setting; may be repeated.")
]
LearnerOption = Annotated[str, typer.Option("--learner", help="Which similarity: oasis, or cosine (untrained).")]
ForceOption = Annotated[bool, typer.Option("--force", help="Do it again even if it is fresh.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")]


def _command(function: Callable) -> Callable:
    """Turn what went wrong into one line and an exit code."""

    @wraps(function)
    def wrapped(*args, **kwargs):
        from .config import UserError

        try:
            return function(*args, **kwargs)
        except UserError as error:
            if _Globals.debug:
                raise
            from .console import one_line

            print(f"visterm: {one_line(str(error))}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("visterm: interrupted; the same command goes on from here", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of a pipe has seen enough
            raise typer.Exit(0) from None
        except typer.Exit:
            raise
        except Exception as error:
            if _Globals.debug:
                raise
            text = " ".join(str(error).split())
            print(
                f"visterm: internal error: {type(error).__name__}: {text}; 'visterm --debug ...' shows where",
                file=sys.stderr,
            )
            raise typer.Exit(1) from None

    return wrapped


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"visterm {version('visterm')}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Warnings and errors only.")] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No bars, one line a phase.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Image search that learns what "similar" means from your own images.

    \b
    visterm features photos/     pixels to visterm counts
    visterm train                learn a similarity from the labels
    visterm evaluate             figures, curves and report.html
    visterm search a.jpg         the most similar images
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
    _Globals.debug, _Globals.quiet = debug, quiet
    _Globals.progress = False if no_progress else None


@app.command()
@_command
def features(
    images: Annotated[Path | None, typer.Argument(metavar="IMAGES", help="Directory of images.")] = None,
    run: RunOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn images into visterm counts; only what is new or changed.

    Classes are taken from the folders: IMAGES/<class>/..., or IMAGES/{train,test,validation}/<class>/... .
    Files that cannot be read are listed and passed over. The run is named after the configuration file, or else after
    the directory, unless --run names it.

    \b
    Examples:
      visterm features photos/
      visterm features photos/ --run small --set features.n_visterms=1000
    """
    from .stages import features as stage

    place, configuration = _open(run, config, settings, images)
    console = _console()
    summary = stage(place, configuration, images, console, force=force)
    if as_json:
        print(json.dumps({"run": place.name} | summary))
        return
    from .console import count, duration

    done = f"{count(summary['extracted'], 'image')} extracted" if summary["extracted"] else "nothing to do"
    console.say(
        f"{done} in {duration(summary['seconds'])}; {count(summary['n_images'], 'image')} in {place.collection}. "
        f"Next: visterm train --run {shlex.quote(place.name)}"
    )


@app.command()
@_command
def train(
    run: RunOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    learner: LearnerOption = "oasis",
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn a similarity from labelled images.

    An interrupted training goes on from its last checkpoint.

    \b
    Examples:
      visterm train --run photos
      visterm train --set oasis.n_steps=1000000
    """
    from .stages import train as stage

    place, configuration = _open(run, config, settings)
    console = _console()
    summary = stage(place, configuration, learner, console, force=force)
    if as_json:
        print(json.dumps({"run": place.name} | summary))
        return
    from .console import duration

    if learner == "cosine":
        console.say(
            f"cosine has nothing to learn. Next: visterm evaluate --run {shlex.quote(place.name)} --learner cosine"
        )
    else:
        what = "is fresh" if summary["fresh"] else f"trained in {duration(summary['seconds'])}"
        console.say(
            f"{learner} {what}: {summary['steps']:,} steps on {summary['n_images']:,} images, in "
            f"{place.learner(learner)}. Next: visterm evaluate --run {shlex.quote(place.name)}"
        )


@app.command()
@_command
def evaluate(
    run: RunOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    learner: LearnerOption = "oasis",
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Rank the test images: figures, curves, report.html.

    Prints the path of the report; metrics.json, curves.csv, precision_curve.png and neighbours.csv lie beside it.

    \b
    Examples:
      visterm evaluate --run photos
      visterm evaluate --learner cosine --json
    """
    from .stages import evaluate as stage

    place, configuration = _open(run, config, settings)
    console = _console()
    folder = stage(place, configuration, learner, console, force=force)
    metrics = json.loads((folder / "metrics.json").read_text())
    if as_json:
        print(json.dumps(metrics))
        return
    for name, figures in metrics["systems"].items():
        precision = "  ".join(f"P@{k} {value:.3f}" for k, value in figures["precision_at"].items())
        console.say(f"{name:>8}  mAP {figures['map']:.3f}  {precision}")
    print(folder / "report.html")


@app.command()
@_command
def search(
    queries: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Images, from anywhere.")],
    run: RunOption = None,
    learner: LearnerOption = "oasis",
    k: Annotated[int, typer.Option("-k", min=1, help="Results for each image.")] = 10,
    output: Annotated[Format, typer.Option("--format", help="How to print them.")] = Format.table,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
) -> None:
    """Find the most similar images of a run.

    \b
    Examples:
      visterm search a.jpg
      visterm search a.jpg b.jpg --run photos -k 20 --format csv
    """
    from .stages import search as stage

    place, configuration = _open(run, None, None)
    found = stage(place, configuration, queries, learner, k, _console())
    if as_json or output is Format.json:
        print(json.dumps(found, indent=1))
    elif output is Format.csv:
        import csv

        sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]  # the file names' own bytes
        writer = csv.writer(sys.stdout)
        writer.writerow(["query", "rank", "path", "score", "labels"])
        for answer in found:
            for r in answer["results"]:
                writer.writerow([answer["query"], r["rank"], r["path"], r["score"], ";".join(r["labels"])])
    else:
        from visterm.features import printable

        for answer in found:
            print(printable(answer["query"]))
            print("rank     score  path")
            for r in answer["results"]:
                labels = f"  [{printable(', '.join(r['labels']))}]" if r["labels"] else ""
                print(f"{r['rank']:4}  {r['score']:8.4f}  {printable(r['path'])}{labels}")


@app.command()
@_command
def info(
    run: RunOption = None,
    skipped: Annotated[bool, typer.Option("--skipped", help="List every skipped file with its reason.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a run holds, and what is stale.

    \b
    Examples:
      visterm info
      visterm info --run photos --skipped
    """
    from .stages import describe_run

    place, configuration = _open(run, None, None)
    found = describe_run(place, configuration)
    if not skipped:
        found.pop("skipped_files")
    if as_json:
        print(json.dumps(found, indent=1))
        return
    from visterm.features import printable

    for key, value in found.items():
        if key == "skipped_files":
            for path, reason in value:
                print(f"{printable(path)}: {reason}")
        elif isinstance(value, dict):
            figures = ", ".join(f"{name} {figure}" for name, figure in value.items())
            print(f"{key + ':':12} {figures or 'none'}")
        else:
            print(f"{key + ':':12} {printable(str(value))}")


@app.command()
@_command
def demo(
    run: Annotated[str, typer.Option("--run", help="Name of the run.")] = "demo",
    as_json: JsonOption = False,
) -> None:
    """Run all stages on photos that need no download.

    The images are crops of photos that scikit-image and scikit-learn ship; they are written to runs/<run>/images.
    Prints the path of the report.
    """
    from . import stages
    from .config import load_config
    from .demo import DEMO_SETTINGS, write_demo_images

    place, console = _place(run), _console()
    configuration = load_config(None, DEMO_SETTINGS)
    images = place.folder / "images"
    if not images.exists():
        console.say(f"writing crops of photos to {images}")
        place.folder.mkdir(parents=True, exist_ok=True)
        write_demo_images(images)
    stages.features(place, configuration, images, console)
    stages.train(place, configuration, "oasis", console)
    folder = stages.evaluate(place, configuration, "oasis", console)
    metrics = json.loads((folder / "metrics.json").read_text())
    if as_json:
        print(json.dumps(metrics))
        return
    oasis, cosine = (metrics["systems"][name]["map"] for name in ("oasis", "cosine"))
    console.say(f"mAP {oasis:.3f} with OASIS, {cosine:.3f} with cosine. Open the report in a browser:")
    print(folder / "report.html")


def _console() -> Console:
    from .console import Console

    return Console(quiet=_Globals.quiet, progress=_Globals.progress)


def _place(name: str) -> Run:
    from .config import UserError
    from .run import Run

    if not name or name in (".", "..") or "/" in name or name.startswith("-"):
        raise UserError(f"--run {name!r}: a run is named by one plain word, such as photos")
    return Run(_runs() / name)


def _runs() -> Path:
    return Path(os.environ.get("VISTERM_RUNS", "runs"))


def _open(
    name: str | None, file: Path | None, settings: list[str] | None, images: Path | None = None
) -> tuple[Run, Config]:
    """Find the run: by name, else by the configuration's name, else by the images', else the only one there is."""
    from .config import UserError

    if name is None and file is not None:
        name = file.stem
    if name is None and images is not None:
        name = images.resolve().name or "images"
    if name is None:
        runs = _runs()
        found = sorted(path.parent.name for path in runs.glob("*/config.yaml")) if runs.is_dir() else []
        if len(found) != 1:
            known = (
                f"; there are {', '.join(found)}"
                if found
                else f"; there is none in {runs} yet: visterm features IMAGES"
            )
            raise UserError(f"which run? give --run NAME; {known}")
        name = found[0]
    place = _place(name)
    if images is None and not place.folder.is_dir():
        raise UserError(f"no run {name} in {_runs()}; make it with: visterm features IMAGES --run {name}")
    return place, place.configure(file, settings or [])


def main() -> None:
    """Entry point of the command ``visterm``."""
    app()
