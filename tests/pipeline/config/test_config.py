"""The configuration is strict, and says what is wrong in one line."""

import importlib
import inspect

import pytest
import yaml

from visterm.pipeline.config.learners import TABLE
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.config.models import Config
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.run import runs_folder


def test_settings_lie_on_top_of_the_file_and_defaults_survive(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(Config().to_yaml())
    assert load_config(file) == Config()
    file = tmp_path / "a.yaml"
    file.write_text("features: {n_visterms: 1000}\nsplit: {train: 40, test: 25}\n")
    config = load_config(file, ["split.test=10", "seed=3"])
    assert (config.features.n_visterms, config.split.train, config.split.test, config.seed) == (1000, 40, 10, 3)
    assert load_config(None, ["oasis.validation_fraction=None"]) == load_config(
        None, ["oasis.validation_fraction=null"]
    )
    file.write_text("collection: {labels: labels.csv}\n")
    assert load_config(file).collection.labels == str(tmp_path / "labels.csv")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("features.n_visterm=5", "unknown key features.n_visterm; did you mean n_visterms?"),
        ("featurs.n_visterms=5", "unknown key featurs; did you mean features?"),
        ("features.n_visterms=many", "features.n_visterms: input should be a valid integer, not 'many'"),
        ("features.n_visterms=10.5", "features.n_visterms"),
        ("features=3", "features: input should be"),
        ("features.max_side=20", "features.max_side: input should be greater than or equal to 64, not 20"),
        ("collection.max_pixels=18446744073709551616", "collection.max_pixels: input should be less than or equal to"),
        ("features.max_side=99.5", "features.max_side: input should be a valid integer, not 99.5"),
        ("features.cells=3", "features.cells: input should be a valid list, not 3"),
        ("features.cells=[]", "cells must list the sides of different grids, such as [3] or [1, 3], not []"),
        ("features.cells=[0]", "cells must list the sides of different grids, such as [3] or [1, 3], not [0]"),
        ("features.cells=[1,80]", "cells [1, 80] make 6401 cells, and n_visterms 10000 leaves 1 for each: raise"),
        ("features.weighting.tf=log", "features.weighting.tf: input should be 'count' or 'sqrt', not 'log'"),
        ("split.train=1.5", "a number of images (40) or a share (0.6), not 1.5"),
        ("split.train=0.9", "shares of the same images"),
        ("features.codebook.kind=tree", "features.codebook.kind: input should be 'kmeans' or 'forest'"),
        ("features.codebook.trees=4", "unknown key features.codebook.trees; did you mean n_trees?"),
        ("features.codebook.n_trees=0", "features.codebook.n_trees: input should be greater than 0, not 0"),
        ("train.world=x", "train.world"),
        ("train.learned_weight=2", "train.learned_weight: input should be less than or equal to 1"),
        ("train.learned_weight=-1", "train.learned_weight: input should be greater than or equal to 0"),
        *((f"train.learned_weight={value}", "train.learned_weight") for value in (".nan", ".inf", "true", "lots")),
        ("oasis.C=0", "oasis.C: input should be greater than 0, not 0"),
        ("oasis.whiten=x", "oasis.whiten"),
        ("oasis.variant=symetric", "oasis.variant: input should be"),
        ("evaluate.protocol=all", "evaluate.protocol"),
        ("evaluate.class_splits=0", "evaluate.class_splits: input should be greater than 0, not 0"),
        ("evaluate.class_splits=1.5", "evaluate.class_splits: input should be a valid integer, not 1.5"),
        ("oasis.click_cutoff=-1", "click_cutoff is a number of at least 0, or a share such as top 1 %, not -1"),
        ("aroma.click_cutoff=top 0 %", "click_cutoff is a number of at least 0, or a share such as top 1 %, not top 0"),
        ("lego.near=3", "near must be smaller than far, not 3 and 2"),
        ("warp.decay_steps=0", "decay_steps is a positive number, auto or null, not 0"),
        ("n_visterms", "expected section.key=value"),
        ("seed.x=[", "--set seed.x=["),
    ],
)
def test_a_wrong_setting_is_one_clear_line(setting, message):
    with pytest.raises(UserError) as error:
        load_config(None, [setting])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("features: [1", "not valid YAML at line"),
        ("- a\n- b\n", "expected sections"),
        ("features:\n  colour: 3\n", "unknown key features.colour"),
        ("collection: {labels: a.csv, clicks: b.csv}", "labels or clicks, not both"),
        ("features: [1]", "features: input should be"),
        ("features: text", "features: input should be"),
        ("features:\n  deep: 3\n", "features.deep: input should be settings by their names, not 3"),
        ("oasis:\n  whiten: 'yes'\n", "oasis.whiten: input should be a valid boolean or 'auto', not 'yes'"),
        ("collection:\n  labels:\n", "collection.labels: input should be a valid string, not None"),
        ("features:\n  kind: deep\nfeatures:\n  n_colors: 9\n", "not valid YAML at line 3 (features is there twice)"),
        ("oasis: {C: 1, n_steps: 9, 'C': 2}\n", "not valid YAML at line 1 (C is there twice)"),
        (None, "no such configuration file"),
    ],
)
@pytest.mark.parametrize("of_run", [False, True])
def test_a_wrong_file_is_one_clear_line(tmp_path, text, message, of_run):
    file = tmp_path / "a.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError) as error:
        load_config(file, of_run=of_run)
    assert message in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_section_whose_settings_are_all_comments_has_the_defaults(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("oasis:\n  # C: 3\nfeatures:\n  deep:\n")
    assert load_config(file) == Config()
    assert load_config(file, ["oasis.C=3", "features.deep.resize=pad"]).oasis.C == 3


def test_a_file_may_be_utf_16_as_powershell_writes_it(tmp_path):
    file = tmp_path / "a.yaml"
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"):
        text = "seed: 3 # é\n" if encoding in ("utf-8-sig", "utf-16") else "\ufeffseed: 3 # é\n"
        file.write_bytes(text.encode(encoding))
        assert load_config(file).seed == 3


def test_paths_may_begin_with_the_home(tmp_path, monkeypatch):
    """A shell leaves ``~`` as it is in ``--set collection.labels=~/a.csv``, and in a file there is no shell."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    file = tmp_path / "a.yaml"
    file.write_text("collection: {labels: [~/a.csv, ~/b/*.csv]}\n")
    assert load_config(file).collection.labels == [f"{tmp_path}/home/a.csv", f"{tmp_path}/home/b/*.csv"]
    assert load_config(None, ["collection.clicks=~/a.csv"]).collection.clicks == f"{tmp_path}/home/a.csv"
    file.write_text("collection: {labels: ~$a.csv}\n")  # a name that Office writes, of no user's home
    assert load_config(file).collection.labels == f"{tmp_path}/~$a.csv"
    monkeypatch.setenv("VISTERM_RUNS", "~/runs")
    assert runs_folder() == tmp_path / "home/runs"


def test_every_shipped_configuration_is_valid_and_the_page_holds_the_defaults(repository):
    files = sorted((repository / "configs").glob("*.yaml"))
    assert files
    for file in files:
        load_config(file)
    page = (repository / "docs/configuration.md").read_text()
    written = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    assert written == Config().model_dump()
    rows = [
        f"| `{section}.{key}` | {_shown(field.default)} | {_shown(constructor(section)[key])} | {field.description} |"
        for section in CONSTRUCTORS
        for key, field in model_of(section).model_fields.items()
        if field.description is not None
    ]
    missing = [row for row in rows if row not in page]
    assert not missing, "docs/configuration.md lacks:\n" + "\n".join(missing)


def test_an_exponent_makes_a_number_and_words_stay_words(tmp_path):
    """YAML 1.1 reads 1e-3 as text."""
    file = tmp_path / "a.yaml"
    for number in ("1e-3", "1E-3", "1.0e-3", "+1e-3"):
        file.write_text(f"oasis: {{C: {number}}}\n")
        assert load_config(file).oasis.C == load_config(None, [f"oasis.C={number}"]).oasis.C == 1e-3
    assert load_config(None, ["collection.vectors.id_column=e3"]).collection.vectors.id_column == "e3"


CONSTRUCTORS = {
    **{name: ("learners", row.class_name) for name, row in TABLE.items()},
    "features": ("features", "VistermExtractor"),
    "features.weighting": ("features.visterms", "VistermWeighting"),
    "features.deep": ("features", "deep_embedder"),
    "features.onnx": ("features", "OnnxEmbedder"),
    "features.codebook": ("features", "ForestCodebook"),
}


def constructor(section):
    """Defaults of the class that a section stands for, as Python sees them."""
    module, name = CONSTRUCTORS[section]
    parameters = inspect.signature(getattr(importlib.import_module(f"visterm.{module}"), name)).parameters
    defaults = {key: parameter.default for key, parameter in parameters.items()}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}


def model_of(section):
    model = Config
    for part in section.split("."):
        model = model.model_fields[part].annotation
    return model


@pytest.mark.parametrize("section", CONSTRUCTORS)
def test_defaults_are_those_of_the_constructor_or_say_why_not(section):
    """``codebook`` names a section, and a model of ``""`` is none."""
    library = constructor(section)
    for key, field in model_of(section).model_fields.items():
        if key in library and (section, key) not in (("features", "codebook"), ("features.onnx", "model")):
            assert (field.default == library[key]) == (field.description is None), f"{section}.{key}"


def test_a_dozen_defaults_of_learners_at_most_differ():
    """The class learns from all that it is given, and takes labels; the command holds out images, and names both."""
    stopping = ("oasis", "aroma", "wsabie", "pamir", "warp", "ovr", "hier", "lego")
    different = {
        f"{name}.{key}"
        for name in TABLE
        for key, field in model_of(name).model_fields.items()
        if field.default != constructor(name)[key]
    }
    assert different == {
        *(f"{name}.validation_fraction" for name in stopping),
        *(f"{name}.click_cutoff" for name in ("oasis", "aroma", "lego")),
    }


def _shown(value):
    return f"{value:,}" if type(value) is int else str(value)


@pytest.mark.parametrize(
    "value",
    ["2020-99-99", "0x_", "!!int abc", "9" * 5000, "[" * 3000, "&a [1, *a]", "!!binary abc", "\0"],
    ids=range(8),
)
def test_values_that_the_parser_itself_cannot_take(tmp_path, value):
    (tmp_path / "odd.yaml").write_text(f"seed: {value}\n")
    with pytest.raises(UserError) as error:
        load_config(tmp_path / "odd.yaml")
    assert len(str(error.value)) < 400 + len(str(tmp_path))
    with pytest.raises(UserError):
        load_config(None, [f"seed={value}"])


def test_aliases_are_not_read(tmp_path):
    """Nested ones would stand for more values than memory has room for."""
    lines = ["a: &a0 [1, 1, 1]", *(f"b{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(30))]
    (tmp_path / "nested.yaml").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"not valid YAML at line 2 \(aliases"):
        load_config(tmp_path / "nested.yaml")


@pytest.mark.parametrize("levels", [100, 100_000])
def test_deep_nesting_is_not_read(levels, tmp_path):
    """The parser in C recurses without a limit."""
    (tmp_path / "deep.yaml").write_text("seed: " + "[" * levels + "]" * levels)
    with pytest.raises(UserError, match="not valid YAML.*nested too deeply"):
        load_config(tmp_path / "deep.yaml")
