"""What commands import: what they use, and not what learns."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from running import copy_run, visterm

from visterm.learners import LEARNERS, OASIS
from visterm.learners.saved import ANNOTATORS
from visterm.learners.similarity import BilinearSimilarity
from visterm.pipeline.cli.app import _all_commands, _built, _without_options, app

ROOT = Path(__file__).parents[3]
LARGE = {
    *("sklearn", "scipy.stats", "scipy.linalg", "scipy.optimize", "pandas", "pyarrow", "numba", "llvmlite", "joblib"),
    *("matplotlib", "fastapi", "uvicorn", "jinja2", "onnxruntime", "onnx", "cv2", "PIL", "skimage", "dask", "pymilvus"),
    *("numpy.f2py", "numpy.ma", "numpy.polynomial", "numpy.testing", "importlib.metadata", "email"),
    *("rich", "pydantic", "yaml", "visterm.learners.base", "visterm.retrieval.evaluation"),
}
READS = {"cv2", "PIL"}  # of what decodes images
ALSO = {"numpy.ma", "numpy.polynomial", "importlib.metadata", "email", "yaml"}
LEARNS = {"sklearn", "scipy.linalg", "numba", "llvmlite", "joblib", "visterm.learners.base"}
PROGRAM = """
import sys
from visterm.pipeline.cli.start import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
# The arguments, which of the large modules are needed, and the most modules in all: a tenth above what there were.
COMMANDS = {
    "--help": (set(), 100),
    "export --help": (set(), 100),
    "label list": (set(), 165),
    "info": (set(), 240),
    "search id:5": (set(), 525),
    "search id:5 --learner cosine": (set(), 525),
    "search id:5 -k 3 --label pear --json": (set(), 525),
    "add ROOT/pear/1.jpg": (READS, 570),
    "search fruit-new.jpg": (READS, 620),
    "train --learner oasis --force": (LEARNS | ALSO, 1385),
}


def loaded(arguments, folder, stdin=""):
    """Run a command in a process of its own; its lines, and the modules that it has imported at its end."""
    environment = {k: v for k, v in os.environ.items() if k not in ("VISTERM_RUN", "VISTERM_RUNS", "COV_CORE_SOURCE")}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    ended = subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[:3000]
    return ended.stdout, set(ended.stderr.splitlines()[-1].split())


@pytest.fixture(scope="module")
def searched(finished, tmp_path_factory):
    """A run that was searched before: what a first search makes once is there."""
    folder = copy_run(finished, tmp_path_factory.mktemp("start"))
    (folder / "fruit-new.jpg").write_bytes((folder / "fruit/pear/1.jpg").read_bytes())
    visterm("search", "id:5", "--learner", "oasis", cwd=folder)
    visterm("search", "id:5", "--learner", "cosine", cwd=folder)
    return folder


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_command_imports_what_it_uses(arguments, searched):
    needed, most = COMMANDS[arguments]
    root = json.loads(visterm("info", "--json", cwd=searched).stdout)["root"]
    words = arguments.replace("ROOT", root).split()
    if words[0] == "search" and "--learner" not in words:
        words += ["--learner", "oasis"]
    _, modules = loaded(words, searched)
    assert not LARGE.intersection(modules) - needed
    assert 0.5 * most < len(modules) <= most


@pytest.mark.parametrize(
    ("library", "copy"),
    [
        ("from visterm import sparse; sparse.csr_array, sparse.issparse", "scipy._lib"),
        ("from visterm.pipeline.stages.estimators import import_estimators as it; it()", "sklearn.externals"),
    ],
)
def test_numpy_names_its_modules_again_once_a_library_has_copied_them(library, copy):
    code = f"""
import numpy as np
before = sorted(dir(np)), list(np.__all__)
{library}
assert (sorted(dir(np)), list(np.__all__)) == before
from {copy}.array_api_compat import numpy as copied
assert copied.ma is np.ma and copied.testing is np.testing and not hasattr(copied, "no such name")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_estimators_come_without_the_notes_that_scipy_appends_to_docstrings():
    code = """
import sys
from visterm.pipeline.stages.estimators import import_estimators
import_estimators()
from scipy._lib import _array_api
import scipy.special
assert "sklearn.utils.validation" in sys.modules
assert len(_array_api.xp_capabilities_table) < 100
assert _array_api.xp_capabilities.__module__ == _array_api.__name__
assert "zeta" in scipy.special.zeta.__doc__
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("chosen", [None, "9"])
def test_idle_threads_of_openblas_sleep_at_once(chosen):
    code = "import sys, os\nfrom visterm.pipeline.cli.start import main\nsys.argv[1:] = ['--help']\n"
    code += "try: main()\nfinally: print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    environment |= {"OPENBLAS_THREAD_TIMEOUT": chosen} if chosen else {}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == (chosen or "20")


def test_what_is_known_without_importing():
    unfinished = {"ranker_W_", "best_W_", "best_teachers_"}
    assert set(OASIS().get_params()) == BilinearSimilarity.settings
    assert set(OASIS._state) - unfinished == BilinearSimilarity.state
    assert BilinearSimilarity.linear == OASIS.linear
    assert {name for name in LEARNERS if LEARNERS[name].ranks_labels} == ANNOTATORS
    group = typer.main.get_command(app)
    context = typer.Context(group)
    listed = _built({name: _without_options(command) for name, command in _all_commands().items()})
    assert list(listed) == group.list_commands(context)
    for name, command in listed.items():
        assert command.get_short_help_str(60) == group.get_command(context, name).get_short_help_str(60)


def test_lines_of_standard_input_are_queries(searched):
    names = ["id:5", "fruit/pear/1.jpg", "", "id:7", " "]
    lines, _ = loaded(["search", "-", "--learner", "oasis", "-k", "3"], searched, "\n".join(names))
    expected = visterm("search", *filter(str.strip, names), "--learner", "oasis", "-k", "3", "--json", cwd=searched)
    assert [json.loads(line) for line in lines.splitlines()] == json.loads(expected.stdout)


def test_a_line_is_answered_before_the_next_one_comes(searched):
    command = [sys.executable, "-c", PROGRAM, "search", "-", "--learner", "cosine"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=searched, text=True, **pipes) as process:
        for name in ("id:5", "id:99", "id:6"):
            process.stdin.write(f"{name}\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["query"] == name
        process.stdin.close()
        assert process.wait() == 1
        assert "id:99: run fruit has no image of this id" in process.stderr.read()


@pytest.mark.skipif(os.name == "nt", reason="POSIX redirections")
def test_a_closed_standard_input(searched):
    command = [sys.executable, "-c", PROGRAM, "search", "-", "--learner", "cosine"]
    result = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *command], cwd=searched, text=True, capture_output=True)
    assert "reads queries from standard input, which is closed" in result.stderr
    assert result.returncode == 2


def redirected(arguments, redirections, folder):
    """Run the command as it is installed, in a shell that redirects its streams, which keep results until the end."""
    command = [sys.executable, "-c", "from visterm.pipeline.cli.start import main; main()", *arguments.split()]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONUNBUFFERED", "VISTERM_RUN", "VISTERM_RUNS")}
    shell = ["sh", "-c", redirections.format('"$@"'), "sh", *command]
    return subprocess.run(shell, cwd=folder, env=environment, text=True, capture_output=True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is full")
@pytest.mark.parametrize("arguments", ["--help", "--version", "label list", "search id:5", "search id:5 id:99"])
def test_results_that_cannot_be_written_are_an_error(arguments, searched):
    ended = redirected(arguments, "{} > /dev/full", searched)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("visterm: standard output: No space left on device; ")
    assert "Exception" not in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="POSIX redirections")
@pytest.mark.parametrize("arguments", ["--help", "--version", "", "label", "label list", "-q search id:5"])
def test_a_reader_may_close_the_pipe(arguments, searched):
    """Of what Typer prints itself, without a buffer, the exit code was 1."""
    for unbuffered in ("", "PYTHONUNBUFFERED=1 COLUMNS=70 "):
        ended = redirected(arguments, f"(sleep 0.1; {unbuffered}{{}}; echo $? >&2) | true", searched)
        assert ended.stderr == "0\n"
    ended = redirected(arguments.replace("-q ", ""), "({} 2>&1; echo $? > code) | true", searched)
    assert (ended.stderr, (searched / "code").read_text()) == ("", "0\n")


@pytest.mark.skipif(os.name == "nt", reason="POSIX redirections")
@pytest.mark.parametrize("arguments", ["--help", "label list", "label export", "-q search id:5 --format csv"])
def test_closed_streams(arguments, searched):
    for closed in ("{} >&-", "{} >&- 2>&-", "{} <&- >&- 2>&-"):
        ended = redirected(arguments, closed, searched)
        assert (ended.returncode, ended.stderr) == (0, ""), closed
    ended = redirected("label add sea", "{} <&-", searched)
    assert ended.returncode == 2
    assert ended.stderr.startswith("visterm: no images given; ")


@pytest.mark.parametrize("option", ["--format=csv", "--html=page.html"])
def test_lines_are_answered_by_json_alone(searched, option):
    refused = visterm("search", "-", option, cwd=searched, check=2)
    assert "search - prints JSON, a line per query: leave out --html and --format" in refused.stderr


def test_networks_need_no_sparse_arrays_and_no_joblib():
    code = "import sys; from visterm.features import OnnxEmbedder; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"scipy", "joblib", "numba", "sklearn", "pydantic"}.intersection(modules)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_the_first_search_of_a_read_only_container(searched, tmp_path):
    """Without any cache of kernels, and with no folder for one: a photo is searched in NumPy, with the same results."""
    words = ["search", "fruit-new.jpg", "--learner", "oasis", "--json"]
    expected, _ = loaded(words, searched)
    wheel_like = tmp_path / "site/visterm"
    shutil.copytree(ROOT / "package", wheel_like, ignore=shutil.ignore_patterns("__pycache__"))
    for room in ("features", "learners", "retrieval", "pipeline", "teaching", "service", "plugins"):
        shutil.copytree(ROOT / room, wheel_like / room, ignore=shutil.ignore_patterns("__pycache__", "web", "tests"))
    nowhere = tmp_path / "file"
    nowhere.touch()  # folders below a file can be made by nobody, not even by root
    homes = dict.fromkeys(
        ("HOME", "XDG_CACHE_HOME", "TMPDIR", "MPLCONFIGDIR", "NUMBA_CACHE_DIR"), str(nowhere / "home")
    )
    program = f"import sys; sys.dont_write_bytecode = True; sys.path.insert(0, {str(wheel_like.parent)!r})\n{PROGRAM}"
    environment = os.environ | homes
    ended = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=searched, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[:3000]
    assert ended.stdout == expected
    assert "numba" not in ended.stderr.splitlines()[-1].split()
    assert not [file for file in wheel_like.rglob("*.nb?")]
