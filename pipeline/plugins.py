"""Additions to the main job, found by name: commands, kinds of indexes, workers, files of people's work.

They are in rooms above it, which no module of the main job imports; without such a room its additions are missing, and
the main job works. Other packages add commands by entry points of the group ``visterm.commands``: functions, or Typer
applications.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from .errors import UserError

# By the groups of the help and by name: functions or Typer applications, imported when they are called.
COMMANDS = {
    "Start": {
        "demo": "plugins.demo.commands:demo",
        "try": "plugins.choosing.commands:try_",
        "features": "pipeline.cli.collection:features",
        "train": "pipeline.cli.learning:train",
        "evaluate": "pipeline.cli.learning:evaluate",
    },
    "Search": {
        "search": "pipeline.cli.searching:search",
        "annotate": "pipeline.cli.searching:annotate",
        "explain": "plugins.explanation.commands:explain",
        "serve": "service.commands:serve",
    },
    "Improve": {
        "tune": "plugins.choosing.commands:tune",
        "label": "teaching.commands_labels:commands",
        "doctor": "teaching.commands_doctor:doctor",
        "feedback": "teaching.commands_feedback:commands",
        "forget": "teaching.commands_feedback:forget",
    },
    "Keep": {
        "add": "pipeline.cli.collection:add",
        "remove": "pipeline.cli.collection:remove",
        "export": "plugins.export.commands:export",
        "duplicates": "teaching.commands_duplicates:duplicates",
        "info": "plugins.repair.commands:info",
    },
    "Rarely": {
        "repair": "plugins.repair.commands:repair",
        "compact": "pipeline.cli.collection:compact",
        "index": "pipeline.cli.searching:index",
        "model": "plugins.vectors.commands:commands",
        "judge": "plugins.judge.commands:commands",
    },
}
# Commands that are called without Typer where only these flags and --run follow them: the keywords of the flags.
QUICK_COMMANDS = {
    "label list": ("teaching.label_counts:list_counts", {"--json": "as_json"}),
    "info": ("plugins.repair.info:show_info", {"--json": "as_json", "--skipped": "skipped"}),
}
ADDITIONS = {
    "Dask": "plugins.dask.dask_cluster:connected",
    "Milvus": "plugins.milvus.milvus_index",
    "copies": "teaching.copies:find_copies",
    "dates": "plugins.dates.dates:read_dates",
    "examples": "plugins.examples.examples",
    "is-a tables": "plugins.figures.is_a",
    "keywords": "plugins.keywords.reading:read_keywords",
    "marks": "teaching.marks:triplets_of_marks",
    "pages of results": "plugins.page.results_page:write_results_page",
    "repair": "plugins.repair.repair",
    "retraining": "teaching.retrain",
    "a text model": "plugins.vectors.text_model:keep_text_model",
    "run files": "plugins.figures.run_files:write_run_files",
    "sidecars": "plugins.keywords.writing:write_sidecars",
    "tuning": "plugins.choosing.commands:tuned",
    "the open protocol": "plugins.figures.open_world",
    "the service": "service.commands:start_service",
    "teachers": "teaching.teachers",
    "vectors of kind deep": "plugins.vectors.network_vectors:_DeepVectors",
    "vectors of kind onnx": "plugins.vectors.network_vectors:_ModelVectors",
    "vectors of kind table": "plugins.vectors.imported_vectors:_PrecomputedVectors",
}
# Of the service's API, besides its own.
SUBJECTS = ("plugins.explanation.routes:ExplanationSubject", "plugins.judge.routes:JudgeSubject")
# What people made: the class of the file, and its name in `Run`.
STORES = {
    "relevance marks": ("teaching.marks:RelevanceMarks", "marks"),
    "ratings": ("plugins.judge.judgements:Judgements", "judgements"),
    "label edits": ("pipeline.store.label_edits:LabelEdits", "label_edits"),
    "pictures said to be different": ("teaching.different:DifferentPictures", "different"),
}


def load(name: str) -> Any:
    """Load an addition by its name in `ADDITIONS`; UserError where its room is not installed."""
    addition = find(ADDITIONS[name])
    if addition is None:
        room = ADDITIONS[name].rpartition(".")[0]
        raise UserError(f"this installation has no visterm.{room}, which {name} needs; install visterm again")
    return addition


def load_command(name: str) -> Any:
    """Load a command of another package, or None."""
    from importlib.metadata import entry_points

    entries = entry_points(group="visterm.commands", name=name)
    return next((entry.load() for entry in entries), None)


def find(place: str) -> Any:
    """Import what is at a place below visterm, ``module:name``; None where its room is not installed."""
    try:
        return resolve_name(f"visterm.{place}" if ":" in place else f"visterm.{place}:")
    except ModuleNotFoundError as error:
        module = f"visterm.{place}".partition(":")[0]
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        return None
