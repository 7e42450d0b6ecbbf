"""The command line. Results go to standard output, words to standard error; 2 is the exit code of a user's mistake."""

from __future__ import annotations

import enum
import gc
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from visterm.pipeline.plugins import COMMANDS, load_all, load_command

from .errors import USAGE_ERROR, signals
from .options import Globals

_EVERYWHERE = ("--debug", "--quiet", "-q", "--no-progress")  # options that may follow the command
GROUPS: dict[str, list[Any]] = {title: list(load_all(places)) for title, places in COMMANDS.items()}


def _name_of(command: Any) -> str:
    name = command.info.name if isinstance(command, typer.Typer) else command.__name__
    return str(name).rstrip("_")  # try is a keyword


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
        ours = [word for word in args[:end] if word in _EVERYWHERE]
        return super().parse_args(ctx, ours + [word for word in args[:end] if word not in _EVERYWHERE] + args[end:])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and (addition := load_command(cmd_name)) is not None:
            _add(addition, cmd_name)
            # app is a group, though Typer declares a command.
            self.commands[cmd_name] = typer.main.get_command(app).commands[cmd_name]  # type: ignore[attr-defined]
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _prepare(ctx, command)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, commands in GROUPS.items():
            names = [_name_of(command) for command in commands]
            with formatter.section(title):
                limit = formatter.width - 6 - width
                formatter.write_dl(
                    [(f"{name:{width}}", self.commands[name].get_short_help_str(limit)) for name in names]
                )


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
    rich_markup_mode=None,  # plain text: the same in a terminal, a pipe and the documentation
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


def _add(command: Any, name: str) -> None:
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


for _commands in GROUPS.values():
    for _command in _commands:
        _add(_command, _name_of(_command))
app.callback()(_main)


def _leave_out_others(arguments: Sequence[str]) -> None:
    """Keep the command that is called, where there is such a one: Typer takes 30 ms to build all of them."""
    called = next((word for word in arguments if not word.startswith("-") or word in ("-h", "--help")), None)
    commands = [command for command in app.registered_commands if command.name == called]
    groups = [group for group in app.registered_groups if group.name == called]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups


def main(*, ends_process: bool = False) -> None:
    """Run the command line of ``sys.argv``; raise SystemExit with the exit code.

    The handlers of SIGINT and SIGTERM are given back, unless the process ends with the command: then it ignores signals
    that come after the work is done.
    """
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a label that a terminal of cp1252 cannot show
    if ends_process:
        _leave_out_others(sys.argv[1:])
    with signals.taken_over(ends_process=ends_process):
        try:
            code = app(prog_name="visterm", standalone_mode=False)
        except USAGE_ERROR as error:  # an option or a command that does not exist, a value that does not fit
            if type(error).__name__ == "NoArgsIsHelpError":  # a group of commands, without one
                print(error.ctx.get_help())
                sys.exit(0)
            message = " ".join(error.format_message().split())
            called = [word for word in sys.argv[1:2] if not word.startswith("-")]
            where = error.ctx.command_path if error.ctx else " ".join(["visterm", *called])
            print(f"visterm: {message.rstrip('.')}; '{where} --help' lists the options", file=sys.stderr)
            code = 2
        if ends_process:
            gc.freeze()  # or the interpreter looks for garbage among all that was imported, half a second at the end
    sys.exit(code)
