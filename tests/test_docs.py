"""Examples in the pages run, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = (
    "README.md",
    "docs/oasis.md",
    "docs/aroma.md",
    "docs/features.md",
    "docs/wsabie.md",
    "docs/pamir.md",
    "docs/one_vs_rest.md",
    "docs/knn.md",
    "docs/lego.md",
    "docs/mcml.md",
    "docs/musl.md",
    "docs/searching.md",
    "docs/explaining.md",
    "docs/feedback.md",
    "docs/embeddings.md",
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


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(repository, page, tmp_path, monkeypatch, write_images):
    write_images(tmp_path / "photos", [f"{c}/{i}.jpg" for c in ("apple", "pear", "plum") for i in range(12)])
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path, ["a.jpg", "holiday/1.jpg", "holiday/2.jpg"])
    found = examples(repository / page)
    assert found
    if "runs/photos" in "".join(found):
        make_run(tmp_path)
    names: dict = {}  # later examples of a page may use what earlier ones made
    for example in found:
        # The images of this test are small and few.
        exec(example.replace("n_visterms=1000", "n_visterms=50").replace("100_000", "1000"), names)


def anchors(page: Path) -> set[str]:
    """Headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere(repository):
    pages = [*repository.glob("*.md"), *repository.glob("docs/**/*.md")]
    broken = []
    for page in pages:
        for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            other = (page.parent / target) if target else page
            if not other.exists() or (anchor and anchor not in anchors(other)):
                broken.append(f"{page.relative_to(repository)}: {target}#{anchor}")
    assert len(pages) > 10
    assert broken == []


def test_every_public_example_runs(repository):
    """Docstrings of the rooms, as doctests."""
    import doctest
    import importlib

    n_tried = 0
    for room in ("features", "learners", "retrieval"):
        for file in sorted((repository / room).glob("*.py")):
            module = importlib.import_module(
                f"visterm.{room}.{file.stem}" if file.stem != "__init__" else f"visterm.{room}"
            )
            failed, tried = doctest.testmod(module)
            assert not failed, module
            n_tried += tried
    assert n_tried > 20
