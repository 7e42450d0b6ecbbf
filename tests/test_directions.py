"""Which room of the pipeline may import which, and no circle between files of visterm or scripts of the page."""

import ast
import re
from graphlib import CycleError, TopologicalSorter

import pytest

from visterm.learners import LEARNERS

LIBRARIES = {"features", "learners", "retrieval"}
ROOMS = (*sorted(LIBRARIES), "pipeline", "teaching", "service", "plugins")
# A room imports the rooms of the lines above its own, nothing of its own line or below.
FLOORS = [LIBRARIES, {"pipeline"}, {"teaching"}, {"service"}, {"plugins"}]
FLOOR = {room: i for i, rooms in enumerate(FLOORS) for room in rooms}
# The same inside the pipeline.
LEVELS = [
    {"errors", "console"},
    {"report", "plugins"},
    {"config"},
    {"store"},
    {"evaluation", "workers"},
    {"stages", "search"},
    {"cli"},
]
USES = {("export", "vectors"), ("choosing", "vectors"), ("choosing", "compiling")}
BELOW = {room: set().union(*LEVELS[:i]) for i, level in enumerate(LEVELS) for room in level}
BELOW["console"] = {"errors"}
BELOW["plugins"] -= {"console"}
BELOW["config"] -= {"report"}  # the report knows nothing of runs, and a configuration nothing of reports
BELOW["store"] -= {"report"}


def modules(root):
    """Files of the rooms by the name of their module."""
    return {
        ".".join(("visterm", *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__"): file
        for room in ROOMS
        for file in (root / room).rglob("*.py")
        if "tests" not in file.relative_to(root).parts
    }


def imports(module, file, known, *, running=False):
    """Edges (module, imported module) to the modules `known`, wherever in the file the import is.

    With `running`, without those that only type checkers read.
    """
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if running and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join(parts + ([node.module] if node.module else []))
            names = [f"{source}.{alias.name}" for alias in node.names]
            names = [name if name in known else source for name in names]
        else:
            continue
        yield from ((module, name) for name in names if name in known and name != module)


def forbidden(edges):
    """Edges that the design does not have."""
    for importer, imported in edges:
        (_, room, *inner), (_, other, *other_inner) = importer.split("."), imported.split(".")
        if room != other:
            allowed = FLOOR[other] < FLOOR[room] and (other in LIBRARIES or bool(other_inner))
        elif room == "plugins":  # each knows itself alone, but for these
            allowed = inner[:1] == other_inner[:1] or (inner[0], other_inner[0]) in USES
        elif room == "pipeline":
            allowed = bool(other_inner) and (other_inner[0] == inner[0] or other_inner[0] in BELOW.get(inner[0], ()))
        else:
            allowed = True
        if not allowed:
            yield f"{importer} imports {imported}"


def circle(edges):
    """A circle of modules, or None."""
    graph = {}
    for importer, imported in edges:
        graph.setdefault(importer, set()).add(imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


@pytest.fixture(scope="module")
def known(repository):
    return modules(repository)


@pytest.fixture(scope="module")
def edges(known):
    return [edge for module, file in known.items() for edge in imports(module, file, known)]


def test_imports_go_one_way(edges):
    assert len(edges) > 300, "a walk that finds nothing proves nothing"
    assert not list(forbidden(edges))
    assert circle(edges) is None
    files = {kind.__module__ for kind in LEARNERS.values()}
    among = [edge for edge in edges if files.issuperset(edge)]
    # HIER compares what these say.
    assert among == [("visterm.plugins.annotators.hier", "visterm.plugins.annotators.one_vs_rest")]


@pytest.fixture
def planted(known, tmp_path):
    """Function (file, text) that gives the edges of a file that is not in the repository."""

    def plant(name, text):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
        (module,) = modules(tmp_path)
        return list(imports(module, file, known))

    return plant


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pipeline/store/planted.py", "from visterm.pipeline.stages import train\n"),
        ("pipeline/stages/planted.py", "def f():\n    from visterm.pipeline.search.searcher import Searcher\n"),
        ("pipeline/report/planted.py", "from visterm.pipeline.store.run import Run\n"),
        ("pipeline/search/planted.py", "from visterm.pipeline.stages.edit import add\n"),
        ("learners/planted.py", "import visterm.retrieval\n"),
        ("teaching/planted.py", "from visterm.pipeline import Searcher\n"),
        ("pipeline/search/planted.py", "from visterm.teaching.duplicates import find_same_pictures\n"),
        ("teaching/planted.py", "import visterm.service.app\n"),
        ("service/planted.py", "from visterm.plugins.judge import judgements\n"),
        ("plugins/dask/planted.py", "def f():\n    import visterm.plugins.milvus.milvus\n"),
    ],
)
def test_a_planted_arrow_is_seen(planted, name, text):
    (line,) = forbidden(planted(name, text))
    assert "planted imports" in line


def test_a_planted_circle_is_seen(edges, planted):
    message = circle(edges + planted("pipeline/store/run.py", "def f():\n    from .vectors import vectors\n"))
    assert message is not None
    assert "visterm.pipeline.store.run" in message


def test_benchmarks_never_import_experiments(repository):
    for file in (repository / "benchmarks").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in modules if name.split(".")[0] == "experiments"], file


def scripts(repository):
    """Text of the page's scripts by their names."""
    return {file.name: file.read_text() for file in (repository / "service/web").rglob("*.js")}


def script_imports(name, text):
    """Edges (script, imported script), also of import() and of `export ... from`."""
    sources = re.findall(
        r"""^(?:import|export)\b[^"';=(]*["']([^"']+)["']|\bimport\(["']([^"']+)""", text, re.MULTILINE
    )
    return [
        (name, (fixed or dynamic).rpartition("/")[2]) for fixed, dynamic in sources if "openapi" not in (fixed, dynamic)
    ]


def test_the_scripts_of_the_page_have_no_circle(repository):
    texts = scripts(repository)
    edges = [edge for name, text in texts.items() for edge in script_imports(name, text)]
    assert len(edges) > 200, "a walk that finds nothing proves nothing"
    assert {imported for _, imported in edges} <= set(texts)
    assert circle(edges) is None
    planted = circle([*edges, *script_imports("dom.js", 'import {\n  go,\n} from "./history.js";\n')])
    assert {"dom.js", "history.js"} <= set(planted)
