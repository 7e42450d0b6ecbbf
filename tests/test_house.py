"""Figures of the code that may fall and may not rise, such as shapeless answers and lines of the main job.

Who takes something out lowers a limit here; who adds a feature takes out what it replaces.
"""

import ast
import re
from collections import defaultdict

import pytest
from test_directions import ROOMS, imports, modules

LIMITS = {
    "class names that modules share": 0,
    "functions that return dict[str, Any]": 19,
    "functions that return an alias of it": 40,  # records, settings, descriptions
    "functions with more than 8 parameters": 11,
    "calls of read_record": 10,
}
MOST_PARAMETERS = 8  # `self` and `cls` aside
MOST_LINES = {"the main job": 26_000, "the four rooms": 35_000}  # that it imports, and that stand in its rooms
# The stages and the search, and the learner that they find by its name.
MAIN_JOB = ("visterm.pipeline.stages.pipeline", "visterm.pipeline.search.searcher", "visterm.learners.oasis")
SUFFIXES = (".py", ".js", ".css", ".html", ".jinja")


def nodes(files, *kinds):
    """Yield the nodes of a kind, each with its module."""
    for module, file in sorted(files.items()):
        yield from ((module, node) for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds))


def functions(files):
    """Yield the functions and methods, each with its module."""
    return nodes(files, ast.FunctionDef, ast.AsyncFunctionDef)


def shared_names(files):
    """List the class names that two modules define."""
    places = defaultdict(set)
    for module, node in nodes(files, ast.ClassDef):
        places[node.name].add(module)
    return [f"{name}: {', '.join(sorted(shared))}" for name, shared in places.items() if len(shared) > 1]


def shapeless(files):
    """List the functions whose answer has no shape but dict[str, Any]."""
    returns = ((module, node, node.returns and ast.unparse(node.returns)) for module, node in functions(files))
    return [f"{module}.{node.name}" for module, node, answer in returns if answer == "dict[str, Any]"]


def aliased(files):
    """List the functions whose answer is an alias of dict[str, Any], as `Record` is."""
    defined = ((node.targets[0], ast.unparse(node.value)) for _, node in nodes(files, ast.Assign))
    aliases = {ast.unparse(target) for target, value in defined if value == "dict[str, Any]"}
    returns = ((module, node, node.returns and ast.unparse(node.returns)) for module, node in functions(files))
    return [f"{module}.{node.name}" for module, node, answer in returns if answer in aliases]


def many_parameters(files):
    """List the functions with too many parameters; constructors of estimators may have as many as they need."""
    estimators = ("visterm.features.", "visterm.learners.", "visterm.plugins.forest.", "visterm.plugins.vectors.")
    long = []
    for module, node in functions(files):
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        constructor = node.name == "__init__" and module.startswith(estimators)
        if len(names) - (names[:1] in (["self"], ["cls"])) > MOST_PARAMETERS and not constructor:
            long.append(f"{module}.{node.name}: {len(names)}")
    return long


def record_reads(files):
    """List the calls of read_record, those in its own module aside."""
    calls = ((module, node, ast.unparse(node.func)) for module, node in nodes(files, ast.Call))
    return [
        f"{module}:{node.lineno}"
        for module, node, name in calls
        if name.rpartition(".")[2] == "read_record" and module != "visterm.pipeline.store.records"
    ]


MEASURES = dict(zip(LIMITS, (shared_names, shapeless, aliased, many_parameters, record_reads), strict=True))


def reached(files, starts):
    """Return the modules that these import, however far, with the packages that they lie in."""
    seen, waiting = set(), [module for module in starts if module in files]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            names = module.split(".")
            waiting += [name for i in range(2, len(names)) if (name := ".".join(names[:i])) in files]
            waiting += [imported for _, imported in imports(module, files[module], files, running=True)]
    return seen


def lines(root, room):
    """Count the lines of a room, or of what the main job imports."""
    files = modules(root)
    if room == "the main job":
        paths = [files[module] for module in reached(files, MAIN_JOB)]
    else:
        kept = [path for path in (root / room).rglob("*") if path.suffix in SUFFIXES and path.is_file()]
        paths = [path for path in kept if "tests" not in path.relative_to(root).parts]
    return sum(path.read_text().count("\n") for path in paths)


@pytest.mark.parametrize("name", LIMITS)
def test_a_figure_does_not_rise(repository, name):
    files = modules(repository)
    assert len(files) > 150, "a walk that finds nothing proves nothing"
    places = MEASURES[name](files)
    assert len(places) <= LIMITS[name], "\n".join(places)


def test_the_main_job_stays_within_its_lines(repository):
    for room in ROOMS:
        print(f"{room}: {lines(repository, room):,} lines")
    four = sum(lines(repository, room) for room in ("features", "learners", "retrieval", "pipeline"))
    for name, counted in (("the main job", lines(repository, "the main job")), ("the four rooms", four)):
        print(f"{name}: {counted:,} lines")
        assert 20_000 < counted <= MOST_LINES[name]


def plant(root, texts):
    for name, text in texts.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


PARAMETERS = ", ".join("abcdefghi")
PLANTED = {
    "class names that modules share": "class Planted:\n    pass\n",
    "functions that return dict[str, Any]": "class A:\n    async def f(self) -> dict[str, Any]:\n        ...\n",
    "functions that return an alias of it": "Shape = dict[str, Any]\n\ndef f() -> Shape:\n    ...\n",
    "functions with more than 8 parameters": f"def f({PARAMETERS}):\n    ...\n",
    "calls of read_record": "def f():\n    return records.read_record(folder)\n",
}


def test_commands_in_messages_name_the_run_as_a_shell_reads_it(repository):
    """A run is named by its folder of images, such as "my photos"."""
    files = sorted(modules(repository).items())
    bare = [module for module, file in files if re.search(r"--run \{[\w.]+\}", file.read_text())]
    assert bare == []


@pytest.mark.parametrize("name", LIMITS)
def test_a_planted_place_is_seen(tmp_path, name):
    allowed = (
        "class Other:\n    def __init__(self, {}):\n        ...\n    def f(self, {}) -> dict[str, int]:\n        ...\n"
    )
    plant(tmp_path, {"learners/planted.py": allowed.format(PARAMETERS, PARAMETERS[:-3]), "pipeline/store/x.py": ""})
    assert not MEASURES[name](modules(tmp_path))
    plant(
        tmp_path,
        {"service/planted.py": PLANTED[name], "teaching/planted.py": PLANTED["class names that modules share"]},
    )
    (place,) = MEASURES[name](modules(tmp_path))
    assert "visterm.service.planted" in place


def test_lines_of_the_main_job_are_those_that_run(tmp_path):
    texts = {
        "pipeline/stages/pipeline.py": "def f():\n    from visterm.retrieval.kinds.exact import x\n",
        "pipeline/search/searcher.py": "if TYPE_CHECKING:\n    from visterm.teaching.marks import x\n",
        "retrieval/__init__.py": "\n\n\n",
        "retrieval/kinds/exact.py": "x = 1\n",
        "retrieval/kinds/other.py": "x = 1\n",
        "retrieval/kinds/tests/test_exact.py": "x = 1\n",
        "teaching/marks.py": "x = 1\n",
    }
    plant(tmp_path, texts)
    assert lines(tmp_path, "the main job") == 2 + 2 + 3 + 1
    assert lines(tmp_path, "retrieval") == 3 + 1 + 1
