"""Vectors of texts by an ONNX text model, in the space of an image model's vectors, as CLIP and SigLIP have them.

Texts lie together in that space, apart from the photos (Liang et al., Mind the gap, NeurIPS 2022): what all texts share
says nothing of a text, and ranks the photos that it happens to be near to first. So a text is where it differs from
common ones: u is its vector of unit length, m the mean of those of `COMMON`, and (u - m) / |u - m| is searched with.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from visterm.extras import how_to_install
from visterm.features.images import StrPath, printable

from .onnx_files import ModelFile
from .onnx_graph import inputs_of, with_output
from .onnx_session import (
    TRIED_BYTES,
    TRIED_SECONDS,
    NamedModel,
    files_of,
    limited_memory,
    one_line,
    open_session,
    run_within,
)
from .vector_tables import MAX_FEATURES, unit_rows

FORMAT = 1  # of a saved embedder
LENGTH = 77  # tokens, where neither the model nor its tokenizer says how many: CLIP's
# Things that photos show. Where a model knows fewer than `_FEWEST` of them, nothing is subtracted.
COMMON = (
    "animal bear beach bird boat book bridge building bus car cat chair child church city cloud coast cow dog door "
    "field fish flower food forest fruit garden girl glass grass ground hand hill horse house ice island lake leaf "
    "man market mountain night ocean path people person plane plant river road rock room sand sea sign sky snow "
    "statue street sun sunset table toy train tree valley wall water window woman"
)
_FEWEST = 16
_LONGEST = 8192  # tokens: tokenizers write 10**30 for "any"
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_DTYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_VECTORS = ("text_embeds", "text_features", "sentence_embedding", "pooler_output")  # outputs, the best first


class TextEmbedder(NamedModel):
    """Turn texts into vectors with an ONNX text model and its tokenizer.

    Parameters
    ----------
    model : path
        The ONNX file: integer inputs ``input_ids`` (n, length) and, if it has them, ``attention_mask``,
        ``token_type_ids`` and ``position_ids``. Of a model of images and texts, the part that `layer` needs is used.
    tokenizer : path or None
        ``tokenizer.json`` of the package tokenizers; None: that beside the model, or in the folder above. The length of
        texts and the padding that it does not have are read from ``tokenizer_config.json`` beside it.
    layer : str or None
        Name of the tensor (n, d) that is the vector; None: ``text_embeds``, ``text_features``, ``sentence_embedding``
        or ``pooler_output``, or else the only output.

    Attributes
    ----------
    n_features_out_ : int
        Length of the vectors.
    length_ : int
        Tokens of a text, with those that the tokenizer adds; longer texts are cut.
    pad_ : int or None
        Token that fills texts up to this length; None: they are not filled.
    mean_ : list of float
        Mean vector of `COMMON` texts, which is subtracted.
    sha256_, tokenizer_sha256_ : str
        Of the files, in hexadecimal.
    """

    n_features_out_: int
    length_: int
    pad_: int | None
    mean_: list[float]
    tokenizer_sha256_: str

    def __init__(self, model: StrPath, tokenizer: StrPath | None = None, *, layer: str | None = None) -> None:
        self.model = model
        self.tokenizer = tokenizer_beside(model) if tokenizer is None else tokenizer
        self.layer = layer

    def files(self) -> dict[str, str]:
        """Return the SHA-256 of the model and of its tokenizer; errors as of `fit`."""
        return {"model": self._read_model().sha256(), "tokenizer": _sha256(self.tokenizer)}

    def fit(self) -> Self:
        """Open model and tokenizer, and try them; nothing is learned.

        Raises
        ------
        ValueError
            One line: a file cannot be read, the model takes something else than tokens, gives no vector per text, or
            does not know all tokens of the tokenizer.
        ImportError
            ONNX Runtime, tokenizers, or the package onnx, where it is needed, is not installed.
        """
        model = self._model_to_fit()
        self.sha256_, self.tokenizer_sha256_ = model.sha256(), _sha256(self.tokenizer)
        with limited_memory(TRIED_BYTES + 4 * model.n_bytes()):
            self._open(model)
        tokenizer, (network, _) = self._tokenizer, self._network
        fixed = next(one.shape[1] for one in network.get_inputs() if one.name == "input_ids")
        config = _config_beside(self.tokenizer)
        asked = (tokenizer.truncation or {}).get("max_length") or config.get("model_max_length")
        usable = asked if isinstance(asked, int) and 0 < asked <= _LONGEST else LENGTH
        self.length_ = fixed if isinstance(fixed, int) else usable
        token = config.get("pad_token")
        token = token.get("content") if isinstance(token, dict) else token
        pad = tokenizer.token_to_id(token) if isinstance(token, str) else None
        self.pad_ = tokenizer.padding["pad_id"] if tokenizer.padding else pad
        self.pad_ = 0 if self.pad_ is None and isinstance(fixed, int) else self.pad_
        ids = tokenizer.get_vocab().values()
        if not ids:
            raise ValueError(f"{printable(self.tokenizer)}: a tokenizer without tokens; take the one of the model")
        with limited_memory(TRIED_BYTES):
            rows = self._run([min(ids)] * self.length_, TRIED_SECONDS)
            try:
                self._run([max(ids)], TRIED_SECONDS)
            except ValueError as error:
                raise ValueError(
                    f"{printable(self.tokenizer)}: has tokens up to {max(ids):,}, which the model does not know: take "
                    f"the tokenizer of the model ({error})"
                ) from None
        self.n_features_out_ = rows.shape[1]
        if self.n_features_out_ > MAX_FEATURES:
            raise self._error(
                f"gives vectors of {self.n_features_out_:,} numbers; at most {MAX_FEATURES:,} are supported"
            )
        self.mean_ = [0.0] * self.n_features_out_
        rows = self.raw(COMMON.split())
        known = unit_rows(rows[rows.any(axis=1)])
        if len(known) >= _FEWEST:
            self.mean_ = [float(f"{number:.6g}") for number in known.mean(axis=0)]
        return self

    def transform(self, texts: Iterable[str]) -> npt.NDArray[np.float32]:
        """Return the vectors of texts, float32 (n_texts, n_features_out_), of unit length.

        Raises
        ------
        ValueError
            A text is empty or has no token, the model fails, or a file has changed since `fit`.
        ImportError
            As in `fit`.
        """
        rows = self.raw(texts)
        if not rows.any(axis=1).all():
            raise ValueError("a text without a word that the text model knows; give other words")
        return unit_rows(unit_rows(rows) - np.array(self.mean_, np.float32))

    def raw(self, texts: Iterable[str]) -> npt.NDArray[np.float32]:
        """Return what the model gives for texts, (n_texts, n_features_out_); zeros for one without a token."""
        rows = [np.zeros((0, self.n_features_out_), np.float32)]
        for text in texts:
            ids = self._encoded(text).ids if text.strip() else []
            rows.append(self._run(ids) if ids else np.zeros((1, self.n_features_out_), np.float32))
        return np.concatenate(rows)

    def is_cut(self, text: str) -> bool:
        """Whether a text has more than `length_` tokens, so that its end counts for nothing."""
        return bool(self._encoded(text).overflowing)

    def _encoded(self, text: str) -> Any:
        if not hasattr(self, "_network"):  # loaded
            if _sha256(self.tokenizer) != self.tokenizer_sha256_:
                raise ValueError(f"{printable(self.tokenizer)}: the tokenizer has changed since fit")
            self._open(self._model_as_fitted())
        if self._tokenizer.truncation is None or self._tokenizer.truncation["max_length"] != self.length_:
            self._tokenizer.enable_truncation(self.length_)
        try:
            return self._tokenizer.encode(text.encode("utf-8", "replace").decode())  # no halves of characters
        except Exception as error:  # the package raises Exception itself: it has no token for unknown words
            raise ValueError(f"the tokenizer of the text model cannot read this text ({one_line(error)})") from None

    def _run(self, ids: list[int], seconds: float | None = None) -> npt.NDArray[np.float32]:
        """Return the vector (1, d) of tokens."""
        network, layer = self._network
        n, width = len(ids), len(ids) if self.pad_ is None else self.length_
        values = {
            "input_ids": [*ids, *[self.pad_ or 0] * (width - n)],
            "attention_mask": [1] * n + [0] * (width - n),
            "token_type_ids": [0] * width,
            "position_ids": list(range(width)),
        }
        inputs = {one.name: np.array([values[one.name]], _DTYPES[one.type]) for one in network.get_inputs()}
        with self._named():
            row = np.asarray(run_within(network, layer, inputs, f"{width} tokens", seconds))
        if row.ndim != 2 or len(row) != 1 or row.dtype.kind != "f":
            raise self._error(f"{layer} gives {row.dtype} {row.shape}, not one vector per text; set text_layer")
        if not np.isfinite(row).all():
            raise self._error(f"{layer} gives numbers that are not finite")
        return row.astype(np.float32, copy=False)

    def _open(self, model: ModelFile) -> None:
        """Open the session of ONNX Runtime and the tokenizer."""
        self._tokenizer = _read_tokenizer(self.tokenizer)
        with self._named():
            network = open_session(model)
            others = [one.name for one in network.get_inputs() if one.name not in _INPUTS]
            names = [one.name for one in network.get_outputs()]
            if others:
                names = [name for name in names if inputs_of(model.parsed(), name) <= set(_INPUTS)]
            layer = self.layer or next((name for name in _VECTORS if name in names), None)
            if layer is None and len(names) == 1:
                layer = names[0]
            if layer is None and names:
                raise ValueError(f"has several outputs: set text_layer to one of {', '.join(names[:10])}")
            if layer is None:
                raise ValueError(
                    f"takes {', '.join(others[:5])}, which a text does not give; a text model takes input_ids"
                )
            if others or layer not in names:
                network = open_session(model, with_output(model.parsed(), layer, *_INPUTS))
            inputs = {one.name: one for one in network.get_inputs()}
            unlike = [one for one in inputs.values() if one.type not in _DTYPES or len(one.shape) != 2]
            if "input_ids" not in inputs or unlike:
                which = ", ".join(f"{one.name}: {one.type} {one.shape}" for one in unlike) or ", ".join(inputs)
                raise ValueError(f"takes {printable(which)[:200]}, not input_ids as integers of texts x tokens")
            if any(isinstance(one.shape[0], int) and one.shape[0] != 1 for one in inputs.values()):
                raise ValueError(f"takes {inputs['input_ids'].shape[0]} texts at a time: export it for any number")
        self._network = network, layer

    def save(self, folder: StrPath) -> None:
        """Write copies of both files, and ``text.json``, into a folder, over older ones in one step.

        ValueError if the files have changed.
        """
        tokenizer = _bytes(self.tokenizer)
        if hashlib.sha256(tokenizer).hexdigest() != self.tokenizer_sha256_:
            raise ValueError(f"{printable(self.tokenizer)}: the tokenizer has changed since fit")
        state = {name: getattr(self, name) for name in _STATE}
        self._save(folder, "text.json", {"format": FORMAT, "layer": self.layer, "fitted": state}, tokenizer)

    @classmethod
    def load(cls, folder: StrPath) -> Self:
        """Read what `save` wrote; the model is read and checked at the first text. ValueError if damaged."""
        folder = pathlib.Path(folder)
        try:
            data = (folder / "text.json").read_bytes()
            record, files = json.loads(data), files_of(folder, data)
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}, this version reads {FORMAT}: rebuild it")
            embedder = cls(files / "model.onnx", files / "tokenizer.json", layer=record["layer"])
            vars(embedder).update({name: record["fitted"][name] for name in _STATE})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{folder} holds no readable text model: {error}") from None
        return embedder


_STATE = ("n_features_out_", "length_", "pad_", "mean_", "sha256_", "tokenizer_sha256_")


def tokenizer_beside(model: StrPath) -> pathlib.Path:
    """Return the path of the tokenizer of a model: beside it, or in the folder above if there is one."""
    folder = pathlib.Path(model).parent
    above = folder.resolve().parent / "tokenizer.json"
    return above if not (folder / "tokenizer.json").exists() and above.exists() else folder / "tokenizer.json"


def _read_tokenizer(file: StrPath) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ImportError(f"a text model needs tokenizers: {how_to_install('text')}") from None
    text = _bytes(file)
    try:
        tokenizer = Tokenizer.from_buffer(text)
    except Exception as error:  # the package raises Exception itself
        raise ValueError(
            f"{printable(file)}: no tokenizer of the package tokenizers, or damaged ({one_line(error)})"
        ) from None
    tokenizer.no_padding()
    return tokenizer


def _config_beside(tokenizer: StrPath) -> dict:
    """Return what tokenizer_config.json says, where it is readable."""
    try:
        config = json.loads(pathlib.Path(tokenizer).with_name("tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _sha256(file: StrPath) -> str:
    return hashlib.sha256(_bytes(file)).hexdigest()


def _bytes(file: StrPath) -> bytes:
    try:
        return pathlib.Path(file).read_bytes()
    except OSError as error:
        raise ValueError(
            f"{printable(file)}: the tokenizer cannot be read ({error.strerror}); set text_tokenizer to the "
            "tokenizer.json of the text model"
        ) from None
