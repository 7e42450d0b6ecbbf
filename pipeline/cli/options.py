"""Options that several commands share."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.pipeline.config.learners import TABLE
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.search.request import OPTIONS, SearchRequest

from .runs import make_console as make_console
from .runs import open_run as open_run
from .runs import open_searcher as open_searcher
from .runs import run_named as run_named

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config
    from visterm.pipeline.store.run import Run


class Format(enum.StrEnum):
    """Output formats of results."""

    table = "table"
    json = "json"
    csv = "csv"


class World(enum.StrEnum):
    """Classes that a similarity is for."""

    open = "open"
    seen = "seen"
    unseen = "unseen"


FOR_WORDS = {
    "open": "for images of any class",
    "seen": "for classes that were trained on",
    "unseen": "for other classes",
}


def _runs(incomplete: str) -> list[str]:
    """Complete the name of a run."""
    from visterm.pipeline.store.run import run_names

    return [name for name in run_names() if name.startswith(incomplete)]


def _learners(incomplete: str) -> list[str]:
    """Complete the name of a learner, also the last of several."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in (*TABLE, "cosine") if name.startswith(last)]


RunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="NAME",
        envvar="VISTERM_RUN",
        help="Run name: a folder in runs/ (default: the last one used).",
        autocompletion=_runs,
    ),
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="Configuration file (YAML).")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one setting; may be repeated.")
]
BudgetOption = Annotated[str, typer.Option("--budget", metavar="TIME", help="Time for tuning, such as 90s, 5m or 1h.")]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="Run on a Dask cluster (tcp://host:8786), or none for this machine."
    ),
]
LearnerOption = Annotated[
    str | None,
    typer.Option(
        "--learner", metavar="NAME", help=f"{', '.join(TABLE)}, or cosine (untrained).", autocompletion=_learners
    ),
]


def _typer_option(name: str) -> Any:
    """Describe a field of `SearchRequest` as an option of a command."""
    option, default = OPTIONS[name], getattr(SearchRequest, name)
    text = option.command or option.help + "; may be repeated" * option.several
    text += f" (default: {default})" if option.kind in (int, float) and default is not None else ""
    flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
    return typer.Option(flag, metavar=option.metavar, min=option.least, max=option.most, help=f"{text}.")


LearnedWeightOption = Annotated[float | None, _typer_option("learned_weight")]
ForOption = Annotated[
    World | None,
    typer.Option(
        "--for",
        help="What the similarity is for: any classes (open, the default), those trained on (seen), others (unseen).",
    ),
]
LearnersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--learner",
        metavar="NAME",
        help=f"{', '.join(TABLE)}, or cosine (untrained); several: a,b; all: every trained learner.",
        autocompletion=_learners,
    ),
]
QueriesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="IMAGE", help="Query images: files, folders, or id:N for an image in the run."),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME", help="Search by label instead of image; may be repeated.")
]
FormatOption = Annotated[Format | None, typer.Option("--format", help="Output format (default: table).")]
JsonFormatOption = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Rebuild even if up to date.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")]
HostOption = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; a public one needs --token.")
]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 picks a free one.")]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", envvar="VISTERM_TOKEN", help="Access token required on every request."),
]


def with_options(*names: str) -> Callable[[Callable], Callable]:
    """Give a command options of `SearchRequest`, before its keyword-only ones; it takes those used as keywords."""

    def decorate(function: Callable) -> Callable:
        signature = inspect.signature(function, eval_str=True)
        *parameters, _ = signature.parameters.values()  # the last one takes the keywords
        place = sum(parameter.kind is not inspect.Parameter.KEYWORD_ONLY for parameter in parameters)
        parameters[place:place] = map(_parameter, names)

        @wraps(function)
        def wrapped(**keywords: Any) -> Any:
            unused = {name for name in names if keywords[name] is None or keywords[name] is False}
            return function(**{name: value for name, value in keywords.items() if name not in unused})

        # Typer reads the signature that inspect does, of which the types of functions know nothing.
        wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return wrapped

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    """Make the parameter of a command for a field of `SearchRequest`."""
    option = OPTIONS[name]
    kind: Any = list[str] if option.several else option.kind
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if kind is bool else None,
        annotation=Annotated[kind if kind is bool else kind | None, _typer_option(name)],
    )


def with_flags(settings: list[str] | None, flags: Mapping[str, str | None]) -> list[str]:
    """The settings, and those that flags stand for, None without the flag; UserError where both differ on a key."""
    given = {flag: setting for flag, setting in flags.items() if setting is not None}
    if settings and given:
        from visterm.pipeline.config.loading import check_flags

        check_flags(given, settings)
    return [*(settings or []), *given.values()]


def with_scheduler(settings: list[str] | None, scheduler: str | None) -> list[str]:
    """The settings, and the one that --scheduler stands for."""
    setting = f"cluster.scheduler={'null' if scheduler == 'none' else scheduler}"
    return with_flags(settings, {f"--scheduler {scheduler}": None if scheduler is None else setting})


def with_world(settings: list[str] | None, world: World | None) -> list[str]:
    """The settings, and the one that --for stands for."""
    return with_flags(settings, {f"--for {world}": None if world is None else f"train.world={world}"})


def several_names(named: list[str] | None) -> list[str]:
    """Learners that were named: each by its own option, or some with commas or blanks between them."""
    names = [name for text in named or [] for name in text.replace(",", " ").split()]
    if named and not names:
        raise UserError("--learner: the name of a learner is missing")
    return list(dict.fromkeys(names))


def one_name(named: str | None) -> str | None:
    """The learner that was named, where there can be just one."""
    names = several_names(None if named is None else [named])
    if len(names) > 1:
        raise UserError(f"--learner {named!r}: only one learner can answer, such as --learner {names[0]}")
    return names[0] if names else None


def recommended_learner(place: Run, configuration: Config, console: Console) -> str:
    """Return the trained learner that held-out images recommend, "oasis" without one: using it says how to train it."""
    from visterm.pipeline.store.models import TRAINED
    from visterm.pipeline.store.recommendation import default_learner

    if not (trained := [name for name in TRAINED if name in place.learners()]):
        return "oasis"
    return default_learner(place, trained, console.say, configuration.train.world, cosine=False)


def check_file(option: str, file: Path, what: str, *endings: str) -> None:
    """Refuse an output file that cannot be written, before any work is done."""
    if endings and file.suffix.lower() not in endings:
        raise UserError(f"{option} {file}: a {what} needs a name that ends in {endings[0]}")
    if not file.absolute().parent.is_dir():
        raise UserError(f"{option} {file}: no such folder: {file.parent}")
    if file.is_dir():
        raise UserError(f"{option} {file}: this is a folder; name a file")


def chosen_format(output: Format | None, as_json: bool) -> Format:
    """Return the format that --format or --json names."""
    if as_json and output not in (None, Format.json):
        raise UserError(f"--json and --format {output}: give only one of them")
    return Format.json if as_json else output or Format.table


UpdatedLearnerOption = Annotated[str, typer.Option("--learner", metavar="NAME", help="oasis or aroma.")]


_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def seconds_of(text: str, option: str = "--budget") -> float:
    """Read a time such as 90s, 5m or 1h."""
    read = re.fullmatch(r"(\d+(?:\.\d+)?) *(s|m|min|h|)", text.strip())
    seconds = float(read[1]) * _SECONDS[read[2]] if read else 0
    if not seconds:
        raise UserError(f"{option} {text}: expected a time such as 90s, 5m or 1h")
    return seconds
