"""A text model beside the vectors of images: kept by the run, searched with, and refused where it does not fit."""

import json
import shutil
import sys

import numpy as np
import pytest
from running import json_of, refused, visterm

from experiments.studies.words import word_vectors, write_text_model
from visterm.features import TextEmbedder
from visterm.pipeline import Searcher
from visterm.pipeline.errors import UserError
from visterm.pipeline.store import vectors
from visterm.plugins.vectors.text_embedder import COMMON

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["crimson", "azure", "grassy"]  # no labels of the run
KINDS = ["plum", "fig", "pear"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Imported vectors of three kinds of things, oasis, and a text model that knows other words for them."""
    folder, rng = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    y = np.repeat(np.arange(3), 20)
    X = (2 * np.eye(3, 12)[y] + rng.normal(size=(60, 12)) / 4).astype(np.float32)
    np.save(folder / "things.npy", X)
    (folder / "things.txt").write_text("".join(f"{KINDS[k]}/{i}.jpg\n" for i, k in enumerate(y)))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    write_text_model(folder / "text", WORDS, word_vectors(unit, np.eye(3)[y]))
    table, text_model = ["--vectors", "things.npy", "--ids", "things.txt"], "features.text_model=text/text.onnx"
    said = visterm("features", *table, "--set", text_model, cwd=folder).stderr
    assert "text.onnx: texts of up to 32 tokens; vectors of 12 numbers" in said
    visterm("train", "--set", "oasis.n_steps=2000", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def searcher(finished):
    return Searcher(finished / "runs/things")


def kinds(answer):
    return [result["path"].partition("/")[0] for result in answer["results"]]


@pytest.mark.parametrize("learner", ["cosine", "oasis"])
def test_a_text_is_searched_with_as_an_image_is(searcher, learner):
    for word, kind in zip(WORDS, KINDS, strict=True):
        (answer,) = searcher.search_text(f"The {word.upper()} one!", k=20, learner=learner)
        assert answer["query"] == f"The {word.upper()} one!"
        assert kinds(answer) == [kind] * 20
    embedder = TextEmbedder(searcher.run.text_model / "files/model.onnx").fit()
    vector = embedder.transform(["crimson"])
    assert np.linalg.norm(vector) == pytest.approx(1)
    if learner != "cosine":  # knows how photos differ
        vector = vector + searcher.X.mean(axis=0, dtype=np.float32)
    by_hand = searcher.ranking_index(learner).search(vector, k=5)
    (answer,) = searcher.search_text("crimson", k=5, learner=learner)
    assert [result["id"] for result in answer["results"]] == [searcher.images[row].id for row in by_hand.indices[0]]
    assert [result["score"] for result in answer["results"]] == pytest.approx(by_hand.scores[0], abs=1e-5)


def test_labels_answer_first_and_text_by_chooses(finished, searcher):
    ask = ["search", "-k", "3", "--learner", "oasis", "--text"]
    by_label = visterm(*ask, "azure plum", cwd=finished)
    assert "by the labels plum; no labels: azure" in by_label.stderr
    by_model = visterm(*ask, "azure plum", "--text-by", "model", "--format", "json", cwd=finished)
    assert "by the text model" in by_model.stderr
    assert set(kinds(json.loads(by_model.stdout)[0])) <= {"fig", "plum"}
    assert "no word of 'azure' is a label" in refused(*ask, "azure", "--text-by", "labels", cwd=finished)
    assert "text_by: give labels or model" in refused(*ask, "azure", "--text-by", "both", cwd=finished)
    assert "text_by: for a text" in refused("search", "id:1", "--text-by", "model", cwd=finished)
    (some,) = json_of(*ask, "azure", "--label", "pear", cwd=finished)
    assert kinds(some) == ["pear"] * 3


def test_a_text_is_cut_or_refused_with_options_of_images(finished, searcher):
    ask = ["search", "-k", "3", "--learner", "cosine", "--text"]
    text = "azure " * 1666
    long = visterm(*ask, text, "--format", "json", cwd=finished)
    assert "by the text model, of its first 32 tokens" in long.stderr
    (answer,) = json.loads(long.stdout)
    assert (kinds(answer), len(answer["query"])) == (["fig"] * 3, 100)
    (short,) = searcher.search_text("azure", k=3, learner="cosine")
    assert [r["id"] for r in answer["results"]] == [r["id"] for r in short["results"]]
    assert "11,000 characters; give at most 10,000" in refused(*ask, "x" * 11_000, cwd=finished)
    for empty in ("", "  "):
        assert "empty text" in refused(*ask, empty, cwd=finished)
    assert "a text without a word that the text model knows" in refused(*ask, "unheard of", cwd=finished)
    (odd,) = searcher.search_text("azure \ud800\x00", k=1, learner="cosine")  # half a character, as of a file's name
    assert kinds(odd) == ["fig"]
    for option in ({"weight": 2.0}, {"example": ["id:1"]}, {"region": (0, 0, 0.5, 0.5)}):
        with pytest.raises(UserError, match="for queries that are images"):
            searcher.search_text("azure", **option)
    with pytest.raises(UserError, match="no probability"):
        searcher.search_text("azure", min_probability=0.5, learner="oasis")
    ids = [result["id"] for result in searcher.search_text("azure", k=60, exclude_duplicates=True)[0]["results"]]
    assert len(ids) == 60  # no two vectors are equal


@pytest.fixture
def mine(finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_the_run_keeps_its_own_copy(mine):
    again = ["features", "--run", "things"]
    shutil.rmtree(mine / "text")
    assert json_of(*again, cwd=mine)["extracted"] == 0
    (answer,) = json_of("search", "--text", "azure", "-k", "1", "--learner", "cosine", cwd=mine)
    assert kinds(answer) == ["fig"]
    before = Searcher(mine / "runs/things")
    rng = np.random.default_rng(1)
    write_text_model(mine / "text", WORDS, rng.normal(size=(3, 12)))
    assert "texts of up to 32 tokens" in visterm(*again, cwd=mine).stderr
    assert "texts of" not in visterm(*again, cwd=mine).stderr  # up to date
    assert not before.is_current()
    assert Searcher(mine / "runs/things").version != before.version
    with pytest.raises(UserError, match="reopen the run"):
        before.search_text("azure", learner="cosine")
    visterm(*again, "--set", "features.text_model=null", cwd=mine)
    assert not (mine / "runs/things/text_model").exists()
    assert "has no text model; add one" in refused("search", "--text", "azure", "--text-by", "model", cwd=mine)


def bad_tokenizer(folder):
    shutil.copy(write_text_model(folder / "other", [f"w{i}" for i in range(50)], np.ones((50, 12))).with_name(
        "tokenizer.json"), folder / "text")  # fmt: skip


def damaged_tokenizer(folder):
    (folder / "text/tokenizer.json").write_text('{"version": "1.0"}')


def no_tokenizer(folder):
    (folder / "text/tokenizer.json").unlink()


def other_width(folder):
    write_text_model(folder / "text", WORDS, np.ones((3, 7)))


def other_inputs(folder):
    write_text_model(folder / "text", WORDS, np.ones((3, 12)), attention_mask="pixel_values")


def no_model(folder):
    (folder / "text/text.onnx").write_text("no model")


def no_file(folder):
    shutil.rmtree(folder / "text")
    shutil.rmtree(folder / "runs/things/text_model")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (bad_tokenizer, "tokens up to 51, which the model does not know: take the tokenizer of the model"),
        (damaged_tokenizer, "no tokenizer of the package tokenizers, or damaged"),
        (no_tokenizer, "the tokenizer cannot be read"),
        (other_width, "gives vectors of 7 numbers, and those of the images have 12"),
        (other_inputs, "takes pixel_values, which a text does not give"),
        (no_model, "not an ONNX model, or damaged"),
        (no_file, "the model cannot be read"),
    ],
)
def test_a_text_model_that_cannot_be_used_is_refused_in_a_line(mine, spoil, told):
    before = (mine / "runs/things/config.yaml").read_text()
    spoil(mine)
    line = refused("features", "--run", "things", cwd=mine)
    assert told in line
    assert (mine / "runs/things/config.yaml").read_text() == before
    if spoil is not no_file:  # what the run had still works
        (answer,) = json_of("search", "--text", "azure", "-k", "1", "--learner", "cosine", cwd=mine)
        assert kinds(answer) == ["fig"]


def test_a_missing_package_is_named(finished, monkeypatch):
    vectors._load_text_embedder.cache_clear()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert "a text model needs tokenizers: " in refused("search", "--text", "azure", cwd=finished)


def test_visterms_take_no_text_model(mine, write_images):
    write_images(mine / "fruit", [f"{kind}/{i}.jpg" for kind in KINDS for i in range(4)])
    settings = ["--set", "features.text_model=text/text.onnx", "--set", "features.n_visterms=30"]
    assert "for dense vectors" in refused("features", "fruit", *settings, cwd=mine)
    assert "text_layer is of a text model" in refused("features", "fruit", "--set", "features.text_layer=x", cwd=mine)


def test_lengths_and_padding(tmp_path):
    model = write_text_model(tmp_path / "onnx", WORDS, np.eye(3))
    (tmp_path / "onnx/tokenizer.json").rename(tmp_path / "tokenizer.json")  # as transformers.js has it
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    tokenizer["truncation"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert (TextEmbedder(model).fit().length_, TextEmbedder(model).fit().pad_) == (77, None)
    config = {"model_max_length": 10**30, "pad_token": {"content": "[PAD]"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert (TextEmbedder(model).fit().length_, TextEmbedder(model).fit().pad_) == (77, 0)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 5, "pad_token": "[PAD]"}))
    embedder = TextEmbedder(model).fit()
    assert (embedder.length_, embedder.pad_) == (5, 0)
    np.testing.assert_allclose(embedder.transform(["azure azure crimson"])[0], np.array([1, 2, 0]) / 5**0.5, atol=1e-6)
    assert [embedder.is_cut("azure " * n) for n in (5, 6)] == [False, True]
    onnx_model = onnx.load(model)
    for one in onnx_model.graph.input:
        one.type.tensor_type.shape.dim[1].dim_value = 8
    onnx.save(onnx_model, model)
    assert TextEmbedder(model).fit().length_ == 8


def test_a_text_is_where_it_differs_from_common_ones(tmp_path):
    """What all texts share, as far from photos as it may lie, says nothing."""
    words, rng = COMMON.split(), np.random.default_rng(0)
    differences, shared = rng.normal(size=(len(words), 24)), np.full(24, 5.0)
    embedder = TextEmbedder(write_text_model(tmp_path, words, differences + shared)).fit()
    alike = embedder.raw(words[:2])
    alike = alike / np.linalg.norm(alike, axis=1, keepdims=True)
    assert alike[0] @ alike[1] > 0.9
    ours, theirs = embedder.transform(words), differences / np.linalg.norm(differences, axis=1, keepdims=True)
    assert ((ours @ theirs.T).argmax(axis=1) == np.arange(len(words))).all()
    assert abs((ours @ ours.T)[np.triu_indices(len(words), 1)].mean()) < 0.05
    embedder.save(tmp_path / "saved")
    np.testing.assert_array_equal(TextEmbedder.load(tmp_path / "saved").transform(words), ours)


def test_saving_that_is_interrupted_leaves_the_old_model_or_the_new_one(tmp_path, stopped_at):
    """The model was overwritten first, then the tokenizer, then the record."""
    models = [(WORDS, np.eye(3)), (["azure", "crimson"], np.eye(2, 3))]
    embedders = [TextEmbedder(write_text_model(tmp_path / f"{i}", *model)).fit() for i, model in enumerate(models)]
    expected = [embedder.transform(["azure", "crimson"]) for embedder in embedders]
    assert not np.array_equal(*expected)
    for steps in range(1, 16):
        folder = tmp_path / f"saved {steps}"
        embedders[0].save(folder)
        stopped_at(steps, embedders[1].save, folder)
        loaded = TextEmbedder.load(folder)
        is_new = loaded.tokenizer_sha256_ == embedders[1].tokenizer_sha256_
        np.testing.assert_array_equal(loaded.transform(["azure", "crimson"]), expected[is_new])
        embedders[1].save(folder)
        np.testing.assert_array_equal(TextEmbedder.load(folder).transform(["azure", "crimson"]), expected[1])
        assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "text.json", "tokenizer.json"]
