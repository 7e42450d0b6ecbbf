"""Commands below ``visterm judge``."""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import (
    HostOption,
    JsonOption,
    LearnerOption,
    PortOption,
    RunOption,
    TokenOption,
    check_file,
    make_console,
    one_name,
    open_run,
)
from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load

StudyOption = Annotated[int | None, typer.Option("--study", min=1, help="Study number (default: the latest).")]


@command
def judge(
    context: typer.Context,
    run: RunOption = None,
    learner: LearnerOption = None,
    n_queries: Annotated[int, typer.Option("--queries", min=1, help="Number of queries in new tasks.")] = 25,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed of the tasks and their order.")] = 0,
    new: Annotated[bool, typer.Option("--new", help="Start a new study; earlier studies stay.")] = False,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: TokenOption = None,
) -> None:
    """Rate results by people: the human evaluation of the OASIS paper.

    Draws queries, each with its 10 nearest images and 10 random ones, unless a study exists, and serves the page on
    which any number of judges rate them. Needs the extra serve.

    \b
    Examples:
      visterm judge --run photos --learner oasis
      visterm judge --host 0.0.0.0 --token "$(openssl rand -hex 16)"
      visterm judge results --run photos
      visterm judge export --run photos --format qrels > photos.qrels
    """
    if (command := context.invoked_subcommand) is not None:
        sources: list[Any] = [context.get_parameter_source(name) for name in context.params]
        if any(source.name == "COMMANDLINE" for source in sources):  # typer would ignore them
            raise UserError(f"put options after {command}: visterm judge {command} --run NAME")
        return
    from visterm.pipeline.search.searcher import Searcher
    from visterm.pipeline.store.models import check_learners

    from .judgements import Judgements
    from .tasks import draw_tasks

    start, chosen = load("the service")(), one_name(learner)
    check_learners([] if chosen is None else [chosen])
    place, _ = open_run(run, None, None)
    console, judgements = make_console(), Judgements(place.judgements)
    if new or not judgements.file.exists():
        searcher = Searcher(place, console=console)
        name = chosen or searcher.default_learner()
        tasks = draw_tasks(searcher, name, n_queries=n_queries, seed=seed)
        number = judgements.create(tasks, learner=name, version=searcher.version, seed=seed)
        console.say(f"study {number}: {len(tasks)} queries of {len(tasks[0].candidates)} images each, ranked by {name}")
    elif chosen not in (None, rated := judgements.study().learner):
        raise UserError(f"the study of run {place.name} rates {rated}; use --new to start one for {chosen}")
    console.say(f"judges open this address followed by '{'judge?token=TOKEN' if token else 'judge'}':")
    start(place, console, host=host, port=port, token=token)


@command
def results(
    run: RunOption = None,
    study: StudyOption = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Draw figure 3 of the paper to this PNG file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print precision at k and coherence per judge and per query."""
    from .judgements import Judgements

    if figure is not None:
        check_file("--figure", figure, "picture", ".png")
    place, _ = open_run(run, None, None)
    judgements = Judgements(place.judgements)
    summary = judgements.results(study)
    if figure is not None:
        judgements.draw(figure, study)
    if as_json:
        print(json.dumps(summary, indent=1))
        return

    def shown(value: float | None) -> str:
        return "   -" if value is None else f"{value:4.2f}"

    k = str(summary["k"])
    at = f"P@{k}"
    print(
        f"{summary['learner']}: P@1 {shown(summary['precision_at']['1'])}, {at} {shown(summary['precision_at'][k])}, "
        f"random images {shown(summary['random_relevant'])}; deviation over queries "
        f"{shown(summary['deviation_over_queries'])}, over judges {shown(summary['deviation_over_judges'])}"
    )
    print(f"{at:>5}  coherence  decided  judge")
    for row in summary["judges"]:
        share = f"{row['done']}/{row['total']}"
        print(f" {shown(row['precision_at'][k])}  {shown(row['coherence']):>9}  {share:>7}  {row['judge']}")
    print(f"{at:>5}  coherence   judges  query")
    for query in summary["queries"]:
        coherences = f"{shown(query['coherence']):>9}  {shown(query['judge_coherence']):>7}"
        print(f" {shown(query['precision_at'][k])}  {coherences}  {one_line(query['path'])}")


class _Judged(enum.StrEnum):
    """Output formats of decisions."""

    json = "json"
    csv = "csv"
    qrels = "qrels"


@command
def export_judged(
    run: RunOption = None,
    study: StudyOption = None,
    output: Annotated[_Judged, typer.Option("--format", help="qrels: the format of TREC tools.")] = _Judged.json,
) -> None:
    """Export the decisions; as qrels, the majority decision."""
    from .judgements import Judgements

    place, _ = open_run(run, None, None)
    judgements = Judgements(place.judgements)
    if output is _Judged.json:
        print(json.dumps(judgements.rows(study), indent=1))
        return
    # File names as their bytes. mypy does not know the kind of stream.
    sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    print(judgements.csv(study) if output is _Judged.csv else judgements.qrels(study), end="")


commands = typer.Typer(name="judge", invoke_without_command=True)
commands.callback()(judge)
commands.command()(results)
commands.command("export")(export_judged)
