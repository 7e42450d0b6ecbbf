"""Every learner where only trained classes count: ``python -m experiments.studies choosing [SET, KIND, LEARNER ...]``.

Each set of $VISTERM_DATA is a run of the pipeline, with visterms and with deep vectors: `visterm features`, `train` and
`evaluate` with the papers' protocol, and no other setting touched; the study open has the defaults. A learner must be
above cosine on images that it has not seen, or be refused with the reason. Writes choosing.json, and the tables of
docs/comparison.md. Arguments name some sets, vectors or learners, such as `flowers`, `deep` or `oasis`; the other sets
keep the figures of the file.
"""

import json
import os
from pathlib import Path
from typing import Any

from benchmarks.page import DOCS, replace, table
from benchmarks.photos import extracted
from benchmarks.vectors import CACHE
from visterm.pipeline.config.loading import with_settings
from visterm.pipeline.console import Console
from visterm.pipeline.stages.evaluate import evaluate
from visterm.pipeline.stages.fitting import LearnerRefused
from visterm.pipeline.stages.train import train
from visterm.pipeline.store.models import TRAINED
from visterm.pipeline.store.records import read_metrics

FILE = Path(__file__).with_name("choosing.json")
SETS = ("caltech101", "flowers", "corel5k")
KINDS = ("visterms", "deep")
CLOSED = {
    **{"train.world": "seen", "train.learned_weight": 1.0, "aroma.init": "zero"},
    **{f"{learner}.whiten": False for learner in ("oasis", "aroma", "wsabie")},
}
COLUMNS = ("", "mAP", "times cosine", "P@1", "held-out mAP", "F1 of labels", "training, s")
WITHOUT_SIMILARITY = ("knn",)  # its similarity is cosine; it is there for labels


def measure(name: str, kind: str, learners: tuple[str, ...] = tuple(TRAINED)) -> dict[str, Any]:
    """Figures of every learner: of the evaluation, of its record, or why it was refused."""
    console = Console(quiet=True)
    run, config = extracted(name, kind)
    config = with_settings(config, CLOSED)
    trained, refused = {}, {}
    for learner in learners:
        try:
            trained[learner] = train(run, config, learner, console)
        except LearnerRefused as error:
            refused[learner] = str(error)
        print(name, kind, learner, trained.get(learner) or refused[learner], flush=True)
    metrics = read_metrics(evaluate(run, config, list(trained), console))
    systems = {learner: figures for learner, figures in metrics["systems"].items()}
    for learner, figures in trained.items():
        systems[learner] |= {key: figures.get(key) for key in ("validation", "validation_map", "cosine_map")}
    return {"systems": systems, "refused": refused, "recommended": metrics["recommended"]}


def rows(result: dict[str, Any]) -> list[list[str]]:
    """Table rows of one set and one kind of vectors."""
    cosine = result["systems"]["cosine"]
    table = []
    for learner in (*TRAINED, "cosine"):
        if learner in result["refused"]:
            table.append([learner, "refused", "", "", "", "", ""])
            continue
        if learner not in result["systems"]:
            table.append([learner, "not measured", "", "", "", "", ""])
            continue
        figures = result["systems"][learner]
        held_out = figures.get("validation_map")
        per_label = figures.get("annotation", {}).get("per_label")
        seconds = figures.get("train_seconds")
        mark = " *" if learner == result["recommended"]["learner"] else ""
        table.append(
            [
                learner + mark,
                f"{figures['map']:.3f}",
                f"{figures['map'] / cosine['map']:.2f}",
                f"{figures['precision_at']['1']:.3f}",
                "" if held_out is None else f"{held_out:.3f}",
                "" if per_label is None else f"{per_label['f1']:.3f}",
                "" if not seconds else f"{seconds:.0f}",
            ]
        )
    return table


def write_page(results: dict[str, Any]) -> None:
    """Replace the tables between the marks of docs/comparison.md."""
    parts = []
    for name in SETS:
        for kind in KINDS:
            if f"{name}-{kind}" not in results:
                continue
            one = results[f"{name}-{kind}"]
            parts += [f"**{name}, {kind}**\n", table(COLUMNS, rows(one))]
            parts += [f"Refused: {reason}.\n" for reason in one["refused"].values()]
    replace(DOCS / "comparison.md", "choosing", "\n".join(parts).strip("\n"))


def say_whether_it_holds(results: dict[str, Any]) -> None:
    """Print what must be true of the figures, and is not."""
    for name, one in results.items():
        maps = {k: v["map"] for k, v in one["systems"].items() if k not in ("chance", *WITHOUT_SIMILARITY)}
        low = [learner for learner in maps if learner != "cosine" and maps[learner] <= maps["cosine"]]
        share = maps[one["recommended"]["learner"]] / max(maps.values())
        print(f"{name}: not above cosine: {', '.join(low) or 'none'}; recommended {share:.3f} of the best")


def main(arguments: list[str]) -> None:
    os.environ.setdefault("VISTERM_RUNS", str(CACHE / "choosing"))
    if unknown := set(arguments) - {*SETS, *KINDS, *TRAINED}:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; give some of {', '.join((*SETS, *KINDS, *TRAINED))}")
    learners = tuple(name for name in TRAINED if name in arguments) or tuple(TRAINED)
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in [name for name in SETS if name in arguments] or SETS:
        for kind in [kind for kind in KINDS if kind in arguments] or KINDS:
            results[f"{name}-{kind}"] = measure(name, kind, learners)
            FILE.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    write_page(results)
    say_whether_it_holds(results)
