"""Vectors of a network: of an ONNX image model, or of the network whose weights are a package."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.console import Console, count, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages.vector_kinds import _ImageVectors
from visterm.pipeline.store.checksums import Record
from visterm.pipeline.store.files import file_sha256, publish
from visterm.pipeline.store.records import fingerprint

if TYPE_CHECKING:
    from visterm.features import OnnxEmbedder
    from visterm.pipeline.config.models import OnnxConfig, Settings


def model_settings(config: OnnxConfig) -> Settings:
    """Return the settings of a model that vectors depend on: a preset by its numbers, and not where the model lies."""
    from visterm.features.presets import mean_and_scale

    settings = config.model_dump(exclude={"model"})  # which its SHA-256 identifies
    settings["mean"], settings["scale"] = mean_and_scale(
        settings.pop("preprocess"), settings["mean"], settings["scale"]
    )
    if settings["pool"] is None:  # as in runs made before there was one
        del settings["pool"]
    return settings


def model_sha256(model: str) -> str | None:
    """Return the SHA-256 of a model; None if the file is not there."""
    from .onnx_files import read_model

    try:
        return read_model(model).sha256() if os.path.exists(model) else None
    except ImportError as error:
        raise UserError(str(error)) from None
    except ValueError as error:
        raise UserError(f"{one_line(model)}: {error}") from None


class _ModelVectors(_ImageVectors):
    """Vectors of an ONNX image model, which is checked and copied into the run; the original file may go."""

    def settings(self) -> Settings:
        features = self.config.features
        return {"features": {"kind": "onnx", "onnx": model_settings(features.onnx), "precision": features.precision}}

    def inputs(self) -> Settings:
        sha256 = model_sha256(self.config.features.onnx.model or "")
        old = self.run.record(self.run.extractor) if sha256 is None else None
        return old["inputs"] if old is not None and old["config"] == self.settings() else {"model": sha256}

    def _changed_model(self, record: Record) -> str:
        old = self.run.record(self.run.extractor)
        if old is None or old["inputs"] == record["inputs"]:
            return ""
        if old["inputs"].get("model") == file_sha256(self.config.features.onnx.model or ""):
            return "made by a version that looked for the weights of the model in the current folder"
        return "made with another model"

    def _make_extractor(self, record: Record, root: Path, console: Console) -> None:
        from visterm.features import silence_decoders

        from .onnx_inspect import unlike_file_beside

        silence_decoders()
        with console.phase("checking the model"), publish(self.run.extractor, record) as folder:
            try:
                embedder = self._embedder().set_params(white=self._white(root, console)).fit()
                embedder.save(folder / "files")
            except (ValueError, ImportError) as error:
                raise UserError(str(error)) from None
            record["n_features"] = embedder.n_features_out_
            record["reading"] = embedder.rules._asdict()
            content = embedder.sha256_, embedder.resizing_, record["reading"]
            record["content"] = fingerprint(record["config"], *content)
        console.say(_in_words(embedder.describe()))
        if (file := unlike_file_beside(embedder)) is not None:
            console.say(
                f"{one_line(str(file))} asks for another mean, scale or order of channels: 'visterm model inspect "
                f"{shlex.quote(os.fspath(embedder.model))}' prints the settings"
            )

    def _embedder(self) -> OnnxEmbedder:
        from visterm.features import OnnxEmbedder

        return OnnxEmbedder(**self.config.features.onnx.model_dump(), max_pixels=self.config.collection.max_pixels)


class _DeepVectors(_ModelVectors):
    """Vectors of the network whose weights are a package; see deep_embedder."""

    def settings(self) -> Settings:
        features = self.config.features
        deep = features.deep.model_dump()
        if deep["precision"] == "float32":  # as in runs made before there was another
            del deep["precision"]
        return {"features": {"kind": "deep", "deep": deep, "precision": features.precision}}

    def inputs(self) -> Settings:
        from .efficientnet import PREPARATION, SHA256, VERSION

        preparation = PREPARATION | {"resize": self.config.features.deep.resize}
        return {"model": SHA256, "version": VERSION, "preparation": preparation}

    def _embedder(self) -> OnnxEmbedder:
        from visterm.features import deep_embedder

        return deep_embedder(**self.config.features.deep.model_dump(), max_pixels=self.config.collection.max_pixels)


def _in_words(model: Mapping[str, Any]) -> str:
    """Return on one line what `OnnxEmbedder.describe` found, and what it chose."""
    height, width = model["size"]
    mean, scale = (
        ", ".join(f"{number:.4g}" for number in (value if isinstance(value, list) else [value]))
        for value in (model["mean"], model["scale"])
    )
    line = (
        f"{Path(model['model']).name}: {model['resize']} to {width} x {height}, {model['channels']}, "
        f"preprocess {model['preprocess']} (mean {mean}; scale {scale}); "
        f"vector {model['layer']}, {count(model['n_features'], 'number')}, "
        + (f"the mean of {model['cells'][0]} x {model['cells'][1]} cells" if model["cells"] else "of the whole image")
    )
    if model["suggested_layer"] not in (None, model["layer"]):
        line += f"; {model['suggested_as']} is another: --set features.onnx.layer={model['suggested_layer']}"
    return line
