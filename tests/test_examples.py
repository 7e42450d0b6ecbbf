"""The notebooks in examples/: they are stored without outputs, and their cells run, one after the other."""

import json
import os
import shutil
import subprocess
import sys

import pytest

# As a notebook's kernel does, without its packages: a line with "!" is a command, here of visterm alone, which runs in
# the same process, and the last expression is shown. One process imports everything once.
RUNNER = """
import ast, json, shlex, sys
from visterm.pipeline.cli.app import app

def command(line):
    program, *arguments = shlex.split(line)
    assert program == "visterm", line
    assert not app(arguments, prog_name="visterm", standalone_mode=False), line

def run(notebook):
    namespace = {"command": command}
    for number, cell in enumerate(json.load(open(notebook))["cells"]):
        if cell["cell_type"] == "code":
            place = f"{notebook}, cell {number}"
            lines = [
                f"command(f{line[1:]!r})" if line.startswith("!") else line
                for line in "".join(cell["source"]).splitlines()
            ]
            tree = ast.parse("\\n".join(lines), place)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, place, "exec"), namespace)
            if last is not None:
                shown = eval(compile(ast.Expression(last.value), place, "eval"), namespace)
                if hasattr(shown, "_repr_html_"):
                    assert "<img" in shown._repr_html_()

for notebook in sys.argv[1:]:
    run(notebook)
"""


def test_outputs_are_stripped(repository):
    notebooks = sorted((repository / "examples").glob("*.ipynb"))
    assert len(notebooks) == 4
    for notebook in notebooks:
        for cell in json.loads(notebook.read_text())["cells"]:
            assert not cell.get("outputs"), notebook.name
            assert cell.get("execution_count") is None, notebook.name


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_notebooks_run(repository, tmp_path):
    """In one folder, so that the demo is made once at most: CI has made it before, and it is copied."""
    made = repository / "runs/demo"
    if made.exists() and os.environ.get("VISTERM_CI") == "1":
        shutil.copytree(made, tmp_path / "elsewhere/demo")
    environment = os.environ | {"MPLBACKEND": "Agg", "VISTERM_RUN": "", "VISTERM_RUNS": "elsewhere"}
    command = [sys.executable, "-c", RUNNER, *map(str, sorted((repository / "examples").glob("*.ipynb")))]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-1000:]}{done.stderr[-3000:]}"
