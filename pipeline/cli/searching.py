"""Commands for searching: search, annotate, index."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load
from visterm.pipeline.search.request import FILTERS, IMAGE_ID, OF_IMAGES, OPTIONS, SearchRequest

from .errors import command
from .options import (
    Format,
    FormatOption,
    JsonFormatOption,
    JsonOption,
    LabelOption,
    LearnerOption,
    LearnersOption,
    QueriesArgument,
    RunOption,
    check_file,
    chosen_format,
    one_name,
    open_searcher,
    several_names,
    with_options,
)
from .output import print_rows, report_errors

_LINES = "-"  # in place of a query: standard input


@command
@with_options(*(name for name in OPTIONS if name != "learner"))
def search(
    queries: QueriesArgument = None,
    run: RunOption = None,
    learner: LearnerOption = None,
    query_label: Annotated[
        list[str] | None,
        typer.Option("--query-label", metavar="NAME", help="Search by label instead of image; may be repeated."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="WORDS", help="Search by words: labels that they name, else the text model."),
    ] = None,
    *,
    output: FormatOption = None,
    as_json: JsonFormatOption = False,
    page: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write an HTML page with the images instead of the table."),
    ] = None,
    **options: Any,
) -> None:
    """Find the most similar images, or the best images for a label, or for several labels together.

    IMAGE is a file, a folder (all images in it), id:12 (an image of the run), or a path that search printed. Default
    learner: the one that held-out training images recommend; cosine if none is trained.
    Unreadable images are reported and skipped; the exit code is then 1, or 2 if none could be read. For - each line of
    standard input is a query, answered by a line of JSON before the next one is read.

    \b
    Examples:
      visterm search a.jpg
      visterm search - < names.txt > results.jsonl
      visterm search a.jpg holiday/ id:12 --run photos -k 20 --format csv
      visterm search a.jpg --learned-weight 0.2
      visterm search holiday/ --html results.html
      visterm search --label sunset
      visterm search --label beach --label people
      visterm search --text "beach at sunset"
      visterm search a.jpg --label beach --not-label people --folder 2024
      visterm search a.jpg --after 2024-05 --before 2024-06 --where camera=X100
      visterm search a.jpg -k 100 --min-probability 0.8
      visterm search a.jpg --example b.jpg --example id:12@-0.5 --region 0.2,0.1,0.5,0.6
    """
    form, chosen = chosen_format(output, as_json), one_name(learner)
    if page is not None:
        check_file("--html", page, "page", ".html", ".htm")
    label_option = "--query-label"
    if "label" in options and not queries and query_label is text is None:  # --label alone names the query
        query_label, label_option = options.pop("label"), "--label"
    if text is not None:
        if queries or query_label:
            raise UserError("give --text, --query-label or images, only one of them")
        query_label = [text]
    asked = [text] if text is not None else _asked(queries, query_label, label_option)
    request = SearchRequest.of(**options)
    of_images = next((name for name in OF_IMAGES if getattr(request, name) != getattr(SearchRequest, name)), None)
    if query_label and of_images is not None and not (text is not None and of_images == "learned_weight"):
        by_itself = "a learner ranks images for a label by itself"
        why = by_itself if of_images == "learned_weight" else "give an image, or leave it out"
        raise UserError(f"{_flag(of_images)} is for queries that are images; {why}")
    by_line = asked == [_LINES] and not query_label
    if _LINES in asked and not by_line and not query_label:
        raise UserError(f"search {_LINES} reads queries from standard input: give no others, or ./{_LINES} for a file")
    if by_line and (page is not None or output not in (None, Format.json)):
        raise UserError(f"search {_LINES} prints JSON, a line per query: leave out --html and --format")
    by_id = query_label or by_line or all(map(IMAGE_ID.fullmatch, asked))
    searcher, console = open_searcher(run, reads_images=not by_id or page is not None or not request.of_whole_images)
    if text is None:  # else what answers it chooses
        chosen = chosen or searcher.default_learner(of_labels=bool(query_label and searcher.annotators))
    conditions = {name: options[name] for name in FILTERS if name in options}
    if any(conditions.values()) and not len(searcher.gallery.rows_of(searcher.filter(**conditions))):
        places = f"; folders are relative to {searcher.root}" if "folder" in conditions else ""
        raise UserError(f"no image passes {_options(conditions)}{places}")
    options["learner"] = chosen
    find: Any = searcher.search_label if query_label else searcher.search
    answers: Any = []
    if text is not None:
        answers = searcher.search_text(text, **options)
    elif not by_line:
        answers = find(asked, **options)
    if "k" in options and request.k > len(searcher.images):
        console.warn(
            f"-k {request.k}: the collection has {count(len(searcher.images), 'image')}, all of them are ranked"
        )
    if by_line:
        _answer_lines(lambda query: find([query], **options))
        return
    if page is not None:
        share = 1.0 if query_label or chosen is None else searcher.share(chosen, request.learned_weight)
        by = chosen or "words" if share == 1 else f"{chosen}, {share:.0%} of the learned similarity"
        load("pages of results")(page, searcher, answers, learner=by, of_labels=bool(query_label))
        if output is None and not as_json:
            print(page)
            report_errors(answers)
            return
        console.say(f"pictures in {page}")
    columns = ["query", "rank", "id", "path", "score", "labels", "probability"]
    rows = [
        [answer["query"], *(r[column] for column in columns[1:5]), ";".join(r["labels"]), r.get("probability", "")]
        for answer in answers
        for r in answer["results"]
    ]
    if not print_rows(answers, columns, rows, form):
        _print_tables(answers, "results", "path", with_probability=request.min_probability is not None)
    report_errors(answers)


def _answer_lines(find: Callable[[str], Sequence[Mapping[str, Any]]]) -> None:
    """Answer each line of standard input by lines of JSON, one per image, as they come."""
    if sys.stdin is None:
        raise UserError(f"search {_LINES} reads queries from standard input, which is closed")
    unread: list[Mapping[str, Any]] = []
    answered: list[Mapping[str, Any]] = []  # one of them, or none
    sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]  # names of files are bytes
    for query in (line.rstrip("\r\n") for line in sys.stdin if line.strip()):
        if not IMAGE_ID.fullmatch(query):
            from visterm.features import silence_decoders

            silence_decoders()
        for answer in find(query):
            print(json.dumps(answer), flush=True)
            if "error" in answer:
                unread.append(answer)
            else:
                answered = [answer]
    report_errors([*unread, *answered])


@command
def annotate(
    queries: QueriesArgument = None,
    run: RunOption = None,
    learner: Annotated[
        str | None,
        typer.Option(
            "--learner",
            metavar="NAME",
            help="A learner that ranks labels; knn needs no training (default: the best on held-out images, else knn).",
        ),
    ] = None,
    label: LabelOption = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Labels per query (default: 5).")] = None,
    output: FormatOption = None,
    as_json: JsonFormatOption = False,
) -> None:
    """Rank labels for images, or labels similar to a label.

    IMAGE is a file, a folder, id:12 or a path of the run, as for search. Unreadable images are reported and skipped;
    the exit code is then 1, or 2 if none could be read.

    \b
    Examples:
      visterm annotate a.jpg
      visterm annotate a.jpg b.jpg --learner knn -k 3 --format json
      visterm annotate --label sunset
    """
    from visterm.pipeline.search.label_search import LABELS

    form, chosen = chosen_format(output, as_json), one_name(learner)
    asked = _asked(queries, label, "--label")
    searcher, console = open_searcher(run)
    results = (searcher.similar_labels if label else searcher.annotate)(asked, k or LABELS, chosen)
    most = max(len(answer["labels"]) for answer in results)
    if k is not None and 0 < most < k:
        known = count(most, "other label" if label else "label")
        console.warn(f"-k {k}: the learner ranks {known}, no more")
    rows = [[answer["query"], r["rank"], r["label"], r["score"]] for answer in results for r in answer["labels"]]
    if not print_rows(results, ["query", "rank", "label", "score"], rows, form):
        _print_tables(results, "labels", "label")
    report_errors(results)


def _print_tables(
    results: Sequence[Mapping[str, Any]], ranked: str, name: str, *, with_probability: bool = False
) -> None:
    """Print a table per query, with the name and the labels of each ranked item."""
    for answer in results:
        if "error" not in answer:
            print(one_line(answer["query"]))
            print(f"rank     score  {name}" if answer[ranked] else "no results")
            for r in answer[ranked]:
                labels = f"  [{one_line(', '.join(r['labels']))}]" if r.get("labels") else ""
                fields = ", ".join(f"{field}={value}" for field, value in r.get("fields", {}).items())
                fields = f"  {one_line(fields)}" if fields else ""
                sure = f"  {r['probability']:.0%} likely" if with_probability else ""
                print(f"{r['rank']:4}  {r['score']:8.4f}  {one_line(r[name])}{labels}{sure}{fields}")


def _options(values: Mapping[str, Any]) -> str:
    """Write options as they were given: ``--not-label beach --folder 2024``."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in values.items() if value}
    return " ".join(f"{_flag(name)} {value}" for name, several in lists.items() for value in several)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _asked(queries: list[str] | None, labels: list[str] | None, option: str) -> list[str]:
    """Return the labels or the query images of a call; refuse a call with both, or with neither."""
    if labels:
        if queries:
            raise UserError(f"give images or {option}, not both: {queries[0]}, {option} {labels[0]}")
        if "" in labels:
            raise UserError(f"{option}: the label is empty")
        return labels
    if labels is not None and not queries:
        raise UserError(f"{option} needs the name of a label")
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
