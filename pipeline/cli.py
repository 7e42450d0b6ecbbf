"""The command line. Results go to standard output, words to standard error; 2 is the exit code of a user's mistake."""

from __future__ import annotations

import enum
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from .config.models import Config
    from .console import Console
    from .store.run import Run

app = typer.Typer(
    name="visterm",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: the same in a terminal, a pipe and the documentation
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 2 a mistake in the call, the configuration or the input; 130 interrupted; 143 ended. "
    "Start with: visterm demo",
)


USAGE_ERROR: Any = typer.BadParameter.__base__  # of click, which some versions of typer bring with them


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
SchedulerOption = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Dask cluster that does the work: tcp://host:8786; or none."),
]
_LEARNERS = "oasis, aroma, wsabie, musl, lego, mcml, pamir, ovr, knn"
LearnerOption = Annotated[
    str | None, typer.Option("--learner", metavar="NAME", help=f"{_LEARNERS}, or cosine (untrained).")
]
LearnersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--learner", metavar="NAME", help=f"{_LEARNERS}, or cosine (untrained); several: a,b; all: all of the run."
    ),
]
QueriesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="IMAGE...", help="Images, from anywhere; folders; id:12.")
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME", help="In place of an image; may be repeated.")
]
FormatOption = Annotated[Format | None, typer.Option("--format", help="How to print them: table, unless given.")]
JsonFormatOption = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Do it again even if it is fresh.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")]
HostOption = Annotated[str, typer.Option("--host", help="Address to listen on; any but this machine's needs --token.")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")]
TokenOption = Annotated[
    str | None, typer.Option("--token", envvar="VISTERM_TOKEN", help="What every request must show.")
]


def _command(function: Callable) -> Callable:
    """Turn what went wrong into one line and an exit code."""

    @wraps(function)
    def wrapped(*args, **kwargs):
        from .errors import UserError

        again = "the same command"
        if kwargs.get("force") and function.__name__ == "train":  # a checkpoint is not gone on from by force
            again += " without --force"
        try:
            return function(*args, **kwargs)
        except UserError as error:
            if _Globals.debug:
                raise
            from .console import one_line

            print(f"visterm: {one_line(str(error))}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt as interrupt:
            print(f"visterm: interrupted; {again} goes on from here", file=sys.stderr)
            raise typer.Exit(143 if isinstance(interrupt, _Terminated) else 130) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of a pipe has seen enough
            raise typer.Exit(0) from None
        except typer.Exit:
            raise
        except Exception as error:
            if _Globals.debug:
                raise
            if (line := _of_the_system(error)) is not None:
                print(f"visterm: {line}", file=sys.stderr)
                raise typer.Exit(2) from None
            text = " ".join(str(error).split())
            print(
                f"visterm: internal error: {type(error).__name__}: {text}; 'visterm --debug ...' shows where",
                file=sys.stderr,
            )
            raise typer.Exit(1) from None

    return wrapped


def _of_the_system(error: Exception) -> str | None:
    """One line about a disk that is full, a file that may not be read, and the like; None if it is something else."""
    import sqlite3

    from .console import one_line

    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    elif isinstance(error, sqlite3.OperationalError):
        reason, where = str(error), "catalogue.sqlite: "
    else:
        return None
    return one_line(f"{where}{reason}; mend this, then the same command goes on from here")


class _Terminated(KeyboardInterrupt):
    """SIGTERM, to be handled as Ctrl-C is."""


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
    images: Annotated[str | None, typer.Argument(metavar="IMAGES", help="Directory of images.")] = None,
    run: RunOption = None,
    vectors: Annotated[
        str | None, typer.Option("--vectors", metavar="FILE", help="Vectors made elsewhere: .npy, .npz, .parquet.")
    ] = None,
    ids: Annotated[
        str | None, typer.Option("--ids", metavar="FILE", help="Whose vectors they are: .txt, .csv, .npy, .parquet.")
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    scheduler: SchedulerOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn images into visterm counts; only what is new or changed. Or take vectors over that were made elsewhere.

    Classes are taken from the folders: IMAGES/<class>/..., or IMAGES/{train,test,validation}/<class>/... .
    Files that cannot be read are listed and passed over. The run is named after the configuration file, or else after
    the directory, unless --run names it.

    \b
    Examples:
      visterm features photos/
      visterm features photos/ --run small --set features.n_visterms=1000
      visterm features --vectors photos.npy --ids photos.txt
    """
    from .errors import UserError
    from .stages.features import features as stage

    if images == "":
        raise UserError("which images? the name of their directory is empty (make: IMAGES=directory)")
    root = None if images is None else Path(images)
    given = {"file": vectors, "ids": ids}
    of_vectors = [f"collection.vectors.{key}={json.dumps(file)}" for key, file in given.items() if file is not None]
    settings = [*_with_scheduler(settings, scheduler), *of_vectors]
    named_after = root or (Path(vectors).with_suffix("") if vectors else None)
    place, configuration = _open(run, config, settings, named_after)
    console = _console()
    summary = stage(place, configuration, root, console, force=force)
    _say_kept(place, configuration, settings, console)
    if as_json:
        print(json.dumps({"run": place.name} | summary))
        return
    from .console import count, duration

    relabelled = f"{count(summary['relabelled'], 'image')} labelled anew" if summary["relabelled"] else "nothing to do"
    done = f"{count(summary['extracted'], 'image')} extracted" if summary["extracted"] else relabelled
    following = "train" if summary["labelled"] else "search IMAGE --learner cosine"
    console.say(
        f"{done} in {duration(summary['seconds'])}; {count(summary['n_images'], 'image')} in {place.collection}. "
        f"Next: visterm {following} --run {shlex.quote(place.name)}"
    )


@app.command()
@_command
def add(
    images: Annotated[list[str], typer.Argument(metavar="PATH...", help="Images, or folders of images.")],
    run: RunOption = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME", help="Of all of them; may be repeated.")
    ] = None,
    scheduler: SchedulerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add images to a run, from anywhere; they can be found at once.

    Visterms, idf and learners stay as they are. Images below the run's directory get the labels that their folders or
    the table of labels say, others have those of --label, and stay until their files are gone. An image that cannot be
    read is reported, the others are added, and the exit code is 2.

    \b
    Examples:
      visterm add new.jpg --run photos
      visterm add ~/holiday another.png --label sunset
    """
    from .console import count, duration
    from .stages.edit import add as stage

    place, configuration = _open(run, None, _with_scheduler(None, scheduler))
    console = _console()
    done = stage(place, configuration, images, console, labels=label or [])
    if as_json:
        print(json.dumps({"run": place.name} | done))
    else:
        n_new = done["added"] + done["changed"] - done["skipped"]
        there = f", {done['present']:,} there already" if done["present"] else ""
        console.say(
            f"{count(max(n_new, 0), 'image')} added{there}; {done['n_images']:,} in run {place.name} "
            f"({duration(done['seconds'])})"
        )
    if done["skipped"]:
        raise typer.Exit(2)


@app.command()
@_command
def remove(
    images: Annotated[
        list[str] | None, typer.Argument(metavar="PATH...", help="Images, folders, or ids as id:12.")
    ] = None,
    run: RunOption = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME", help="All images with it; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove images from a run; the files themselves stay.

    Prints them. They do not come back when features is run again, but when they are added again.

    \b
    Examples:
      visterm remove cats/17.jpg id:12 --run photos
      visterm remove --label blurred --dry-run
    """
    from visterm.features import printable

    from .console import count
    from .stages.edit import remove as stage

    place, _ = _open(run, None, None)
    console = _console()
    done = stage(place, images or [], console, labels=label or [], dry_run=dry_run)
    if as_json:
        print(json.dumps({"run": place.name} | done))
        return
    for image in done["images"]:
        print(f"id:{image['id']}  {printable(image['path'])}")
    before = f", {done['already']:,} were removed before" if done["already"] else ""
    console.say(
        f"{count(done['removed'], 'image')} {'would be removed' if dry_run else 'removed'}{before}; "
        f"{done['n_images']:,} {'would be ' if dry_run else ''}left in run {place.name}"
    )


@app.command()
@_command
def compact(run: RunOption = None, as_json: JsonOption = False) -> None:
    """Tidy the counts of a run: merge small segments, drop rows of images that changed or went.

    Changes nothing that can be found. Worth while when info tells of many segments or dead rows.

    \b
    Example:
      visterm compact --run photos
    """
    from .console import count
    from .stages.edit import compact as stage

    place, _ = _open(run, None, None)
    console = _console()
    done = stage(place, console)
    if as_json:
        print(json.dumps({"run": place.name} | done))
        return
    console.say(
        f"{count(done['segments_before'], 'segment')} before, {done['segments']:,} now; of images changed or gone, "
        f"{done['dropped_rows']:,} rows of counts and {done['tombstones']:,} entries dropped"
    )


@app.command()
@_command
def train(
    run: RunOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    learner: LearnersOption = None,
    scheduler: SchedulerOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn a similarity, or to rank labels, from labelled images.

    An interrupted training goes on from its last checkpoint, if the learner has any. Several learners are trained one
    after the other; --learner all renews those that the run has.

    \b
    Examples:
      visterm train --run photos
      visterm train --learner aroma,wsabie
      visterm train --set oasis.n_steps=1000000
    """
    from .console import one_line
    from .errors import UserError
    from .stages.train import LearnerRefused
    from .stages.train import train as stage
    from .store.models import TRAINED, check_learners

    names = _several(learner) or ["oasis"]
    check_learners([name for name in names if name != "all"])
    settings = _with_scheduler(settings, scheduler)
    place, configuration = _open(run, config, settings)
    console = _console()
    if "all" in names:
        names = [name for name in TRAINED if name in place.learners()]
        if not names:
            raise UserError(
                f"run {place.name} has no trained learners that could be renewed; name one: --learner oasis"
            )
    summaries = []
    for name in names:
        try:
            summary = stage(place, configuration, name, console, force=force)
        except LearnerRefused as error:
            if len(names) == 1:
                raise
            summary = {"learner": name, "error": str(error)}
            print(f"visterm: {one_line(str(error))}", file=sys.stderr)
        summaries.append({"run": place.name} | summary)
        if not as_json and "error" not in summary:
            _say_trained(summary, place, console)
    trained = [summary["learner"] for summary in summaries if "error" not in summary]
    if trained and not as_json:
        following = f"visterm evaluate --run {shlex.quote(place.name)}"
        if len(names) > 1:
            following += " --learner all"
        elif names != ["oasis"]:
            following += f" --learner {names[0]}"
        console.say(f"Next: {following}")
    _say_kept(place, configuration, settings, console)
    if as_json:
        print(json.dumps(summaries[0] if len(names) == 1 else summaries))
    if len(trained) < len(names):
        raise typer.Exit(2)


def _with_scheduler(settings: list[str] | None, scheduler: str | None) -> list[str]:
    """The settings, and the one that --scheduler stands for."""
    if scheduler is None:
        return settings or []
    return [*(settings or []), f"cluster.scheduler={'null' if scheduler == 'none' else scheduler}"]


def _several(given: list[str] | None) -> list[str]:
    """Learners that were named: each by its own option, or some with commas or blanks between them."""
    from .errors import UserError

    names = [name for text in given or [] for name in text.replace(",", " ").split()]
    if given and not names:
        raise UserError("--learner: the name of a learner is missing")
    return list(dict.fromkeys(names))


def _one(given: str | None) -> str | None:
    """The learner that was named, where there can be just one."""
    from .errors import UserError

    names = _several(None if given is None else [given])
    if len(names) > 1:
        raise UserError(f"--learner {given!r}: only one learner can answer, such as --learner {names[0]}")
    return names[0] if names else None


def _say_trained(summary: dict, place: Run, console: Console) -> None:
    from .console import duration

    name = summary["learner"]
    if name == "cosine":
        console.say("cosine has nothing to learn")
        return
    what = "is fresh" if summary["fresh"] else f"trained in {duration(summary['seconds'])}"
    steps = f"{summary['steps']:,} steps on " if summary["steps"] else ""
    console.say(f"{name} {what}: {steps}{summary['n_images']:,} images, in {place.learner(name)}")


def _say_kept(place: Run, configuration: Config, settings: list[str] | None, console: Console) -> None:
    """Say which single settings the run keeps for later commands."""
    from .config.models import without_password

    if settings and place.configure(None, []) == configuration:
        last = {setting.partition("=")[0]: without_password(setting) for setting in settings}
        console.say(f"kept for later commands in {place.folder / 'config.yaml'}: {', '.join(last.values())}")


@app.command()
@_command
def evaluate(
    run: RunOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    learner: LearnersOption = None,
    scheduler: SchedulerOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Rank the test images: figures, curves, report.html.

    Prints the path of the report; metrics.json, curves.csv, precision_curve.png and neighbours.csv lie beside it.
    Several learners come into one report, all against cosine and chance; --learner all takes those that are trained
    and fresh.

    \b
    Examples:
      visterm evaluate --run photos
      visterm evaluate --learner oasis,aroma
      visterm evaluate --learner cosine --json
    """
    from .config.models import without_password
    from .stages.evaluate import evaluate as stage
    from .store.models import default_learner
    from .store.records import read_metrics

    names = _several(learner)
    settings = _with_scheduler(settings, scheduler)
    place, configuration = _open(run, config, settings)
    console = _console()
    names = names or [default_learner(place, "oasis", console)]
    command = ["visterm", "evaluate", "--run", place.name]
    command += [f"--config={config}"] if config else []
    command += [part for name in names for part in ("--learner", name)]
    command += [part for setting in settings or [] for part in ("--set", without_password(setting))]
    folder = stage(place, configuration, names, console, force=force, command=shlex.join(command))
    metrics = read_metrics(folder)
    if as_json:
        print(json.dumps(metrics))
        return
    for line in _figures(metrics):
        console.say(line)
    _say_kept(place, configuration, settings, console)
    print(folder / "report.html")


def _figures(metrics: dict) -> list[str]:
    """One line a system."""
    width = max(8, *map(len, metrics["systems"]))
    lines = []
    for name, figures in metrics["systems"].items():
        line = f"{name:>{width}}  mAP {figures['map']:.3f}"
        line += "".join(f"  P@{k} {value:.3f}" for k, value in figures["precision_at"].items())
        if "knn_accuracy" in figures:
            line += f"  k-NN accuracy {figures['knn_accuracy']:.3f}"
        for key, title in (("precision_at", "labels"), ("sibling_precision_at", "siblings")):
            found = figures.get("annotation", {}).get(key, {})
            line += "".join(f"  {title} P@{k} {value:.3f}" for k, value in found.items())
        lines.append(line)
    return lines


@app.command()
@_command
def search(
    queries: QueriesArgument = None,
    run: RunOption = None,
    learner: LearnerOption = None,
    label: LabelOption = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Results for each query: 10, unless given.")] = None,
    output: FormatOption = None,
    as_json: JsonFormatOption = False,
    page: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page with the pictures, in place of the table."),
    ] = None,
) -> None:
    """Find the most similar images of a run, or the images that a label fits best.

    IMAGE is a file from anywhere, a folder (all images below it), id:12 (an image of the run by its id), or a path as
    search prints it. The learner is oasis unless named, or else the first that is trained; for --label wsabie, or else
    the first that is trained of pamir, ovr, knn. An image that cannot be read is reported, the others are answered, and
    the exit code is 2.

    \b
    Examples:
      visterm search a.jpg
      visterm search a.jpg holiday/ id:12 --run photos -k 20 --format csv
      visterm search holiday/ --html found.html
      visterm search --label sunset
    """
    from .search.results_page import write_results_page
    from .search.searcher import RESULTS, Searcher

    wanted, chosen = _format(output, as_json), _one(learner)
    if page is not None:
        _check_file("--html", page, "page", ".html", ".htm")
    if label:
        _one_kind(queries, label)
    asked = label or _queries(queries, label)
    place, _ = _open(run, None, None)
    console = _console()
    _silence_decoders()
    searcher = Searcher(place, console=console)
    answer_to = searcher.search_label if label else searcher.search
    chosen = chosen or searcher.default_learner(of_labels=bool(label))
    found = answer_to(asked, k or RESULTS, chosen)
    if k is not None and k > len(searcher.images):
        _say_all(k, "the collection holds", len(searcher.images), "image", console)
    if page is not None:
        write_results_page(page, searcher, found, learner=chosen, of_labels=bool(label))
        if output is None and not as_json:
            print(page)
            _report_errors(found)
            return
        console.say(f"pictures in {page}")
    columns = ["query", "rank", "id", "path", "score", "labels"]
    rows = [
        [answer["query"], r["rank"], r["id"], r["path"], r["score"], ";".join(r["labels"])]
        for answer in found
        for r in answer["results"]
    ]
    if not _print_rows(found, columns, rows, wanted):
        from visterm.features import printable

        for answer in found:
            if "error" not in answer:
                print(printable(answer["query"]))
                print("rank     score  path")
                for r in answer["results"]:
                    labels = f"  [{printable(', '.join(r['labels']))}]" if r["labels"] else ""
                    print(f"{r['rank']:4}  {r['score']:8.4f}  {printable(r['path'])}{labels}")
    _report_errors(found)


@app.command()
@_command
def annotate(
    queries: QueriesArgument = None,
    run: RunOption = None,
    learner: Annotated[
        str | None, typer.Option("--learner", metavar="NAME", help="wsabie, unless named; or pamir, ovr, knn.")
    ] = None,
    label: LabelOption = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Labels for each query: 5, unless given.")] = None,
    output: FormatOption = None,
    as_json: JsonFormatOption = False,
) -> None:
    """Rank labels for images, or the labels near a label.

    IMAGE is a file, a folder, id:12 or a path of the run, as of search. An image that cannot be read is reported, the
    others are answered, and the exit code is 2.

    \b
    Examples:
      visterm annotate a.jpg
      visterm annotate a.jpg b.jpg --learner knn -k 3 --format json
      visterm annotate --label sunset
    """
    from .search.searcher import LABELS, Searcher

    output, chosen = _format(output, as_json), _one(learner)
    if label:
        _one_kind(queries, label)
    asked = label or _queries(queries, label)
    place, _ = _open(run, None, None)
    console = _console()
    _silence_decoders()
    searcher = Searcher(place, console=console)
    answer_to = searcher.similar_labels if label else searcher.annotate
    found = answer_to(asked, k or LABELS, chosen)
    most = max(len(answer["labels"]) for answer in found)
    if k is not None and 0 < most < k:
        _say_all(k, "the learner knows", most, "other label" if label else "label", console)
    rows = [[answer["query"], r["rank"], r["label"], r["score"]] for answer in found for r in answer["labels"]]
    if not _print_rows(found, ["query", "rank", "label", "score"], rows, output):
        from visterm.features import printable

        for answer in found:
            if "error" not in answer:
                print(printable(answer["query"]))
                print("rank     score  label")
                for r in answer["labels"]:
                    print(f"{r['rank']:4}  {r['score']:8.4f}  {printable(r['label'])}")
    _report_errors(found)


@app.command()
@_command
def explain(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="An image: a file, id:12, or a path of the run.")],
    result: Annotated[str, typer.Argument(metavar="RESULT", help="Another one, such as a path that search prints.")],
    run: RunOption = None,
    learner: LearnerOption = None,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Draw it into this file, a PNG.")
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", min=1, max=100, help="Pairs of blocks listed and drawn.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Show why two images match: what each pair of blocks adds to their score.

    All pairs sum to the score that search shows. The picture has the strongest pairs in both images, and heat maps of
    where the score comes from. The learner is oasis unless named, or else the first that is trained.

    \b
    Examples:
      visterm explain a.jpg pear/7.jpg --output why.png
      visterm explain id:12 id:40 --learner cosine --json
    """
    from .search.explanation import explained
    from .search.explanation_picture import draw
    from .search.searcher import Searcher

    chosen = _one(learner)
    if file is not None:
        _check_file("--output", file, "picture", ".png")
    place, _ = _open(run, None, None)
    _silence_decoders()
    searcher = Searcher(place, console=_console())
    made = explained(searcher, query, result, chosen, n_pairs=pairs)
    found = made.data
    if file is not None:
        draw(found, made.query_pixels, made.result_pixels, file, n_pairs=pairs)
    if as_json:
        print(json.dumps(found))
    elif file is not None:
        print(file)
    else:
        for line in _explanation_in_words(found):
            print(line)


def _explanation_in_words(found: dict) -> list[str]:
    """An explanation as a table."""
    from visterm.features import printable

    names = [printable(found[side]["name"]) for side in ("query", "result")]
    lines = [f"{names[0]} and {names[1]}: {found['score']:.4f} by {found['learner']}"]
    if found["negative"]:
        lines.append(f"raised by {found['positive']:.4f}, lowered by {-found['negative']:.4f}")
    lines.append("pair  block in the query      block in the result        adds  together")
    together = 0.0
    for number, pair in enumerate(found["pairs"], start=1):
        together += pair["contribution"]
        line = f"{number:4}"
        for side in ("query", "result"):
            x, y, width, height = (round(length) for length in found[side]["boxes"][pair[f"{side}_block"]])
            alike = pair[f"n_{side}_blocks"] - 1
            line += f"  {f'{width}x{height}+{x}+{y}' + (f' and {alike}' if alike else ''):22}"
        lines.append(f"{line}  {pair['contribution']:8.4f}  {together:8.4f}")
    return lines


def _silence_decoders() -> None:
    from visterm.features import silence_decoders

    silence_decoders()


def _say_all(k: int, holds: str, most: int, noun: str, console: Console) -> None:
    from .console import count

    console.warn(f"-k {k}: {holds} {count(most, noun)}, all of them are ranked")


def _check_file(option: str, file: Path, what: str, *endings: str) -> None:
    """Refuse a file to write that something should not take the place of, before any work is done."""
    from .errors import UserError

    if file.suffix.lower() not in endings:
        raise UserError(f"{option} {file}: the name of a {what} ends in {endings[0]}")
    if not file.absolute().parent.is_dir():
        raise UserError(f"{option} {file}: there is no folder {file.parent}")
    if file.is_dir():
        raise UserError(f"{option} {file}: this is a folder; name a file")


def _format(output: Format | None, as_json: bool) -> Format:
    from .errors import UserError

    if as_json and output not in (None, Format.json):
        raise UserError(f"--json and --format {output}: give one of them")
    return Format.json if as_json else output or Format.table


def _queries(queries: list[str] | None, labels: list[str] | None) -> list[str]:
    """Check that there are images to ask with."""
    from .errors import UserError

    if labels is not None and not queries:
        raise UserError("--label: the name of a label is missing")
    if not queries:
        raise UserError("which image? give its file, or a label: --label NAME (make: QUERY=image.jpg or LABEL=name)")
    if "" in queries:
        raise UserError("which image? the name of a file is empty (make: QUERY=image.jpg)")
    return queries


def _one_kind(queries: list[str] | None, labels: list[str]) -> None:
    from .errors import UserError

    if queries:
        raise UserError(f"give images or --label, not both: {queries[0]}, --label {labels[0]}")
    if "" in labels:
        raise UserError("--label: the name of a label is empty")


def _print_rows(found: list[dict], columns: list[str], rows: list[list], output: Format) -> bool:
    """Print answers as JSON or CSV; False: a table is wanted."""
    if output is Format.json:
        print(json.dumps(found, indent=1))
    elif output is Format.csv:
        import csv

        # The file names' own bytes. To mypy the stream may be of any kind.
        sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    return output is not Format.table


def _report_errors(found: list[dict]) -> None:
    """Say which queries could not be read; exit code 2 if any."""
    from .console import one_line

    errors = [answer for answer in found if "error" in answer]
    for answer in errors:
        print(f"visterm: {one_line(answer['query'])}: {one_line(answer['error'])}", file=sys.stderr)
    if errors:
        raise typer.Exit(2)


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
    from .stages.info import describe_run

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
        elif key == "evaluations":
            for name, evaluation in value.items():
                print(f"{'evaluated:':12} {_evaluation_in_words(name, evaluation)}")
        elif key == "segments":
            print(f"{'segments:':12} {printable(_segments_in_words(value))}")
        elif key == "indexes":
            for name, found_by in value.items():
                share = f"{found_by['recall']:.1%} of the {found_by['k']} nearest of {found_by['images']:,} images"
                held = f"; {found_by['held']:,} in Milvus, {found_by['milvus']}" if "milvus" in found_by else ""
                print(f"{'index:':12} {name} finds {share} (measured with {found_by['queries']:,} of them){held}")
        elif key == "growth":
            if value is not None:
                print(f"{'growth:':12} {_growth_in_words(value, place)}")
        elif isinstance(value, dict):
            figures = ", ".join(f"{name} {figure}" for name, figure in value.items())
            print(f"{key + ':':12} {figures or 'none'}")
        else:
            print(f"{key + ':':12} {printable(str(value))}")


def _segments_in_words(segments: dict) -> str:
    if "error" in segments:
        return segments["error"]
    dead, merged = segments["dead_rows"], segments["to_merge"]
    compact = f"; visterm compact would merge {merged:,}" if merged else ""
    return f"{segments['number']:,} ({dead:,} dead rows{compact})"


def _growth_in_words(growth: dict, place: Run) -> str:
    n, cosine = growth["images"], growth["mean_cosine"]
    came = "an unknown number of images" if n is None else f"{n:,} {'image' if n == 1 else 'images'}"
    drift = "" if cosine is None else f"; mean cosine to vectors by the idf of now {cosine:.3f}"
    pays = f"learning again would pay: visterm features --force --run {shlex.quote(place.name)}"
    return f"{came} since visterms and idf were learned{drift}; " + (
        pays if growth["refit"] else "no need to learn again"
    )


def _evaluation_in_words(name: str, evaluation: dict) -> str:
    if "error" in evaluation:
        return f"{name}: {evaluation['error']}"
    figures = ", ".join(f"{system} {value}" for system, value in evaluation["map"].items())
    stale = " (stale: evaluate again)" if evaluation["stale"] else ""
    return f"{evaluation['protocol']}, {evaluation['n_queries']:,} queries, mAP: {figures}{stale}"


@app.command()
@_command
def index(
    run: RunOption = None,
    learner: LearnersOption = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Remove it first, and make it anew.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the index that search asks, or bring it in step with the images; search does so by itself.

    Which kind it is says index.kind: exact search has none. --rebuild is for an index in Milvus that somebody else has
    changed, or a damaged file.

    \b
    Examples:
      visterm features --run photos --set index.kind=milvus
      visterm index --run photos
      visterm index --run photos --rebuild --learner all
    """
    from .errors import UserError
    from .search.searcher import Searcher

    place, _ = _open(run, None, None)
    console = _console()
    searcher = Searcher(place, console=console)
    names = _several(learner) or [searcher.default_learner()]
    found = {}
    for name in searcher.learners if "all" in names else names:
        if rebuild:
            searcher.forget_index(name)
        made = searcher.index(name)
        kind = {"ExactIndex": "exact", "TwoStageIndex": "two-stage"}.get(type(made).__name__, "milvus")
        if kind == "exact" and searcher.config.index.kind == "milvus":  # a stand-in, and a warning has said why
            raise UserError(
                f"the index of {name} in Milvus is not in step; run the same command again once no other visterm is at "
                f"work in {place.folder}"
            )
        found[name] = {"kind": kind, "images": made.n_gallery}
    if as_json:
        print(json.dumps({"run": place.name, "indexes": found}))
        return
    for name, made_of in found.items():
        kind = "exact search, which needs no index" if made_of["kind"] == "exact" else f"{made_of['kind']}, in step"
        console.say(f"{name}: {made_of['images']:,} images; {kind}")


@app.command()
@_command
def serve(
    run: RunOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: TokenOption = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve a run: the page, and the API that /docs describes. Ctrl-C ends it.

    Prints the address. What is trained, added or removed meanwhile is taken up by itself. Needs
    pip install 'visterm[serve]'.

    \b
    Examples:
      visterm serve --run photos --open
      visterm serve --host 0.0.0.0 --token "$(openssl rand -hex 16)"
    """
    place, _ = _open(run, None, None)
    _service()(place, _console(), host=host, port=port, token=token, browse=browse)


def _service() -> Callable:
    """Return what serves a run, if all that it needs is there."""
    from .errors import UserError

    try:
        from .service.server import serve as start
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette", "multipart", "python_multipart"):
            raise
        raise UserError(f"the service needs {error.name}: pip install 'visterm[serve]'") from None
    return start


_feedback = typer.Typer(help="Marks that people gave to results, and learners that they move.", no_args_is_help=True)
app.add_typer(_feedback, name="feedback")
TaughtOption = Annotated[str, typer.Option("--learner", metavar="NAME", help="oasis or aroma.")]


@_feedback.command()
@_command
def status(run: RunOption = None, as_json: JsonOption = False) -> None:
    """Show how much was marked, and which version of each learner is in force."""
    from .console import count
    from .feedback.update import Teacher

    place, _ = _open(run, None, None)
    found = Teacher(place).status()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print(f"marks:       {found['relevant']} relevant, {found['not']} not, of {count(found['queries'], 'query')}")
    for name, model in found["learners"].items():
        parts = [f"version {model['version']} of {count(model['marks'], 'mark')}" if model["version"] else "the base"]
        if model["map_after"] is not None:
            parts.append(f"held-out mAP {model['map_after']:.4f} (base {model['map_base']:.4f})")
        parts += [f"{model['waiting']} not learned from yet"] if model["waiting"] else []
        parts += [f"{model['set_aside']} set aside"] if model["set_aside"] else []
        if model["void"]:
            parts.append("older versions are void since it was trained again: 'visterm feedback update' learns anew")
        print(f"{name + ':':12} {', '.join(parts)}")


@_feedback.command()
@_command
def update(run: RunOption = None, learner: TaughtOption = "oasis", as_json: JsonOption = False) -> None:
    """Learn from the marks; refused, with exit code 2, where held-out mAP would fall by more than 0.005."""
    from .errors import UserError
    from .feedback.update import Teacher

    place, _ = _open(run, None, None)
    found = Teacher(place).update(learner)
    if as_json:
        print(json.dumps(found))
    if not found["accepted"] and found["map_after"] is not None:
        raise UserError(f"{learner}: {found['reason']}")
    if as_json:
        return
    if not found["accepted"]:
        _console().say(f"{learner}: {found['reason']}")
    else:
        _console().say(
            f"{learner}, version {found['from_version']} to {found['to_version']}: learned from {found['n_relevant']} "
            f"relevant, {found['n_not']} not, in {found['milliseconds']:.0f} ms; held-out mAP "
            f"{found['map_before']:.4f} to {found['map_after']:.4f}"
        )


@_feedback.command()
@_command
def undo(run: RunOption = None, learner: TaughtOption = "oasis", as_json: JsonOption = False) -> None:
    """Go back to what was in force before the last update or reset; the marks stay."""
    from .feedback.update import Teacher

    place, _ = _open(run, None, None)
    _say_in_force(Teacher(place).undo(learner), as_json)


@_feedback.command()
@_command
def reset(run: RunOption = None, learner: TaughtOption = "oasis", as_json: JsonOption = False) -> None:
    """Go back to the trained learner. Marks so far stay in the file, and are not learned from again."""
    from .feedback.update import Teacher

    place, _ = _open(run, None, None)
    _say_in_force(Teacher(place).reset(learner), as_json)


def _say_in_force(found: dict, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    now = f"version {found['to_version']}" if found["to_version"] else "the base"
    _console().say(f"{found['learner']}: {now} is in force (before: {found['from_version'] or 'the base'})")


@_feedback.command("export")
@_command
def export_marks(run: RunOption = None, output: FormatOption = Format.json) -> None:
    """Print every mark ever made, and every one taken back, in order: JSON, or --format csv."""
    from .errors import UserError
    from .feedback.marks import Mark, Marks

    place, _ = _open(run, None, None)
    rows = Marks(place.marks).export()
    if not _print_rows(rows, list(Mark._fields), [list(row.values()) for row in rows], output or Format.json):
        raise UserError("--format table: marks are printed as json or csv")


_judge = typer.Typer(invoke_without_command=True)
app.add_typer(_judge, name="judge")
StudyOption = Annotated[int | None, typer.Option("--study", min=1, help="The last one, unless given.")]


@_judge.callback()
@_command
def judge(
    context: typer.Context,
    run: RunOption = None,
    learner: LearnerOption = None,
    n_queries: Annotated[int, typer.Option("--queries", min=1, help="Queries of new tasks.")] = 25,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the choice of queries, and of the order.")] = 0,
    new: Annotated[bool, typer.Option("--new", help="Draw new tasks; the old ones and their decisions stay.")] = False,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: TokenOption = None,
) -> None:
    """Let people judge what a learner finds: the human evaluation of the OASIS paper.

    Draws queries with their 10 nearest images and 10 random ones, unless there are tasks already, and serves the page
    on which any number of judges decide, each under a name. Needs pip install 'visterm[serve]'.

    \b
    Examples:
      visterm judge --run photos --learner oasis
      visterm judge --host 0.0.0.0 --token "$(openssl rand -hex 16)"
      visterm judge results --run photos
      visterm judge export --run photos --format qrels > photos.qrels
    """
    from .errors import UserError

    if (command := context.invoked_subcommand) is not None:
        sources: list[Any] = [context.get_parameter_source(name) for name in context.params]
        if any(source.name == "COMMANDLINE" for source in sources):  # they would be ignored
            raise UserError(f"options come after {command}: visterm judge {command} --run NAME")
        return
    from .human_eval.judgements import Judgements
    from .human_eval.tasks import draw_tasks
    from .search.searcher import Searcher
    from .store.models import check_learners

    start, chosen = _service(), _one(learner)
    check_learners([] if chosen is None else [chosen])
    place, _ = _open(run, None, None)
    console, judgements = _console(), Judgements(place.judgements)
    if new or not judgements.file.exists():
        searcher = Searcher(place, console=console)
        name = chosen or searcher.default_learner()
        tasks = draw_tasks(searcher, name, n_queries=n_queries, seed=seed)
        number = judgements.create(tasks, learner=name, version=searcher.version, seed=seed)
        console.say(f"study {number}: {len(tasks)} queries of {len(tasks[0].candidates)} images each, found by {name}")
    elif chosen not in (None, found := judgements.study().learner):
        raise UserError(f"the tasks of run {place.name} are of {found}; --new draws some of {chosen}")
    console.say(f"judges open this address with '{'judge?token=TOKEN' if token else 'judge'}' at its end:")
    start(place, console, host=host, port=port, token=token)


@_judge.command()
@_command
def results(
    run: RunOption = None,
    study: StudyOption = None,
    figure: Annotated[Path | None, typer.Option("--figure", help="Draw figure 3 of the paper to this PNG.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print precision at k and the coherence of the judges, a line a judge and a query."""
    from visterm.features import printable

    from .human_eval.judgements import Judgements

    if figure is not None:
        _check_file("--figure", figure, "picture", ".png")
    place, _ = _open(run, None, None)
    judgements = Judgements(place.judgements)
    found = judgements.results(study)
    if figure is not None:
        judgements.draw(figure, study)
    if as_json:
        print(json.dumps(found, indent=1))
        return

    def shown(value: float | None) -> str:
        return "   -" if value is None else f"{value:4.2f}"

    k = str(found["k"])
    at = f"P@{k}"
    print(
        f"{found['learner']}: P@1 {shown(found['precision_at']['1'])}, {at} {shown(found['precision_at'][k])}, "
        f"random images {shown(found['random_relevant'])}; deviation over queries "
        f"{shown(found['deviation_over_queries'])}, over judges {shown(found['deviation_over_judges'])}"
    )
    print(f"{at:>5}  coherence  decided  judge")
    for row in found["judges"]:
        share = f"{row['done']}/{row['total']}"
        print(f" {shown(row['precision_at'][k])}  {shown(row['coherence']):>9}  {share:>7}  {row['judge']}")
    print(f"{at:>5}  coherence   judges  query")
    for row in found["queries"]:
        figures = f" {shown(row['precision_at'][k])}  {shown(row['coherence']):>9}  {shown(row['judge_coherence']):>7}"
        print(f"{figures}  {printable(row['path'])}")


class _Judged(enum.StrEnum):
    """How decisions are printed."""

    json = "json"
    csv = "csv"
    qrels = "qrels"


@_judge.command("export")
@_command
def export_judged(
    run: RunOption = None,
    study: StudyOption = None,
    output: Annotated[_Judged, typer.Option("--format", help="qrels: as TREC tools read them.")] = _Judged.json,
) -> None:
    """Print every decision that stands; as qrels, what most judges found."""
    from .human_eval.judgements import Judgements

    place, _ = _open(run, None, None)
    judgements = Judgements(place.judgements)
    if output is _Judged.json:
        print(json.dumps(judgements.rows(study), indent=1))
        return
    # The file names' own bytes. To mypy the stream may be of any kind.
    sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    print(judgements.csv(study) if output is _Judged.csv else judgements.qrels(study), end="")


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
    from .config.loading import load_config
    from .stages import features as stages
    from .stages.demo_images import DEMO_SETTINGS, write_demo_images

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
    from .errors import UserError
    from .store.run import Run

    if not name or name in (".", "..") or "/" in name or name.startswith("-"):
        raise UserError(f"--run {name!r}: a run is named by one plain word, such as photos")
    return Run(_runs() / name)


def _runs() -> Path:
    return Path(os.environ.get("VISTERM_RUNS", "runs"))


def _open(
    name: str | None, file: Path | None, settings: list[str] | None, images: Path | None = None
) -> tuple[Run, Config]:
    """Find the run: by name, else by the configuration's name, else by the images', else the only one there is."""
    from .errors import UserError

    if name is None and file is not None:
        name = file.stem
    if name is None and images is not None:
        name = images.resolve().name or "images"
    if name is None:
        runs = _runs()
        found = sorted(path.parent.name for path in runs.glob("*/config.yaml")) if runs.is_dir() else []
        if len(found) != 1:
            known = (
                f"there are {', '.join(found)}" if found else f"there is none in {runs} yet: visterm features IMAGES"
            )
            raise UserError(f"which run? give --run NAME; {known}")
        name = found[0]
    place = _place(name)
    if images is None and not place.folder.is_dir():
        raise UserError(f"no run {name} in {_runs()}; make it with: visterm features IMAGES --run {name}")
    return place, place.configure(file, settings or [])


def main() -> None:
    """Entry point of the command ``visterm``."""

    def terminate(number, frame):
        raise _Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        code = app(standalone_mode=False)
    except USAGE_ERROR as error:  # an option or a command that does not exist, a value that does not fit
        message = " ".join(error.format_message().split())
        where = error.ctx.command_path if error.ctx else "visterm"
        print(f"visterm: {message.rstrip('.')}; '{where} --help' lists the options", file=sys.stderr)
        code = 2
    sys.exit(code)
