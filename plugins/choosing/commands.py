"""The commands tune and try."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import (
    FOR_WORDS,
    BudgetOption,
    ConfigOption,
    ForceOption,
    ForOption,
    JsonOption,
    RunOption,
    SetOption,
    make_console,
    one_name,
    open_run,
    seconds_of,
    with_world,
)
from visterm.pipeline.config.learners import TABLE
from visterm.pipeline.console import Console, duration, in_columns, numbers_apart
from visterm.pipeline.errors import UserError

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config
    from visterm.pipeline.store.run import Run

    from .tune import Tuned


@command
def tune(
    run: RunOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    learner: Annotated[str | None, typer.Option("--learner", metavar="NAME", help=f"{', '.join(TABLE)}.")] = None,
    world: ForOption = None,
    budget: BudgetOption = "5m",
    search: Annotated[
        list[str] | None,
        typer.Option("--search", metavar="KEY=V,V", help="Try these values of this setting only; may be repeated."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", min=2, help="Number of trials, instead of a time.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the chosen settings into the run's configuration.")
    ] = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Choose the settings of a learner, by cross-validation on the training images.

    Test images are never read. Prints all trials, best first, and draws them to tuning.png. An interrupted tuning
    resumes; a larger --budget continues a finished one.

    \b
    Examples:
      visterm tune --run photos
      visterm tune --learner aroma --budget 20m --apply
      visterm tune --search C=0.03,0.1,0.3 --search init=identity,zero
    """
    name = one_name(learner) or "oasis"
    seconds = seconds_of(budget)
    settings = with_world(settings, world)
    place, configuration = open_run(run, config, settings)
    console = make_console()
    from .trials import Budget
    from .tune import tune as stage

    plan = Budget(seconds, trials)
    result = stage(place, configuration, name, console, budget=plan, search=search or (), apply=apply, force=force)
    if as_json:
        print(json.dumps({"run": place.name} | result))
        return
    for line in table(result):
        print(line)
    say_chosen(result, place, console)
    console.say(f"plot: {result['plot']}")
    if result["best"] and not apply:
        named = f" --learner {name}" if name != "oasis" else ""
        console.say(f"Next: visterm tune --apply {place.option}{named}")


def tuned(run: Run, config: Config, name: str, seconds: float, console: Console) -> Config:
    """Tune a learner, and return the configuration with the settings that were chosen."""
    from .trials import Budget
    from .tune import tune as stage

    result = stage(run, config, name, console, budget=Budget(seconds), apply=True)
    say_chosen(result, run, console)
    return run.configure(None, []) if result["applied"] else config


def say_chosen(result: Tuned, place: Run, console: Console) -> None:
    """Say which settings were chosen, and where they are."""
    from visterm.pipeline.store.tuning import tuned_text

    if result["up_to_date"]:
        console.say(
            f"{result['learner']} was tuned already, for {duration(result['seconds'])}: --budget with more time "
            "continues, --force starts again"
        )
    measure, score, before = result["measure"], result["score"], result["own_score"]
    if not result["best"]:
        console.say(f"no trial is clearly better than the settings at the start: {measure} {before:.3f}")
        return
    gain = f", {100 * (score / before - 1):+.1f} %" if before and score >= 1.001 * before else ""
    now, then = numbers_apart(score, before)
    console.say(f"chosen: {tuned_text(result['best'])} ({measure} {now}, before {then}{gain})")
    if result["applied"]:
        console.say(f"written to {place.folder / 'config.yaml'}")


def table(result: Tuned) -> list[str]:
    """Return the trials as lines, those on all folds first, best first."""
    keys = list(result["trials"][0]["settings"])
    rows = [["", *(key.rpartition(".")[2] for key in keys), "steps", "folds", result["measure"], "+-", "seconds"]]
    order = sorted(result["trials"], key=lambda t: (-len(t["values"]), -(t["score"] or 0), t["number"]))
    for trial in order:
        marks = ["chosen"] if result["best"] and trial["number"] == result["best_trial"] else []
        marks += ["start"] if trial["number"] == 0 else []
        values = [trial["settings"][key] for key in keys]
        shown = [value if isinstance(value, str) else json.dumps(value) for value in values]
        steps = "" if trial["step"] is None else f"{trial['step']:,}"
        score = "refused" if trial["state"] == "refused" else f"{trial['score']:.4f}" if trial["values"] else ""
        rows.append(
            [
                " ".join(marks),
                *shown,
                steps,
                str(len(trial["values"])),
                score,
                _error(trial["values"]),
                f"{trial['seconds']:.1f}",
            ]
        )
    return in_columns(rows, str.rjust)


def _error(values: list[float]) -> str:
    """Return the standard error over the folds."""
    from statistics import stdev

    return f"{stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""


@command
def try_(
    images: Annotated[str, typer.Argument(metavar="IMAGES", help="Directory of labelled images.")],
    config: ConfigOption = None,
    settings: SetOption = None,
    world: ForOption = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time, such as 90s or 5m.")] = "90s",
    as_json: JsonOption = False,
) -> None:
    """Find out which vectors and which learner suit your photos, in 90 seconds.

    At most 600 of the training images are tried: with vectors of a network (where the extra deep is installed), with
    visterms, and with visterms per cell of the image; by cosine, oasis and hier. Figures are of images that nothing
    was learned from. Prints a table, and the commands for the best pair. Nothing is kept.

    \b
    Examples:
      visterm try photos/
      visterm try photos/ --for seen
      visterm try photos/ --set collection.labels=labels.csv
    """
    from visterm.pipeline.config.loading import load_config
    from visterm.plugins.choosing.try_photos import try_photos

    if images == "":
        raise UserError("the name of the image directory is empty; give a directory (make: IMAGES=directory)")
    console = make_console()
    configuration = load_config(config, with_world(settings, world))
    result = try_photos(Path(images), configuration, console, budget=seconds_of(budget))
    options = [*(["--config", str(config)] if config else [])]
    options += [part for setting in settings or [] for part in ("--set", setting)]
    result["commands"] = _commands(images, result, options, world)
    if as_json:
        print(json.dumps(result))
        return
    for line in _table_of(result):
        print(line)
    for kind, why in result["skipped"].items():
        console.say(f"{kind} was not tried: {why}")
    print(f"Best: {result['vectors']} vectors, {result['learner']}, {FOR_WORDS[result['for']]}:")
    for line in result["commands"]:
        print(f"  {line}")


def _commands(images: str, result: dict, options: list[str], world: ForOption) -> list[str]:
    """Return the commands that make the vectors of all images and train the learner."""
    settings = {key: value for key, value in result["settings"].items() if key != "features.kind"}
    if result["settings"].get("features.kind") == "deep":
        options = [*options, "--deep"]
        settings = {}
    options += [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    name = Path(images).resolve().name or "images"
    commands = [["visterm", "features", images, *options]]
    if result["learner"] == "cosine":
        commands.append(["visterm", "search", "IMAGE", "--run", name])
    else:
        learner = [] if result["learner"] == "oasis" else ["--learner", result["learner"]]
        of_world = [] if world is None else ["--for", world.value]
        commands.append(["visterm", "train", "--run", name, *learner, *of_world])
    return [shlex.join(command) for command in commands]


def _table_of(result: dict) -> list[str]:
    """Return what was tried as lines of a table."""
    lines = [f"{'vectors':10}  {'learner':8}  held-out mAP    P@1  all {result['n_images']:,} images"]
    for row in result["tried"]:
        best = "  best" if (row["vectors"], row["learner"]) == (result["vectors"], result["learner"]) else ""
        figures = f"{row['map']:12.3f}  {row['p1']:5.3f}  {duration(row['seconds_for_all'])}"
        lines.append(f"{row['vectors']:10}  {row['learner']:8}  {figures}{best}")
    return lines
