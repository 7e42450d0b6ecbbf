"""Commands below ``visterm feedback``, and ``visterm forget``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import (
    Format,
    FormatOption,
    JsonOption,
    RunOption,
    UpdatedLearnerOption,
    make_console,
    open_run,
)
from visterm.pipeline.cli.output import print_rows
from visterm.pipeline.console import count, duration, one_line
from visterm.pipeline.errors import UserError

if TYPE_CHECKING:
    from visterm.pipeline.evaluation.held_out import FallFigures

    from .feedback import FeedbackReverted, FeedbackTrainer


def _trainer(run: str | None) -> FeedbackTrainer:
    from .feedback import FeedbackTrainer

    return FeedbackTrainer(open_run(run, None, None)[0])


@command
def status(run: RunOption = None, as_json: JsonOption = False) -> None:
    """Show the relevance marks and the version in use of each learner."""
    state = _trainer(run).status()
    if as_json:
        print(json.dumps(state, indent=1))
        return
    print(f"marks:       {state['relevant']} relevant, {state['not']} not, on {count(state['queries'], 'query')}")
    for name, model in state["learners"].items():
        parts = [f"version {model['version']} from {count(model['marks'], 'mark')}" if model["version"] else "the base"]
        if model["map_after"] is not None:
            parts.append(f"held-out mAP {model['map_after']:.4f} (base {model['map_base']:.4f})")
        parts += [f"{model['waiting']} not used yet"] if model["waiting"] else []
        parts += [f"{model['set_aside']} set aside"] if model["set_aside"] else []
        if model["void"]:
            parts.append("retrained since; 'visterm feedback update' updates it from the marks again")
        print(f"{name + ':':12} {', '.join(parts)}")


@command
def update(run: RunOption = None, learner: UpdatedLearnerOption = "oasis", as_json: JsonOption = False) -> None:
    """Update a learner from the marks.

    Refused, with exit code 2, if mAP on held-out images would fall by more than 0.005.
    """
    result = _trainer(run).update(learner)
    if as_json:
        print(json.dumps(result))
    if not result["accepted"] and result["map_after"] is not None:
        raise UserError(f"{learner}: {result['reason']}")
    if as_json:
        return
    if not result["accepted"]:
        make_console().say(f"{learner}: {result['reason']}")
    else:
        make_console().say(
            f"{learner}, version {result['from_version']} to {result['to_version']}: learned from "
            f"{result['n_relevant']} relevant, {result['n_not']} not, in {duration(result['milliseconds'] / 1000)}; "
            f"{_figures(result)}"
        )


@command
def undo(run: RunOption = None, learner: UpdatedLearnerOption = "oasis", as_json: JsonOption = False) -> None:
    """Undo the last update, forget or reset; the marks stay."""
    _say_in_force(_trainer(run).undo(learner), as_json)


@command
def reset(run: RunOption = None, learner: UpdatedLearnerOption = "oasis", as_json: JsonOption = False) -> None:
    """Go back to the trained learner; existing marks stay, and are not learned from again."""
    _say_in_force(_trainer(run).reset(learner), as_json)


@command
def forget(
    given: Annotated[list[str], typer.Argument(metavar="IMAGE|MARK", help="Images, folders, id:N, or mark:N.")],
    run: RunOption = None,
    learner: UpdatedLearnerOption = "oasis",
    as_json: JsonOption = False,
) -> None:
    """Take out of a learner what some images or marks taught it.

    Nothing is trained again. Refused, with exit code 2, if mAP on held-out images would fall by more than 0.005 below
    the trained learner's. 'visterm feedback undo' goes back. Images stay in the run, and a mark is taken back.

    \b
    Examples:
      visterm forget pear/7.jpg id:12 --run photos
      visterm forget mark:3
    """
    result = _trainer(run).forget(given, learner)
    if as_json:
        print(json.dumps(result))
    if not result["accepted"]:
        raise UserError(f"{learner}: {result['reason']}")
    if as_json:
        return
    for image in result["images"]:
        print(f"id:{image['id']}  {one_line(image['path'])}")
    parts = [count(len(result[kind]), kind.removesuffix("s")) for kind in ("images", "marks") if result[kind]]
    done = f"forgot {' and '.join(parts)} in {duration(result['milliseconds'] / 1000)}"
    if result["from_version"] == result["to_version"]:
        make_console().say(f"{learner}: {done}; it had learned nothing from them")
        return
    make_console().say(
        f"{learner}, version {result['from_version']} to {result['to_version']}: {done}; {_figures(result)}"
    )


def _figures(result: FallFigures) -> str:
    """Say what an update did to held-out images."""
    if result["map_after"] is None:
        return "no image is labelled, so that nothing was measured; 'visterm feedback undo' goes back"
    return f"held-out mAP {result['map_before']:.4f} to {result['map_after']:.4f}"


def _say_in_force(change: FeedbackReverted, as_json: bool) -> None:
    if as_json:
        print(json.dumps(change))
        return
    now = f"version {change['to_version']}" if change["to_version"] else "the base"
    make_console().say(f"{change['learner']}: {now} in use (before: {change['from_version'] or 'the base'})")


@command
def export_marks(run: RunOption = None, output: FormatOption = Format.json) -> None:
    """Print every mark and every undo in order, as JSON or --format csv."""
    from .marks import Mark, RelevanceMarks

    place, _ = open_run(run, None, None)
    rows = RelevanceMarks(place.marks).export()
    if not print_rows(rows, list(Mark._fields), [list(row.values()) for row in rows], output or Format.json):
        raise UserError("--format table: marks are exported as json or csv")


commands = typer.Typer(
    name="feedback", help="Relevance feedback and the learners updated from it.", no_args_is_help=True
)
for _function in (status, update, undo, reset):
    commands.command()(_function)
commands.command("export")(export_marks)
