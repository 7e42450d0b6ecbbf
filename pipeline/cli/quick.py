"""What is answered without Typer, which takes longer to import than this takes: help, and commands that only read.

All else, and these with other options, are of `app`, which answers these lines the same.
"""

from __future__ import annotations

import os
import sys
from functools import partial

TYPE_CHECKING = False  # see visterm.pipeline
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

EVERYWHERE = ("--debug", "--quiet", "-q", "--no-progress")  # options that may follow the command
WIDTH = 80  # of a terminal from which on Typer's lines grow no longer
HELP = "help.txt"  # all texts, as tests/help_texts.py writes them


def answer(words: Sequence[str]) -> bool:
    """Answer a command line, and end the process with a command; False where it takes Typer."""
    rest = [word for word in words if word not in EVERYWHERE]
    if rest[-1:] in (["-h"], ["--help"]) or words[:1] == ["help"]:
        names = rest[1:] if words[0] == "help" else rest[:-1]
        if (text := _help_text(names)) is not None:
            print(text, end="")
        return text is not None
    if (call := _plain_call(words)) is None:
        return False
    from .errors import run

    return run(call, ends_process=True)


def _help_text(names: Sequence[str]) -> str | None:
    """The help of a command, or of all; None where Typer would break lines sooner, and where some are not installed."""
    from visterm.pipeline.plugins import COMMANDS

    places = {name: place for group in COMMANDS.values() for name, place in group.items()}
    rooms = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    for name in names[:1] or places:
        module = places.get(name, "").partition(":")[0].replace(".", "/")
        if not os.path.exists(os.path.join(rooms, f"{module}.py")):
            return None
    if _columns() < WIDTH:
        return None
    with open(os.path.join(os.path.dirname(__file__), HELP), encoding="utf-8") as file:
        texts = file.read().split("\f")
    usage = " ".join(["Usage: visterm", *names, "[OPTIONS]"])
    return next((text for text in texts if text.startswith(usage)), None)


def _columns() -> int:
    """Columns of the terminal, as shutil says, whose import takes a twentieth of the time of a help text."""
    try:
        if (columns := int(os.environ["COLUMNS"])) > 0:
            return columns
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or WIDTH  # type: ignore[union-attr]  # of None it is caught
    except (AttributeError, ValueError, OSError):
        return WIDTH


def _plain_call(words: Sequence[str]) -> Callable[[], Any] | None:
    """The call of a command that is followed by no other options than its flags and --run."""
    from visterm.pipeline.plugins import QUICK_COMMANDS, find

    ours = [word for word in words if word in EVERYWHERE]
    rest = [word for word in words if word not in EVERYWHERE]
    name = next((name for n in (2, 1) if (name := " ".join(rest[:n])) in QUICK_COMMANDS), None)
    if name is None:
        return None
    place, flags = QUICK_COMMANDS[name]
    keywords: dict[str, Any] = {"run": os.environ.get("VISTERM_RUN") or None} | dict.fromkeys(flags.values(), False)
    given = iter(rest[len(name.split()) :])
    for word in given:
        if word == "--run" and (run := next(given, None)) is not None:
            keywords["run"] = run
        elif word in flags:
            keywords[flags[word]] = True
        else:
            return None
    from .errors import command
    from .runs import Globals

    if (listed := find(place)) is None:
        return None
    Globals.debug, Globals.quiet = "--debug" in ours, "--quiet" in ours or "-q" in ours
    Globals.progress = False if "--no-progress" in ours else None
    return partial(command(listed), **keywords)
