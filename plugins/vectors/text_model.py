"""The text model of a run, which makes vectors of texts beside those of its images."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from visterm.pipeline.console import Console, count, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.opened import OpenedRun
from visterm.pipeline.store.records import is_up_to_date, make_record
from visterm.pipeline.store.vectors import n_features, weights_of

if TYPE_CHECKING:
    from visterm.features import TextEmbedder


def keep_text_model(run: OpenedRun, console: Console) -> None:
    """Check the text model that the configuration names, and copy it into the run; the original files may go.

    UserError if it cannot be used, or makes vectors of another length than those of the images.
    """
    features = run.config.features
    assert features.text_model is not None
    from visterm.features import TextEmbedder

    old = None
    with contextlib.suppress(UserError):  # a damaged one is made again
        old = run.record(run.text_model)
    embedder = TextEmbedder(features.text_model, features.text_tokenizer, layer=features.text_layer)
    try:
        gone = not os.path.exists(features.text_model)
        inputs = old["inputs"] if gone and old is not None else embedder.files()
        record = make_record("text model", {"layer": features.text_layer}, inputs)
        if not (old is not None and is_up_to_date(run.text_model, record)):
            with console.phase("checking the text model"), publish(run.text_model, record) as folder:
                embedder.fit()
                _check_length(run, embedder)
                embedder.save(folder / "files")
            console.say(_in_words(embedder))
        else:
            _check_length(run, TextEmbedder.load(run.text_model / "files"))
    except (ValueError, ImportError) as error:
        raise UserError(str(error)) from None


def _check_length(run: OpenedRun, embedder: TextEmbedder) -> None:
    if weights_of(run) is not None:
        raise UserError("features.text_model is for dense vectors, and this run has visterms: leave it out")
    n = n_features(run)
    if embedder.n_features_out_ != n:
        raise UserError(
            f"{one_line(os.fspath(embedder.model))}: gives vectors of {count(embedder.n_features_out_, 'number')}, and "
            f"those of the images have {n:,}: take the text model that was trained with the image model"
        )


def _in_words(embedder: TextEmbedder) -> str:
    filled = "" if embedder.pad_ is None else f", filled with token {embedder.pad_}"
    return (
        f"{Path(embedder.model).name}: texts of up to {count(embedder.length_, 'token')}{filled}; vectors of "
        f"{count(embedder.n_features_out_, 'number')}"
    )
