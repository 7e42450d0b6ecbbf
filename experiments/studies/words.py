"""Photos for words on Corel-5K: one word, two words by each learner of labels, and a small text model.

``python -m experiments.studies words [deep | visterms]``. Learners have the defaults of the commands and learn from the
training photos; the test photos are ranked. The text model is a bag of words, each word a vector, by ridge regression
of the vectors of the training photos on their words: about the smallest model that a run can have.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from experiments.measured.corel import COREL, load
from visterm.learners import OASIS, PAMIR, WSABIE, Cosine, KNNAnnotator, LinearWARP, OneVsRestPA
from visterm.pipeline.search.words import logistic
from visterm.retrieval import ExactIndex, NeighbourIndex, Neighbours, average_precision

ANNOTATORS = {
    "PAMIR": PAMIR, "one vs rest": OneVsRestPA, "WSABIE": WSABIE, "linear WARP": LinearWARP, "k-NN": KNNAnnotator
}  # fmt: skip
TOGETHER = 3  # test photos that have both words of a pair
RIDGE = 1.0


def write_text_model(folder: Path, words: list[str], vectors: np.ndarray, **names: str) -> Path:
    """Write text.onnx, the sum of the vectors (n_words, d) of a text's words, and its tokenizer.json; return the model.

    `names` renames what the model has: ``input_ids``, ``attention_mask``, ``text_embeds``.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    tokens = {"[PAD]": 0, "[UNK]": 1, **{word: i for i, word in enumerate(words, 2)}}
    tokenizer = Tokenizer(models.WordLevel(tokens, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_truncation(32)
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.vstack([np.zeros((2, vectors.shape[1])), vectors]).astype(np.float32)
    ids, mask, output = (names.get(name, name) for name in ("input_ids", "attention_mask", "text_embeds"))
    nodes = [
        helper.make_node("Gather", ["table", ids], ["of_tokens"]),
        helper.make_node("Cast", [mask], ["counts"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["counts", "last"], ["columns"]),
        helper.make_node("Mul", ["of_tokens", "columns"], ["counted"]),
        helper.make_node("ReduceSum", ["counted", "middle"], [output], keepdims=0),
    ]
    constants = {"table": table, "last": np.array([2]), "middle": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "bag of words",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"]) for name in (ids, mask)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["texts", vectors.shape[1]])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, folder / "text.onnx")
    return folder / "text.onnx"


def word_vectors(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Vector of each word, float64 (n_words, d): the mean photo, moved by a ridge regression of photos on words."""
    Y, mean = Y.astype(float), X.mean(axis=0)
    return mean + np.linalg.solve(Y.T @ Y + RIDGE * np.eye(Y.shape[1]), Y.T @ (X - mean))


def main(options: list[str]) -> None:
    vectors = "visterms" if "visterms" in options else "deep"
    X, Y, Q, T = load(vectors, "--quick" in options)
    pairs = list(zip(*np.nonzero(np.triu(T.T.astype(int) @ T >= TOGETHER, 1)), strict=True))
    words = np.flatnonzero(T.any(axis=0))
    print(f"{vectors}: {len(words)} words, and {len(pairs)} pairs that {TOGETHER} of {len(T)} test photos have both of")
    y = sp.csr_array(Y.astype(float))

    def precision(scores: np.ndarray, of: tuple[int, ...]) -> float:
        relevant = T[:, list(of)].all(axis=1)
        order = np.argsort(-scores, kind="stable")
        return float(average_precision(relevant[order][None], int(relevant.sum()))[0])

    def mean(score: Callable[..., np.ndarray], queries: list[tuple[int, ...]]) -> float:
        return float(np.mean([precision(score(*query), query) for query in queries]))

    one_word = [(word,) for word in words]
    print("| mAP | one word | pairs: one of the two | the better one | mean of scores | standardised | probabilities |")
    for name, kind in ANNOTATORS.items():
        learner = kind(random_state=0).fit(X, y)
        S, known = (np.asarray(learner.label_scores(rows), np.float64) for rows in (Q, X))
        Z = (S - S.mean(axis=0)) / np.maximum(S.std(axis=0), 1e-12)
        fitted = np.array([logistic(known[:, word], Y[:, word]) for word in range(Y.shape[1])])
        L = -np.logaddexp(0, -(fitted[:, 0] * S + fitted[:, 1]))
        alone = np.array([[precision(S[:, word], pair) for word in pair] for pair in pairs])
        figures = [mean(lambda word, S=S: S[:, word], one_word), alone.mean(), alone.max(axis=1).mean()]
        figures += [mean(lambda a, b, of=of: of[:, a] + of[:, b], pairs) for of in (S, Z, L)]
        print(f"| {name} | " + " | ".join(f"{figure:.3f}" for figure in figures) + " |", flush=True)
    if vectors == "deep":
        _text_model(X, Y, Q, mean, one_word, pairs)


def _text_model(X: np.ndarray, Y: np.ndarray, Q: np.ndarray, mean: Callable, one_word: list, pairs: list) -> None:
    """The text model as a run has it: its file, its tokenizer, its vectors."""
    from visterm.features import TextEmbedder

    with (COREL / "labels.csv").open(encoding="utf-8", newline="") as file:
        names = sorted({row["label"] for row in csv.DictReader(file)})
    with tempfile.TemporaryDirectory() as folder:
        file = write_text_model(Path(folder), names, word_vectors(X, Y))
        embedder = TextEmbedder(file).fit()
        print(f"text model of {file.stat().st_size / 1000:.0f} kB")
        print("| mAP | one word | two words |")
        y = sp.csr_array(Y.astype(float))
        oasis, mean_photo = OASIS(random_state=0).fit(X, y), X.mean(axis=0)
        forms: dict[str, tuple[Any, Callable[[list[str]], np.ndarray]]] = {
            "cosine, not centred": (Cosine().fit(X), embedder.raw),
            "cosine": (Cosine().fit(X), embedder.transform),
            "OASIS, not centred": (oasis, embedder.raw),
            "OASIS": (oasis, lambda texts: embedder.transform(texts) + mean_photo),
        }
        for name, (learner, vectors) in forms.items():
            exact = ExactIndex(learner, Q)
            for how, index in (("", exact), (", by neighbours", NeighbourIndex(exact, Neighbours.of(exact, Q), Q))):

                def score(*query: int, index: Any = index, vectors: Any = vectors) -> np.ndarray:
                    text = vectors([" ".join(names[word] for word in query)]).astype(np.float32)
                    scores = np.empty(len(Q))
                    scores[index.search(text, k=len(Q)).indices[0]] = -np.arange(len(Q))
                    return scores

                print(f"| {name}{how} | {mean(score, one_word):.3f} | {mean(score, pairs):.3f} |", flush=True)
