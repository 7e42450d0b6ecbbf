"""Settings that have no effect beside others."""

import pytest

from visterm.pipeline.config.idle import _RULES, idle_settings, set_settings
from visterm.pipeline.config.loading import load_config

SECTIONS = "collection", "split", "features", "evaluate", "index", "oasis"
IDLE = {
    "collection.vectors.unit": (["collection.vectors.unit=false"], ["collection.vectors.file=v.npy"]),
    "collection.vectors.id_column": (["collection.vectors.id_column=x"], ["collection.vectors.file=v.npy"]),
    "collection.label_column": (["collection.label_column=breed"], ["collection.labels=t.csv"]),
    "collection.label_separator": (
        ["collection.labels=t.csv", "collection.label_column=none", "collection.label_separator=','"],
        ["collection.label_column=breed"],
    ),
    "collection.skip_bad_rows": (["collection.skip_bad_rows=true"], ["collection.triplets=t.csv"]),
    "collection.label_level": (["collection.labels=none", "collection.label_level=1"], ["collection.labels=auto"]),
    "collection.exclude": (
        ["collection.exclude=[a]", "collection.vectors.file=v.npy"],
        ["collection.vectors.file=null"],
    ),
    "features.n_visterms": (["features.n_visterms=50", "features.kind=deep"], ["features.kind=visterms"]),
    "features.precision": (["features.precision=float32"], ["features.kind=deep"]),
    "features.deep.resize": (["features.deep.resize=stretch"], ["features.kind=deep"]),
    "features.onnx.batch": (["features.onnx.batch=3"], ["features.kind=onnx", "features.onnx.model=m.onnx"]),
    "features.onnx.keep": (
        *(["features.kind=onnx", "features.onnx.model=m", "features.onnx.resize=stretch", "features.onnx.keep=0.5"],),
        ["features.onnx.resize=crop"],
    ),
    "features.deep.keep": (
        ["features.kind=deep", "features.deep.resize=stretch", "features.deep.keep=0.5"],
        ["features.deep.resize=crop"],
    ),
    "features.codebook.n_trees": (["features.codebook.n_trees=3"], ["features.codebook.kind=forest"]),
    "split.by": (["split.by=class", "collection.clicks=c.csv"], ["collection.clicks=null"]),
    "evaluate.class_splits": (["evaluate.class_splits=3"], ["evaluate.protocol=open"]),
    "index.exact_milliseconds": (["index.kind=exact", "index.exact_milliseconds=3"], ["index.kind=auto"]),
    "index.n_candidates": (["index.kind=exact", "index.n_candidates=3"], ["index.kind=auto"]),
    "oasis.click_cutoff": (["oasis.click_cutoff=0.5"], ["collection.clicks=c.csv"]),
}


@pytest.mark.parametrize("name", IDLE)
def test_a_setting_without_effect_is_said_with_the_reason(name):
    idle, used = IDLE[name]
    (line,) = idle_settings(load_config(None, idle), *SECTIONS)
    assert line.startswith(f"{name}: no effect ")
    assert idle_settings(load_config(None, [*idle, *used]), *SECTIONS) == []


def test_each_rule_is_tried_and_defaults_say_nothing():
    assert len(IDLE) >= len(_RULES)
    assert idle_settings(load_config(), *SECTIONS) == []
    assert set_settings(load_config(None, ["split.seed=3", "features.kind=deep"]), "split") == ["split.seed"]
