"""Turning an error of a command into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError, explain_system_error

from .options import Globals

USAGE_ERROR: Any = typer.BadParameter.__base__  # of click, which some versions of Typer bundle


def command(function: Callable) -> Callable:
    """Turn an exception into one line on standard error and an exit code."""

    @wraps(function)
    def wrapped(*args, **kwargs):
        again = "re-run the same command"
        if kwargs.get("force") and function.__name__ == "train":  # --force ignores checkpoints
            again += " without --force"
        try:
            return function(*args, **kwargs)
        except typer.Exit:
            raise
        except KeyboardInterrupt as interrupt:
            saved = f"{interrupt}; " if interrupt.args else ""  # what a training says of its checkpoint
            print(f"visterm: interrupted; {saved}{again} to resume", file=sys.stderr)
            raise typer.Exit(143 if isinstance(interrupt, Terminated) else 130) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe
            raise typer.Exit(0) from None
        except Exception as error:
            if Globals.debug:
                raise
            line = str(error) if isinstance(error, UserError) else explain_system_error(error)
            if line is not None:
                print(f"visterm: {one_line(line)}", file=sys.stderr)
                raise typer.Exit(2) from None
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
            print(f"visterm: internal error: {problem}; 'visterm --debug ...' shows where", file=sys.stderr)
            raise typer.Exit(1) from None

    return wrapped


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C."""
