"""The command tune."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.pipeline.config.learners import TABLE
from visterm.pipeline.console import Console, duration
from visterm.pipeline.errors import UserError

from .errors import command
from .options import (
    ConfigOption,
    ForceOption,
    ForOption,
    JsonOption,
    RunOption,
    SetOption,
    make_console,
    one_name,
    open_run,
    with_world,
)

if TYPE_CHECKING:
    from visterm.pipeline.stages.tune import Tuned
    from visterm.pipeline.store.run import Run

BudgetOption = Annotated[str, typer.Option("--budget", metavar="TIME", help="Time for tuning, such as 90s, 5m or 1h.")]
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


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
    from visterm.pipeline.stages.trials import Budget
    from visterm.pipeline.stages.tune import tune as stage

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
        console.say(f"Next: visterm tune --apply --run {shlex.quote(place.name)}{named}")


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
    gain = f", {100 * (score / before - 1):+.1f} %" if before else ""
    console.say(f"chosen: {tuned_text(result['best'])} ({measure} {score:.3f}, before {before:.3f}{gain})")
    if result["applied"]:
        console.say(f"written to {place.folder / 'config.yaml'}")


def seconds_of(text: str, option: str = "--budget") -> float:
    """Read a time such as 90s, 5m or 1h."""
    read = re.fullmatch(r"(\d+(?:\.\d+)?) *(s|m|min|h|)", text.strip())
    seconds = float(read[1]) * _SECONDS[read[2]] if read else 0
    if not seconds:
        raise UserError(f"{option} {text}: expected a time such as 90s, 5m or 1h")
    return seconds


def table(result: Tuned) -> list[str]:
    """Return the trials as lines, those on all folds first, best first."""
    keys = list(result["trials"][0]["settings"])
    rows = [["", *(key.rpartition(".")[2] for key in keys), "steps", "folds", result["measure"], "+-", "seconds"]]
    order = sorted(result["trials"], key=lambda t: (-len(t["values"]), -(t["score"] or 0), t["number"]))
    for trial in order:
        marks = [
            mark
            for mark, is_so in (
                ("chosen", bool(result["best"]) and trial["number"] == result["best_trial"]),
                ("start", trial["number"] == 0),
            )
            if is_so
        ]
        shown = [_cell(trial["settings"][key]) for key in keys]
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
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _error(values: list[float]) -> str:
    """Return the standard error over the folds."""
    from statistics import stdev

    return f"{stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
