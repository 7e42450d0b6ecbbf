"""The options of a search: the same through Python, the command and the API, each said once."""

import asyncio
import re
import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pytest
from running import json_of, visterm

from visterm.pipeline.errors import UserError
from visterm.pipeline.search import request as table
from visterm.pipeline.search.request import FILTERS, OPTIONS, SearchOptions
from visterm.pipeline.store.run import Run


@pytest.fixture(scope="module")
def api(finished):
    """Function (path, parameters) that asks a service over the finished run."""
    pytest.importorskip("fastapi")
    httpx = pytest.importorskip("httpx")
    from visterm.service.app import create_app

    app = create_app(Run(finished / "runs/fruit"), local=False)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://visterm", verify=False)
    with asyncio.Runner() as runner:
        yield lambda path, parameters: runner.run(client.get(path, params=parameters))
        runner.run(client.aclose())
        app.state.parts.close()


def arguments(options):
    """Options as they are given to the command."""
    flags = []
    for name, value in options.items():
        flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list) else [value]
        flags += [flag] if value is True else [f"{flag}{'=' * (len(name) > 1)}{one}" for one in values]
    return flags


@pytest.mark.parametrize(
    ("python", "text"),
    [
        ({"folder": Path("pear")}, {"folder": "pear"}),
        (
            {"after": date(2001, 1, 1), "before": datetime(2100, 1, 1, 12)},
            {"after": "2001-01-01", "before": "2100-01-01T12:00:00"},
        ),
        ({"after": 2001, "folder": None}, {"after": "2001"}),
        ({"offset": np.int64(1), "learned_weight": np.float32(0.5)}, {"offset": 1, "learned_weight": 0.5}),
        ({"example": 9}, {"example": "id:9"}),
        ({"example": np.array([9, 25])}, {"example": ["id:9", "id:25"]}),
        ({"example": Path("apple/0.jpg")}, {"example": "apple/0.jpg"}),
    ],
)
def test_values_of_python_are_as_good_as_texts(searcher, python, text):
    assert searcher.search(1, k=4, **python) == searcher.search(1, k=4, **text)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"k": 3.0}, "k 3.0: give a whole number"),
        ({"k": "3"}, "k '3': give a whole number"),
        ({"k": None}, "k None: give a whole number"),
        ({"offset": None}, "offset None: give a whole number"),
        ({"weight": "2", "example": 9}, "weight '2': give a number"),
        ({"learned_weight": "0.5"}, "learned_weight '0.5': give a number"),
    ],
)
def test_what_is_no_number_is_said_of_the_option(searcher, option, said):
    with pytest.raises(UserError, match=re.escape(said)):
        searcher.search(1, **option)


# An option per line, with others where it means nothing alone.
CASES = [
    {"k": 2},
    {"learner": "cosine"},
    {"label": ["plum", "apple"]},
    {"not_label": ["pear"], "label": "plum"},
    {"folder": "pear"},
    {"after": "2001", "not_label": "apple"},
    {"before": "2100", "folder": "plum"},
    {"where": ["date_source=file", "date>2001"]},
    {"offset": 3},
    {"example": ["id:9@-0.5", "id:25"]},
    {"example": ["id:9@-0.5"], "weight": 2},
    {"learned_weight": 0.9, "learner": "wsabie"},
    {"region": "0,0,0.5,0.5", "label": "pear"},
    {"exclude_duplicates": True, "not_label": "apple"},
    {"min_probability": 0.5, "learner": "oasis", "k": 29},
]


def test_each_option_has_a_case():
    assert set(OPTIONS) == {"k", "learner", *SearchOptions.__annotations__}
    assert {name for case in CASES for name in case} == set(OPTIONS) - {"text_by"}  # of texts


@pytest.mark.parametrize("options", CASES, ids=lambda case: next(iter(case)))
def test_an_option_means_the_same_through_each_door(searcher, finished, api, options):
    options = {"k": 6} | options
    answers = searcher.search(["id:2", "pear/3.jpg"], **options)
    assert json_of("search", "id:2", "pear/3.jpg", *arguments(options), cwd=finished) == answers
    for answer, row in zip(answers, (searcher.place[2], searcher.row_named("pear/3.jpg")), strict=True):
        (served,) = api("/search", {"id": searcher.images[row].id} | options).json()
        for row, result in zip(served["results"], answer["results"], strict=True):
            assert {name: row[name] for name in result if name != "fields"}.items() <= result.items()
    plain = searcher.search(["id:2", "pear/3.jpg"], 6)
    assert answers != plain
    assert all(answer["results"] for answer in answers)
    columns = api("/search/columns", {"id": 2} | options).json()
    for column, name in (("ids", "id"), ("scores", "score")):
        assert columns[column] == [result[name] for result in answers[0]["results"]]
    conditions = searcher.filter(**{name: options[name] for name in FILTERS if name in options})
    assert served["n_searched"] == len(
        conditions.rows(searcher.images, searcher.gallery.albums, searcher.gallery.fields)
    )


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        ({"k": 0}, "k 0: give a number of at least 1"),
        ({"offset": -1}, "offset -1: give a number of at least 0"),
        ({"weight": 10.5}, "weight 10.5: give a number from -10 to 10"),
        ({"weight": -11}, "weight -11: give a number from -10 to 10"),
        ({"weight": "nan"}, "weight nan: give a number from -10 to 10"),
        ({"example": ["id:3", "id:2@77"]}, "weight 77: give a number from -10 to 10"),
        ({"example": ["id:2@-10.5"]}, "weight -10.5: give a number from -10 to 10"),
        ({"learned_weight": -0.1}, "learned_weight -0.1: give a number from 0 to 1"),
        ({"learned_weight": 1.5}, "learned_weight 1.5: give a number from 0 to 1"),
        ({"learned_weight": "nan"}, "learned_weight nan: give a number from 0 to 1"),
        ({"min_probability": 2}, "min_probability 2: give a number from 0 to 1"),
        ({"region": "0,0,1,1.1"}, "region: give x, y, width and height in shares of the image, each from 0 to 1"),
        ({"region": "left"}, "region: give x, y, width and height in shares of the image, each from 0 to 1"),
    ],
)
def test_a_value_out_of_bounds_is_refused_through_each_door(searcher, finished, api, options, bounds):
    ((name, value),) = options.items()
    with pytest.raises(UserError, match=f"^{re.escape(bounds)}$"):
        searcher.search("id:1", **{name: float(value) if value == "nan" else value})
    told = visterm("search", "id:1", *arguments(options), cwd=finished, check=2).stderr
    assert f"visterm: {bounds}\n" in told or f"Invalid value for '-{'-' * (len(name) > 1)}{name}".replace(
        "_", "-"
    ) in told.replace("_", "-")
    refused = api("/search", {"id": 1} | options)
    assert (refused.status_code, refused.json()["ok"]) == (422, False)
    assert refused.json()["error"].startswith((bounds, f"{name}: "))
    assert "\n" not in refused.json()["error"]


def test_the_command_refuses_options_that_labels_do_not_take(finished):
    for options in ({"region": "0,0,1,1"}, {"weight": 2}, {"min_probability": 0.5}):
        (flag, *_) = arguments(options)
        told = visterm("search", "--query-label", "pear", flag, cwd=finished, check=2).stderr
        assert f"visterm: {flag.partition('=')[0]} is for queries that are images; give an image, or leave it" in told
    assert json_of("search", "--query-label", "pear", "--exclude-duplicates", cwd=finished)[0]["results"]
    told = visterm("search", "--label", "pear", "--learned-weight", "0.5", cwd=finished, check=2).stderr
    assert "images for a label by itself" in told


def test_the_page_knows_the_names_of_the_table(repository):
    """Its addresses hold what GET /search takes, and lists of values where that takes lists."""
    script = (repository / "service/web/core/address.js").read_text()

    def names(constant):
        return set(re.findall(r'"(\w+)"', re.search(rf"const {constant} =[^\[]*\[(.*?)\]", script, re.DOTALL)[1]))

    assert names("FILTERS") == set(FILTERS)
    assert names("OPTIONS") | names("FILTERS") == set(OPTIONS) - {"k", "offset"}
    assert names("LISTS") == {name for name, option in OPTIONS.items() if option.several}
    assert names("SHARES") == {name for name, option in OPTIONS.items() if option.kind is float}


PLANTED = """
import sys
from pathlib import Path
from types import ModuleType

source = Path(sys.argv[1])
text = source.read_text()
for line, more in (
    ("    weight: float\\n", "    sharpness: float | None\\n"),
    ("    @classmethod\\n    def of(cls, k", "    sharpness: float | None = _share('How sharp', 'Sharp')\\n"),
):
    assert text.count(line) == 1
    text = text.replace(line, more + line)
import visterm.pipeline.search
module = sys.modules["visterm.pipeline.search.request"] = ModuleType("visterm.pipeline.search.request")
exec(compile(text, source, "exec"), vars(module))

from unittest.mock import patch
from typer.testing import CliRunner
from visterm.pipeline.cli.app import app
print(CliRunner().invoke(app, ["search", "--help"]).stdout)

import inspect
from visterm.pipeline import Searcher
class Planted(Searcher):
    def __init__(self): pass
    def find(self, queries, request): raise SystemExit(f"Searcher.search: {request.sharpness}")
from visterm.service import app as service
from visterm.pipeline.store.run import Run
with patch.object(service, "ServiceParts"):
    description = service.create_app(Run(Path("runs/none"))).openapi()
print([p for p in description["paths"]["/search"]["get"]["parameters"] if p["name"] == "sharpness"])
print(description["components"]["schemas"]["UploadSearchRequest"]["properties"]["sharpness"])
Planted().search("id:1", sharpness=0.25)
"""


def test_an_option_that_is_planted_in_the_table_is_known_at_each_door():
    """A new option touches the table and what honours it; the page, if it shows it."""
    pytest.importorskip("fastapi")
    done = subprocess.run([sys.executable, "-c", PLANTED, table.__file__], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "Searcher.search: 0.25", done.stderr
    assert re.search(r"--sharpness SHARE +Sharp\.  \[0<=x<=1\]", done.stdout)
    assert done.stdout.count("'description': 'How sharp'") >= 2
    assert "'maximum': 1" in done.stdout
    assert Path(table.__file__).name == "request.py"
