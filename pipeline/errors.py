"""Errors that the user can fix, and how errors of the system become one line."""

from __future__ import annotations


class UserError(Exception):
    """A mistake that the person at the keyboard can mend: one line, exit code 2."""
