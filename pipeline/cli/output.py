"""Rows, warnings and notes as commands print them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from visterm.pipeline.console import Console, csv_text, one_line

from .options import Format

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config
    from visterm.pipeline.store.run import Run


def say_kept(place: Run, configuration: Config, settings: list[str] | None, console: Console) -> None:
    """Report the single settings that the run keeps for later commands."""
    from visterm.pipeline.console import without_password

    if settings and place.configure(None, []) == configuration:
        last = {setting.partition("=")[0]: without_password(setting) for setting in settings}
        console.say(f"kept for later commands in {place.folder / 'config.yaml'}: {', '.join(last.values())}")


def print_rows(results: Sequence[Mapping[str, Any]], columns: list[str], rows: list[list], output: Format) -> bool:
    """Print results as JSON or CSV and return True, or return False for a table."""
    if output is Format.json:
        print(json.dumps(results, indent=1))
    elif output is Format.csv:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # mypy does not know the kind of stream
        print(csv_text(columns, rows), end="")
    return output is not Format.table


def report_errors(results: Sequence[Mapping[str, Any]]) -> None:
    """Report queries that could not be read, and exit if there are any: with code 1 if others were answered, else 2."""
    errors = [answer for answer in results if "error" in answer]
    for answer in errors:
        advice = "" if ";" in answer["error"] else "; give another image, a folder of images, or id:N"
        print(f"visterm: {one_line(answer['query'])}: {one_line(answer['error'])}{advice}", file=sys.stderr)
    if errors:
        raise typer.Exit(1 if len(errors) < len(results) else 2)
