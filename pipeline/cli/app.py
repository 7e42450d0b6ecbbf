"""The command line. Results go to standard output, words to standard error; 2 is the exit code of a user's mistake."""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from visterm.pipeline.plugins import COMMANDS, find, load_command

from .errors import run
from .quick import EVERYWHERE
from .runs import Globals

_USAGE_ERROR: Any = typer.BadParameter.__base__  # of click, which some versions of Typer bundle
_MOST_SHOWN = 200  # characters of a message
_MARKUP = None  # plain text: the same in a terminal, a pipe and the documentation
_PLACES = {name: place for places in COMMANDS.values() for name, place in places.items()}


class _GroupedHelp(TyperGroup):
    """A help text that lists the commands by group; commands of other packages are found when they are called.

    ``visterm help search`` is ``visterm search --help``, and the options before the command may follow it, too.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for parameter in self.get_params(ctx):
            _read_simply(parameter)
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        end = args.index("--") if "--" in args else len(args)
        ours = [word for word in args[:end] if word in EVERYWHERE]
        return super().parse_args(ctx, ours + [word for word in args[:end] if word not in EVERYWHERE] + args[end:])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            called = find(_PLACES[cmd_name]) if cmd_name in _PLACES else load_command(cmd_name)
            # One of all is suggested in place of a command that there is not.
            self.commands.update(_built(_all_commands() if called is None else {cmd_name: called}))
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _prepare(ctx, command)
        return command

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_all_commands())

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = _built({name: _without_options(command) for name, command in _all_commands().items()})
        width = max(map(len, commands))
        for title, places in COMMANDS.items():
            with formatter.section(title):
                limit = formatter.width - 6 - width
                formatter.write_dl(
                    [
                        (f"{name:{width}}", commands[name].get_short_help_str(limit))
                        for name in places
                        if name in commands
                    ]
                )


def _all_commands() -> dict[str, Callable | typer.Typer]:
    return {name: command for name, place in _PLACES.items() if (command := find(place)) is not None}


def _without_options(command: Any) -> Callable:
    """A command to list: Typer takes 30 ms to build the options of all."""

    def listed() -> None: ...

    callback = getattr(command, "registered_callback", None)  # of a group
    described = command if callback is None else callback.callback
    listed.__doc__ = described.info.help if isinstance(described, typer.Typer) else described.__doc__
    return listed


def _built(commands: Mapping[str, Callable | typer.Typer]) -> dict[str, TyperCommand]:
    group = typer.Typer(rich_markup_mode=_MARKUP)
    group.callback()(lambda: None)
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            group.add_typer(command, name=name)
        else:
            group.command(name)(command)
    return typer.main.get_command(group).commands  # type: ignore[attr-defined]  # a group, though declared a command


def _prepare(ctx: Any, command: Any) -> None:
    """Read simple values at once; in the help text show a word for each value, where Typer shows Python's types."""
    for one in getattr(command, "commands", {}).values():
        _prepare(ctx, one)
    for parameter in command.get_params(ctx):
        _read_simply(parameter)
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: ""
        elif parameter.metavar is None and hasattr(parameter, "display_type") and not parameter.is_flag:
            kind = parameter.display_type(ctx).strip("<>").partition(" ")[0]
            parameter.metavar = {"int": "N", "float": "NUMBER", "path": "FILE", "str": "TEXT"}.get(kind)


def _fits(parameter: Any, number: int) -> bool:
    limits = parameter.type_descriptor.parameter_info
    return (limits.min is None or number >= limits.min) and (limits.max is None or number <= limits.max)


def _read_simply(parameter: Any) -> None:
    """Let an option take simple values as they are: for each option Typer makes a validator of pydantic."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)  # of versions that do
    convert = type(parameter).process_value

    def process(ctx: Any, value: Any) -> Any:
        if value is None and not parameter.required:
            value = () if parameter.multiple or parameter.nargs == -1 else None
        elif kind == list[str] and value and isinstance(value, list | tuple):
            value = list(value)
        elif isinstance(kind, enum.EnumType) and value in list(kind):
            value = kind(value)
        elif kind is int and re.fullmatch("[0-9]{1,9}", str(value)) and _fits(parameter, int(value)):
            value = int(value)
        elif kind not in (str, int, bool) or type(value) is not kind:
            return convert(parameter, ctx, value)
        return value if parameter.callback is None else parameter.callback(ctx, parameter, value)

    parameter.process_value = process


app = typer.Typer(
    name="visterm",
    cls=_GroupedHelp,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success; 1 some images could not be read, the others were done; 2 usage, configuration or "
    "input error; 70 internal error; 130 interrupted; 143 terminated. "
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
    no_progress: Annotated[
        bool,
        typer.Option("--no-progress", help="Print lines instead of progress bars: one per phase, one per half minute."),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Image search that learns what "similar" means from your own images.

    \b
    visterm features photos/     extract vectors from images
    visterm train                learn a similarity from the labels
    visterm evaluate             measure it: report.html
    visterm search a.jpg         find the most similar images
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
    Globals.debug, Globals.quiet = debug, quiet
    Globals.progress = False if no_progress else None


app.callback()(_main)


def main(*, ends_process: bool = False) -> None:
    """Run the command line of ``sys.argv``, as `visterm.pipeline.cli.errors.run` does."""
    run(_called, ends_process=ends_process)


def _called() -> Any:
    try:
        return app(prog_name="visterm", standalone_mode=False)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # the reader has closed the pipe, which is 1 to Typer
            return 0
        raise
    except _USAGE_ERROR as error:  # an option or a command that does not exist, a value that does not fit
        if type(error).__name__ == "NoArgsIsHelpError":  # a group of commands, without one
            print(error.ctx.get_help())
            return 0
        message = " ".join(error.format_message().split()).rstrip(".").replace(": Value error, ", ": ")  # pydantic's
        shown = message if len(message) <= _MOST_SHOWN else f"{message[:_MOST_SHOWN]}..."  # a pattern names many files
        print(f"visterm: {shown}; {_advice(error.ctx, message)}", file=sys.stderr)
        return 2


def _advice(context: Any, message: str) -> str:
    """Return what to do about a usage error."""
    called = [word for word in sys.argv[1:2] if not word.startswith("-")]
    where = context.command_path if context else " ".join(["visterm", *called])
    if context and (extra := re.match(r"Got unexpected extra argument\S* \(([^ )]+)", message)):
        from visterm.pipeline.config.learners import TABLE
        from visterm.pipeline.store.run import run_names

        options = {parameter.name for parameter in context.command.params}
        if "images" in options:
            return "give one folder, which holds all images; 'visterm add' adds others"
        for option, names in (("run", run_names()), ("learner", TABLE)):
            if option in options and extra[1] in names:
                return f"did you mean --{option} {extra[1]}?"
    return f"'{where} --help' lists the options"
