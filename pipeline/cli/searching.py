"""Commands for searching: search, annotate, explain, index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError

from .errors import command
from .options import (
    FormatOption,
    JsonFormatOption,
    JsonOption,
    LabelOption,
    LearnedOption,
    LearnerOption,
    LearnersOption,
    QueriesArgument,
    RunOption,
    check_file,
    chosen_format,
    one_name,
    open_searcher,
    several_names,
)
from .output import print_rows, report_errors


@command
def search(
    queries: QueriesArgument = None,
    run: RunOption = None,
    learner: LearnerOption = None,
    label: LabelOption = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Results per query (default: 10).")] = None,
    learned: LearnedOption = None,
    output: FormatOption = None,
    as_json: JsonFormatOption = False,
    page: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write an HTML page with the images instead of the table."),
    ] = None,
) -> None:
    """Find the most similar images, or the best images for a label, or for several labels together.

    IMAGE is a file, a folder (all images in it), id:12 (an image of the run), or a path that search printed. Default
    learner: oasis, else the first trained one; for --label: the best on held-out images.
    Unreadable images are reported and skipped; the exit code is then 2.

    \b
    Examples:
      visterm search a.jpg
      visterm search a.jpg holiday/ id:12 --run photos -k 20 --format csv
      visterm search a.jpg --learned 0.2
      visterm search holiday/ --html results.html
      visterm search --label sunset
      visterm search --label beach --label people
    """
    from visterm.pipeline.search.results_page import write_results_page
    from visterm.pipeline.search.searcher import RESULTS

    wanted, chosen = chosen_format(output, as_json), one_name(learner)
    if page is not None:
        check_file("--html", page, "page", ".html", ".htm")
    asked = _asked(queries, label)
    searcher, console = open_searcher(run)
    chosen = chosen or searcher.default_learner(of_labels=bool(label))
    if label and learned is not None:
        raise UserError("--learned is for queries that are images; a learner ranks images for a label by itself")
    if label:
        found = searcher.search_label(asked, k or RESULTS, chosen)
    else:
        found = searcher.search(asked, k or RESULTS, chosen, learned=learned)
    if k is not None and k > len(searcher.images):
        console.warn(f"-k {k}: the collection has {count(len(searcher.images), 'image')}, all of them are ranked")
    if page is not None:
        share = 1.0 if label else searcher.share(chosen, learned)
        by = chosen if share == 1 else f"{chosen}, {share:.0%} of what was learned"
        write_results_page(page, searcher, found, learner=by, of_labels=bool(label))
        if output is None and not as_json:
            print(page)
            report_errors(found)
            return
        console.say(f"pictures in {page}")
    columns = ["query", "rank", "id", "path", "score", "labels"]
    rows = [
        [answer["query"], r["rank"], r["id"], r["path"], r["score"], ";".join(r["labels"])]
        for answer in found
        for r in answer["results"]
    ]
    if not print_rows(found, columns, rows, wanted):
        _print_tables(found, "results", "path")
    report_errors(found)


@command
def annotate(
    queries: QueriesArgument = None,
    run: RunOption = None,
    learner: Annotated[
        str | None,
        typer.Option(
            "--learner",
            metavar="NAME",
            help="A learner that ranks labels (default: the best on held-out images).",
        ),
    ] = None,
    label: LabelOption = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Labels per query (default: 5).")] = None,
    output: FormatOption = None,
    as_json: JsonFormatOption = False,
) -> None:
    """Rank labels for images, or labels similar to a label.

    IMAGE is a file, a folder, id:12 or a path of the run, as for search. Unreadable images are reported and skipped;
    the exit code is then 2.

    \b
    Examples:
      visterm annotate a.jpg
      visterm annotate a.jpg b.jpg --learner knn -k 3 --format json
      visterm annotate --label sunset
    """
    from visterm.pipeline.search.searcher import LABELS

    wanted, chosen = chosen_format(output, as_json), one_name(learner)
    asked = _asked(queries, label)
    searcher, console = open_searcher(run)
    results = (searcher.similar_labels if label else searcher.annotate)(asked, k or LABELS, chosen)
    most = max(len(answer["labels"]) for answer in results)
    if k is not None and 0 < most < k:
        known = count(most, "other label" if label else "label")
        console.warn(f"-k {k}: the learner knows {known}, all of them are ranked")
    rows = [[answer["query"], r["rank"], r["label"], r["score"]] for answer in results for r in answer["labels"]]
    if not print_rows(results, ["query", "rank", "label", "score"], rows, wanted):
        _print_tables(results, "labels", "label")
    report_errors(results)


def _print_tables(results: list[dict], ranked: str, name: str) -> None:
    """Print a table per query, with the name and the labels of each ranked item."""
    for answer in results:
        if "error" not in answer:
            print(one_line(answer["query"]))
            print(f"rank     score  {name}")
            for r in answer[ranked]:
                labels = f"  [{one_line(', '.join(r['labels']))}]" if r.get("labels") else ""
                print(f"{r['rank']:4}  {r['score']:8.4f}  {one_line(r[name])}{labels}")


@command
def explain(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Query image: a file, id:12, or a path of the run.")],
    result: Annotated[str, typer.Argument(metavar="RESULT", help="Result image, such as a path that search printed.")],
    run: RunOption = None,
    learner: LearnerOption = None,
    learned: LearnedOption = None,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Draw the explanation to this PNG file.")
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", min=1, max=100, help="Number of pairs listed and drawn.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole explanation as JSON.")] = False,
) -> None:
    """Explain a match: what each pair of blocks, or of cells of a network's map, adds to the score.

    All pairs sum to the score that search shows. The picture shows the strongest pairs in both images, and a heat map
    of the score. Default learner: oasis, else the first trained one.

    \b
    Examples:
      visterm explain a.jpg pear/7.jpg --output why.png
      visterm explain id:12 id:40 --learner cosine --json
    """
    from visterm.pipeline.search.explanation import explain_with_pixels
    from visterm.pipeline.search.explanation_picture import draw_explanation

    chosen = one_name(learner)
    if file is not None:
        check_file("--output", file, "picture", ".png")
    searcher, _ = open_searcher(run)
    made = explain_with_pixels(searcher, query, result, chosen, n_pairs=pairs, learned=learned)
    explanation = made.data
    if file is not None:
        draw_explanation(explanation, made.query_pixels, made.result_pixels, file, n_pairs=pairs)
    if as_json:
        print(json.dumps(explanation))
    elif file is not None:
        print(file)
    else:
        for line in _explanation_in_words(explanation):
            print(line)


def _explanation_in_words(explanation: dict) -> list[str]:
    """Return an explanation as lines of a table."""
    names = [one_line(explanation[side]["name"]) for side in ("query", "result")]
    lines = [f"{names[0]} and {names[1]}: {explanation['score']:.4f} by {explanation['learner']}"]
    if explanation["negative"]:
        lines.append(f"raised by {explanation['positive']:.4f}, lowered by {-explanation['negative']:.4f}")
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


def _asked(queries: list[str] | None, labels: list[str] | None) -> list[str]:
    """Return the labels or the query images of a call; refuse a call with both, or with neither."""
    if labels:
        if queries:
            raise UserError(f"give images or --label, not both: {queries[0]}, --label {labels[0]}")
        if "" in labels:
            raise UserError("--label: the label is empty")
        return labels
    if labels is not None and not queries:
        raise UserError("--label needs the name of a label")
    if not queries:
        raise UserError("no query; give an image file, or --label NAME (make: QUERY=image.jpg or LABEL=name)")
    if "" in queries:
        raise UserError("a query is an empty name; give an image file (make: QUERY=image.jpg)")
    return queries


@command
def index(
    run: RunOption = None,
    learner: LearnersOption = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Delete the index and build it from scratch.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Build or update the search index.

    Search does so itself when needed. index.kind selects the index type; exact search has no index. Use --rebuild for
    an index in Milvus that something else changed, or for a damaged file.

    \b
    Examples:
      visterm features --run photos --set index.kind=milvus
      visterm index --run photos
      visterm index --run photos --rebuild --learner all
    """
    searcher, console = open_searcher(run)
    names = several_names(learner) or [searcher.default_learner()]
    indexes = {}
    for name in searcher.learners if "all" in names else names:
        if rebuild:
            searcher.forget_index(name)
        made = searcher.index(name)
        kind = {"ExactIndex": "exact", "TwoStageIndex": "two-stage"}.get(type(made).__name__, "milvus")
        if kind == "exact" and searcher.config.index.kind == "milvus":  # a fallback; a warning has said why
            raise UserError(
                f"the Milvus index of {name} is out of date; re-run this command when no other visterm is writing to "
                f"{searcher.run.folder}"
            )
        indexes[name] = {"kind": kind, "images": made.n_gallery}
    if as_json:
        print(json.dumps({"run": searcher.run.name, "indexes": indexes}))
        return
    for name, made_of in indexes.items():
        kind = "exact search needs no index" if made_of["kind"] == "exact" else f"{made_of['kind']}, up to date"
        console.say(f"{name}: {made_of['images']:,} images; {kind}")
