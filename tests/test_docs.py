"""Examples in the pages run, links lead somewhere, and the commands and options that pages name exist."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
import typer
import yaml

from visterm.pipeline.cli.app import app
from visterm.pipeline.config.learners import TABLE

ROOMS = ("features", "learners", "retrieval", "pipeline")

PAGES = (
    "README.md",
    "docs/learners.md",
    "docs/features.md",
    "docs/searching.md",
    "docs/explaining.md",
    "docs/feedback.md",
    "docs/labels.md",
    "docs/vectors.md",
)


def examples(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def make_run(folder: Path) -> None:
    """The run that examples open."""
    from visterm.pipeline.config.loading import load_config
    from visterm.pipeline.console import Console
    from visterm.pipeline.stages.features import features as features_stage
    from visterm.pipeline.stages.train import train as train_stage
    from visterm.pipeline.store.run import Run

    settings = ["features.n_visterms=50", "oasis.n_steps=1000", "wsabie.n_steps=1000", "compute.n_jobs=1"]
    run, config = Run(folder / "runs" / "photos"), load_config(None, settings)
    features_stage(run, config, folder / "photos", Console(quiet=True))
    for learner in ("oasis", "wsabie"):
        train_stage(run, config, learner, Console(quiet=True))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_examples_run(repository, page, tmp_path, monkeypatch, write_images):
    write_images(tmp_path / "photos", [f"{c}/{i}.jpg" for c in ("apple", "pear", "plum") for i in range(12)])
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path, ["a.jpg", "holiday/1.jpg", "holiday/2.jpg"])
    snippets = examples(repository / page)
    assert snippets
    if re.search(r'(Searcher|LabelEditor|open_run)\("', "".join(snippets)):
        make_run(tmp_path)
    names: dict = {}  # later examples of a page may use what earlier ones made
    for example in snippets:
        # The images of this test are small and few.
        exec(example.replace("n_visterms=1000", "n_visterms=50").replace("100_000", "1000"), names)


def anchors(page: Path) -> set[str]:
    """Headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere(repository):
    pages = [*repository.glob("*.md"), *repository.glob("docs/**/*.md"), *repository.glob("plugins/*/*.md")]
    broken = []
    for page in pages:
        for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            other = (page.parent / target) if target else page
            if not other.exists() or (anchor and anchor not in anchors(other)):
                broken.append(f"{page.relative_to(repository)}: {target}#{anchor}")
        if re.search(r"install [^`\n]*\bvisterm\[", page.read_text()):
            broken.append(f"{page.relative_to(repository)}: a name that no index has")
    assert len(pages) > 10
    assert broken == []


def code_of(page: Path) -> list[str]:
    """Lines of examples, and code quoted in sentences."""
    fences = re.compile(r"^```\w*\n(.*?)^```|`([^`]+)`", re.DOTALL | re.MULTILINE)
    quoted = [fence or " ".join(inline.split()) for fence, inline in fences.findall(page.read_text())]
    return [line for code in quoted for line in code.splitlines()]


def commands_of_pages(repository: Path) -> dict[str, set[str]]:
    """Commands of visterm that pages quote, and the options given to each; "" is visterm itself."""
    pages = [repository / "README.md", repository / "CONTRIBUTING.md", *repository.glob("docs/*.md")]
    pages += repository.glob("plugins/*/README.md")
    commands: dict[str, set[str]] = {}
    for page in pages:
        for line in code_of(page):
            called = re.match(r"(?:\.venv/bin/)?visterm ((?:[a-z]+ ?)*)(.*)", line.split(" #")[0])
            if called and not called[2].startswith("<"):  # visterm <command> --json
                words = called[1].split()
                n_words = 2 if words and words[0] in ("feedback", "judge", "label", "model") else 1
                options = set(re.findall(r"(?<!\S)\[?(--[a-z-]+|-[a-z])\b", called[2]))
                commands.setdefault(" ".join(words[:n_words]), set()).update(options)
    return commands


def test_commands_and_options_exist(repository):
    commands = commands_of_pages(repository)
    assert {"search", "train", "feedback undo", "judge results"} <= set(commands)
    program = typer.main.get_command(app)
    context, missing = typer.Context(program), []
    for command, options in commands.items():
        node = program
        for word in command.split():
            node = node.get_command(context, word) if hasattr(node, "get_command") else None
        known = {"-h", "--help"} | {name for p in getattr(node, "params", ()) for name in (*p.opts, *p.secondary_opts)}
        missing += [f"visterm {command} {option}" for option in options - known]
        missing += [] if node else [f"visterm {command}"]
    assert not missing


def test_targets_of_make_exist(repository):
    targets = set(re.findall(r"^([a-z]+):", (repository / "Makefile").read_text(), re.MULTILINE))
    missing = []
    for page in [*repository.glob("*.md"), *repository.glob("docs/*.md"), *repository.glob("plugins/*/*.md")]:
        for line in code_of(page):
            if called := re.match(r"make ([^#]*)", line):
                words = re.sub(r'"[^"]*"', "", called[1]).split()
                missing += [f"{page.name}: make {w}" for w in words if re.fullmatch("[a-z]+", w) and w not in targets]
    assert not missing


class _Configuration(yaml.SafeLoader):
    """mkdocs.yml, whose Python tags mkdocs reads."""


_Configuration.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def paths_in(nav) -> set[str]:
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav
    return {path for part in parts for path in paths_in(part)}


def test_the_site_has_every_page(repository):
    """`make docs` itself is too slow here; it checks links and docstrings."""
    site = yaml.load((repository / "mkdocs.yml").read_text(), _Configuration)
    pages = {page.relative_to(repository / "docs").as_posix() for page in repository.glob("docs/**/*.md")}
    pages |= {f"plugins/{page.parent.name}.md" for page in repository.glob("plugins/*/README.md")}
    assert paths_in(site["nav"]) == pages
    for file in (site["theme"]["favicon"], *site["extra_css"]):
        assert (repository / "docs" / file).is_file()
    recipe = re.search(r"^docs:.*\n((?:\t.*\n)+)", (repository / "Makefile").read_text(), re.MULTILINE)[1]
    assert "--strict" in recipe
    assert "--quiet" not in recipe, "mkdocs does not count warnings that it does not print"


@pytest.mark.parametrize("room", ROOMS)
def test_the_reference_names_functions_that_modules_hide(repository, room):
    """visterm.retrieval.evaluate is a function, and to mkdocstrings the module of that name."""
    page = (repository / "docs" / "api" / f"{room}.md").read_text()
    assert f"::: visterm.{room}\n" in page
    hidden = [n for n in import_module(f"visterm.{room}").__all__ if (repository / room / f"{n}.py").exists()]
    assert [name for name in hidden if f"::: visterm.{room}.{name}.{name}\n" not in page] == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_reference_has_every_public_name(repository, room):
    """Its pages list `__all__` of the stub; what the stub imports can be imported of the room."""
    stub = ast.parse((repository / room / "__init__.pyi").read_text()).body
    listed = ast.literal_eval(next(node.value for node in stub if isinstance(node, ast.Assign)))
    imported = [alias.name for node in stub if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(listed) == sorted(imported) == sorted(import_module(f"visterm.{room}").__all__)
    page = (repository / "docs" / "api" / f"{room}.md").read_text()
    if named := re.search(r"The public names are (.+?);", page):
        assert sorted(re.findall("`(.+?)`", named[1])) == sorted(listed)


def test_the_documentation_of_tuning_names_the_settings_of_the_table(repository):
    table = (repository / "docs/choosing.md").read_text().split("| Learner | Settings |")[1].split("\n\n")[0]
    rows = [[re.findall("`(.+?)`", cell) for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    named = {learner: set(settings) for learners, settings in rows for learner in learners}
    assert named == {name: set(of.tried) for name, of in TABLE.items()}


def test_the_readme_counts_the_learners_of_the_table_and_versions_agree(repository):
    numbers = {5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine"}
    words = f"OASIS, AROMA, WSABIE, MuSL and {numbers[len(TABLE) - 4]} more"
    assert words in (repository / "README.md").read_text()
    version = re.search(r'^version = "(.+)"', (repository / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert yaml.safe_load((repository / "CITATION.cff").read_text())["version"] == version
    assert f"\n## {version} - 20" in (repository / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_every_public_example_runs(repository):
    """Docstrings of the rooms, as doctests."""
    import doctest

    n_tried = 0
    for room in ("features", "learners", "retrieval"):
        for file in sorted((repository / room).rglob("*.py")):
            names = file.relative_to(repository).with_suffix("").parts
            module = import_module(".".join(("visterm", *names)).removesuffix(".__init__"))
            failed, tried = doctest.testmod(module)
            assert not failed, module
            n_tried += tried
    assert n_tried > 20
