"""The command line. Results go to standard output, words to standard error; 2 is the exit code of a user's mistake."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from . import collection, feedback, human_eval, learning, searching, serving
from .errors import USAGE_ERROR, Terminated
from .options import Globals

app = typer.Typer(
    name="visterm",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: the same in a terminal, a pipe and the documentation
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 2 a mistake in the call, the configuration or the input; 130 interrupted; 143 ended. "
    "Start with: visterm demo",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"visterm {version('visterm')}")
        raise typer.Exit


def _main(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Warnings and errors only.")] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No bars, one line a phase.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Image search that learns what "similar" means from your own images.

    \b
    visterm features photos/     pixels to visterm counts
    visterm train                learn a similarity from the labels
    visterm evaluate             figures, curves and report.html
    visterm search a.jpg         the most similar images
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
    Globals.debug, Globals.quiet = debug, quiet
    Globals.progress = False if no_progress else None


def _register() -> None:
    """Name every command, in the order in which the help lists them."""
    app.callback()(_main)
    for commands in (
        (collection.features, collection.add, collection.remove, collection.compact, collection.info),
        (learning.train, learning.evaluate, learning.demo),
        (searching.search, searching.annotate, searching.explain, searching.index),
        (serving.serve,),
    ):
        for function in commands:
            app.command()(function)
    app.add_typer(feedback.commands, name="feedback")
    app.add_typer(human_eval.commands, name="judge")


_register()


def main() -> None:
    """Entry point of the command ``visterm``."""

    def terminate(number, frame):
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        code = app(standalone_mode=False)
    except USAGE_ERROR as error:  # an option or a command that does not exist, a value that does not fit
        message = " ".join(error.format_message().split())
        where = error.ctx.command_path if error.ctx else "visterm"
        print(f"visterm: {message.rstrip('.')}; '{where} --help' lists the options", file=sys.stderr)
        code = 2
    sys.exit(code)
