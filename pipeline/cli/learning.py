"""Commands for learning: train, evaluate."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.pipeline.console import Console, count, duration, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load

from .errors import command
from .options import (
    FOR_WORDS,
    ConfigOption,
    ForceOption,
    ForOption,
    JsonOption,
    LearnersOption,
    RunOption,
    SchedulerOption,
    SetOption,
    make_console,
    open_run,
    recommended_learner,
    seconds_of,
    several_names,
    with_scheduler,
    with_world,
)
from .output import say_kept

if TYPE_CHECKING:
    from visterm.pipeline.stages.train import Trained
    from visterm.pipeline.store.run import Run


@command
def train(
    run: RunOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    learner: LearnersOption = None,
    world: ForOption = None,
    scheduler: SchedulerOption = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose the settings first, as visterm tune --apply does.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="With --tune: its time, such as 90s, 5m or 1h (default: 5m)."),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit", metavar="DURATION", help="End each training by then, with its best state: 90s, 2m."
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Train the learners whose labels changed; keep an old model that ranks better."),
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Bring back the models that the last --again, or the page, replaced.")
    ] = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a learner on labelled images.

    An interrupted training resumes from its last checkpoint. Several learners are trained one after the other;
    --learner all retrains every learner of the run. --again does what "Learn again" on the page does: a new model is
    used unless it ranks held-out images worse than the old one.

    \b
    Examples:
      visterm train --run photos
      visterm train --learner aroma,wsabie
      visterm train --tune --budget 10m
      visterm train --set oasis.n_steps=1000000
      visterm train --time-limit 2m
      visterm train --for seen
      visterm train --again
    """
    if again or undo:
        if again and undo or any((config, settings, learner, world, scheduler, tune, budget, time_limit, force)):
            raise UserError(f"{'--again' if again else '--undo'} takes no other option than --run and --json")
        _train_again(open_run(run, None, None)[0], undo, as_json)
        return
    if budget is not None and not tune:
        raise UserError("--budget is the time of --tune; give both, or --time-limit, by which a training ends")
    from visterm.pipeline.stages.fitting import LearnerRefused
    from visterm.pipeline.stages.train import train as stage
    from visterm.pipeline.store.models import TRAINED, check_learners

    names = several_names(learner) or ["oasis"]
    check_learners([name for name in names if name != "all"])
    settings = with_world(with_scheduler(settings, scheduler), world)
    limit = None if time_limit is None else seconds_of(time_limit, "--time-limit")
    place, configuration = open_run(run, config, settings)
    console = make_console()
    if "all" in names:
        names = [name for name in TRAINED if name in place.learners()]
        if not names:
            raise UserError(f"run {place.name} has no trained learner; give one: --learner oasis")
    summaries: list[dict[str, Any]] = []
    seconds = seconds_of(budget or "5m")
    for name in names:
        try:
            if tune and name != "cosine":
                configuration = load("tuning")(place, configuration, name, seconds, console)
            summary = stage(place, configuration, name, console, force=force, time_limit=limit)
        except LearnerRefused as error:
            if len(names) == 1:
                raise
            summaries.append({"run": place.name, "learner": name, "error": str(error)})
            print(f"visterm: {one_line(str(error))}", file=sys.stderr)
            continue
        summaries.append({"run": place.name, **summary})
        if not as_json:
            _say_trained(summary, place, console)
    trained = [summary["learner"] for summary in summaries if "error" not in summary]
    if trained and not as_json:
        following = f"visterm evaluate {place.option}"
        if any("n_triplets" in summary for summary in summaries):  # there may be no labels to evaluate by
            following = f"visterm search IMAGE {place.option}"
        elif len(names) > 1:
            following += " --learner all"
        elif names != ["oasis"]:
            following += f" --learner {names[0]}"
        console.say(f"Next: {following}")
    say_kept(place, configuration, settings, console)
    if as_json:
        print(json.dumps(summaries[0] if len(names) == 1 else summaries))
    if len(trained) < len(names):
        raise typer.Exit(2)


def _train_again(place: Run, undo: bool, as_json: bool) -> None:
    """Train the learners whose labels changed, or bring their old models back."""
    retraining, console = load("retraining"), make_console()
    results: list = retraining.undo_training(place) if undo else retraining.train_again(place, console)
    if as_json:
        print(json.dumps(results))
    elif undo:
        console.say(f"the models before are in use again: {', '.join(results)}")
    elif not results:
        console.say("nothing to learn: learners have learned the labels of this run, or it has fewer than two")
    for result in () if as_json or undo else results:
        figures = ""
        if result["after"] is not None:
            figures = f", mAP {result['before']:.3f} before and {result['after']:.3f} after ({result['measured_on']})"
        console.say(f"{result['learner']}: {'learned again' + figures if result['taken'] else result['reason']}")


def _say_trained(summary: Trained, place: Run, console: Console) -> None:
    """Say what was trained, for how long and on how many images."""
    name = summary["learner"]
    if name == "cosine":
        console.say("cosine needs no training")
        return
    what = "is up to date" if summary["up_to_date"] else f"trained in {duration(summary['seconds'])}"
    steps = f"{summary['steps']:,} steps on " if summary["steps"] else ""
    console.say(f"{name} {what}: {steps}{summary['n_images']:,} images, in {place.learner(name)}")


@command
def evaluate(
    run: RunOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    learner: LearnersOption = None,
    scheduler: SchedulerOption = None,
    run_files: Annotated[
        bool, typer.Option("--run-files", help="Also write all ranks, for TREC's programs and for ranx.")
    ] = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Rank the test images and write report.html.

    Prints the path of the report, with metrics.json, curves.csv, neighbours.csv, precision_curve.{png,svg} and, for
    learners that rank labels, labels.csv (precision and recall of each label) beside it. Several learners share one
    report, with cosine and chance as baselines, and the one that did best on held-out training images is recommended;
    --learner all takes every learner that is up to date. --run-files adds the folder run_files with the rankings and
    the relevance of all images, as TREC and ranx read them.

    \b
    Examples:
      visterm evaluate --run photos
      visterm evaluate --learner oasis,aroma
      visterm evaluate --learner cosine --json
    """
    from visterm.pipeline.console import without_password
    from visterm.pipeline.evaluation.worlds import below_cosine
    from visterm.pipeline.stages.evaluate import evaluate as stage
    from visterm.pipeline.store.records import read_metrics

    names = several_names(learner)
    settings = with_scheduler(settings, scheduler)
    place, configuration = open_run(run, config, settings)
    console = make_console()
    names = names or [recommended_learner(place, configuration, console)]
    command = ["visterm", "evaluate", "--run", place.name]
    command += [f"--config={config}"] if config else []
    command += [part for name in names for part in ("--learner", name)]
    command += [part for setting in settings or [] for part in ("--set", without_password(setting))]
    folder = stage(place, configuration, names, console, force=force, run_files=run_files, command=shlex.join(command))
    metrics = read_metrics(folder)
    if as_json:
        print(json.dumps(metrics))
        return
    for line in (*_figures(metrics), *_held_out(metrics), *_open(metrics)):
        console.say(line)
    for line in below_cosine(metrics["systems"]):
        console.warn(line)
    if "recommended" in metrics:
        console.say(_recommendation(metrics["recommended"]))
    say_kept(place, configuration, settings, console)
    print(folder / "report.html")


def _recommendation(recommended: dict) -> str:
    """Return the line that names the learner to take, and the figures that chose it."""
    from visterm.pipeline.store.recommendation import figures_of

    unknown = recommended["not_validated"]
    without = f"; not validated: {', '.join(unknown)}" if unknown else ""
    world = FOR_WORDS[recommended["for"]]
    return f"Recommended: {recommended['learner']}, {world}, by held-out images: {figures_of(recommended)}{without}"


def _figures(metrics: dict) -> list[str]:
    """Return one line per system."""
    width = max(8, *map(len, metrics["systems"]))
    lines = []
    for name, figures in metrics["systems"].items():
        line = f"{name:>{width}}  mAP {figures['map']:.3f}"
        line += "".join(f"  P@{k} {value:.3f}" for k, value in figures["precision_at"].items())
        if "knn_accuracy" in figures:
            line += f"  k-NN accuracy {figures['knn_accuracy']:.3f}"
        for key, title in (("precision_at", "labels"), ("sibling_precision_at", "siblings")):
            precisions = figures.get("annotation", {}).get(key, {})
            line += "".join(f"  {title} P@{k} {value:.3f}" for k, value in precisions.items())
        if per_label := figures.get("annotation", {}).get("per_label"):
            line += f"  per label, {per_label['labels_per_image']} per image: F1 {per_label['f1']:.3f}"
        lines.append(line)
    return lines


def _held_out(metrics: dict) -> list[str]:
    """Return one line per learner that was validated on held-out images of classes, with cosine beside."""
    return [
        f"{name}, held-out images (cosine): "
        + ", ".join(f"{world} {row['map']:.3f} ({row['cosine']:.3f})" for world, row in figures["held_out"].items())
        for name, figures in metrics["systems"].items()
        if "held_out" in figures
    ]


def _open(metrics: dict) -> list[str]:
    """Return one line per system that was measured on class splits."""
    if "open" not in metrics:
        return []
    lines = [f"Trained on half of the classes, means of {count(metrics['open']['n_splits'], 'class split')}:"]
    width = max(8, *map(len, metrics["open"]["systems"]))
    for name, worlds in metrics["open"]["systems"].items():
        line = f"{name:>{width}}"
        for world, figures in worlds.items():
            spread = f" ± {figures['map_sd']:.3f}" if "map_sd" in figures else ""
            line += f"  {world} mAP {figures['map']:.3f}{spread} P@1 {figures['p1']:.3f}"
        lines.append(line)
    return lines
