"""Default values of the constructors that sections of the configuration stand for.

They are read from the source of the class: importing the learners takes seconds (scikit-learn, Numba), and every
command reads the configuration. A test compares what is read here with the classes themselves.
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any


def constructor_defaults(room: str, file: str, name: str) -> dict[str, Any]:
    """Return the keyword defaults of ``visterm.<room>.<file>.<name>``, except those that are named constants."""
    spec = importlib.util.find_spec(f"visterm.{room}")
    assert spec is not None
    assert spec.origin is not None
    source = (Path(spec.origin).parent / f"{file}.py").read_text(encoding="utf-8")
    start = source.index("    def __init__(", source.index(f"\nclass {name}("))
    signature = source[start : source.index(":\n", source.index(")", start))].strip()
    head = ast.parse(f"{signature}: ...").body[0]
    assert isinstance(head, ast.FunctionDef)
    arguments = head.args
    positional = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    pairs = [
        *zip(positional, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    values = {}
    for argument, default in pairs:
        if isinstance(default, ast.BinOp):  # 1 / 255
            values[argument.arg] = ast.literal_eval(default.left) / ast.literal_eval(default.right)
        elif default is not None and not isinstance(default, ast.Name):
            values[argument.arg] = ast.literal_eval(default)
    return values
