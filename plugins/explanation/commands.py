"""The command ``visterm explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import LearnerOption, RunOption, check_file, one_name, open_searcher, with_options
from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load

_PAIRS = 8  # of blocks, or of teachers on each side


@command
@with_options("learned_weight")
def explain(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Query image: a file, id:12, or a path of the run.")],
    result: Annotated[str, typer.Argument(metavar="RESULT", help="Result image, such as a path that search printed.")],
    run: RunOption = None,
    learner: LearnerOption = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Draw the explanation to this PNG file.")
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            min=1,
            max=100,
            help="List so many of the strongest pairs of blocks; with --teachers, of teachers per side (default: 8).",
        ),
    ] = None,
    teachers: Annotated[
        bool, typer.Option("--teachers", help="List the training images that made the two similar instead.")
    ] = False,
    neighbours: Annotated[
        bool, typer.Option("--neighbours", help="List the photos that both are like instead.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole explanation as JSON.")] = False,
    **options: Any,
) -> None:
    """Explain a match: which photos both are like, and which regions of the two make half of their similarity.

    Each pair of a cell of the query and a cell of the result adds something, and all pairs sum to the similarity of the
    two. Cells that touch are one region. The picture shows the regions in both images, and a heat map of the score.
    Default learner: as of search.

    With --neighbours: which photos both are like, and what these add to the score that results are ranked by.

    With --teachers: which training images oasis put together, or kept apart, to come to the score. These sum to it as
    well. Also for vectors that are not made of blocks.

    \b
    Examples:
      visterm explain a.jpg pear/7.jpg --output why.png
      visterm explain a.jpg pear/7.jpg --pairs 8
      visterm explain id:12 id:40 --learner cosine --json
      visterm explain a.jpg pear/7.jpg --teachers
    """
    from .explanation import explain_with_pixels
    from .explanation_picture import draw_explanation
    from .shared_neighbours import explain_neighbours, in_words

    chosen = one_name(learner)
    if file is not None:
        if teachers or neighbours:
            what = "teachers" if teachers else "neighbours"
            raise UserError(f"--output draws blocks; leave out --{what}, or print the {what} without --output")
        check_file("--output", file, "picture", ".png")
    if neighbours and (teachers or pairs):
        raise UserError(f"--neighbours lists photos; leave out --{'teachers' if teachers else 'pairs'}")
    searcher, _ = open_searcher(run)
    if neighbours:
        shared = explain_neighbours(searcher, query, result, chosen, **options)
        if shared is None:
            raise UserError(f"{chosen or searcher.default_learner()} ranks these two without neighbours")
        print(json.dumps(shared) if as_json else "\n".join(in_words(shared)))
        return
    if teachers:
        of_pair = load("teachers")
        taught = of_pair.explain_teachers(searcher, query, result, chosen, n_teachers=pairs or _PAIRS, **options)
        print(json.dumps(taught) if as_json else "\n".join(of_pair.in_words(taught)))
        return
    made = explain_with_pixels(searcher, query, result, chosen, n_pairs=pairs or _PAIRS, **options)
    explanation = made.data
    if file is not None:
        draw_explanation(explanation, made.query_pixels, made.result_pixels, file)
    if as_json:
        print(json.dumps(explanation))
    elif file is not None:
        print(file)
    else:
        for line in _explanation_in_words(explanation, with_pairs=pairs is not None):
            print(line)


def _explanation_in_words(explanation: Any, *, with_pairs: bool) -> list[str]:
    """Return an explanation as a sentence, a table of its regions and, if asked for, one of its strongest pairs."""
    names = [one_line(explanation[side]["name"]) for side in ("query", "result")]
    lines = [
        *([explanation["neighbours"]["sentence"]] if "neighbours" in explanation else []),
        explanation["sentence"],
        f"{names[0]} and {names[1]}: {explanation['score']:.4f} by {explanation['learner']}",
    ]
    if explanation["negative"]:
        lines.append(f"raised by {explanation['positive']:.4f}, lowered by {-explanation['negative']:.4f}")
    if explanation["regions"]:
        lines.append(f"share      adds  {'in the query':28}  in the result")
        for pair in explanation["regions"]:
            places = []
            for side in ("query", "result"):
                region = explanation[side]["regions"][pair[f"{side}_region"]]
                places.append(
                    f"{region['place']}, {len(region['cells'])} of {count(len(explanation[side]['cells']), 'cell')}"
                )
            lines.append(f"{pair['share']:5.0%}  {pair['contribution']:8.4f}  {places[0]:28}  {places[1]}")
        rest = 1 - sum(pair["share"] for pair in explanation["regions"])
        lines.append(f"{rest:5.0%}  {explanation['rest']:8.4f}  all other pairs of cells")
    return lines + (_pairs_in_words(explanation) if with_pairs else [])


def _pairs_in_words(explanation: Any) -> list[str]:
    """Return the strongest pairs of blocks as lines of a table."""
    lines = []
    of_query, of_result = (f"{explanation['parts']} in the {side}" for side in ("query", "result"))
    lines.append(f"pair  {of_query:22}  {of_result:22}      adds  together")
    together = 0.0
    for number, pair in enumerate(explanation["pairs"], start=1):
        together += pair["contribution"]
        line = f"{number:4}"
        for side in ("query", "result"):
            x, y, width, height = (round(length) for length in explanation[side]["boxes"][pair[f"{side}_block"]])
            alike = pair[f"n_{side}_blocks"] - 1
            line += f"  {f'{width}x{height}+{x}+{y}' + (f' and {alike}' if alike else ''):22}"
        lines.append(f"{line}  {pair['contribution']:8.4f}  {together:8.4f}")
    return lines
