"""Commands below ``visterm model``."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError

from .errors import command
from .options import JsonOption


@command
def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="ONNX file of an image model.")],
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Side of the input, if the model leaves it open.")
    ] = None,
    layer: Annotated[str | None, typer.Option("--layer", metavar="NAME", help="The tensor that is the vector.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the input of an ONNX model, the layer to take as the vector, and whether matches can be explained.

    The model is run once, on noise.

    \b
    Example:
      visterm model inspect resnet50.onnx
    """
    from visterm.features import OnnxEmbedder, silence_decoders
    from visterm.features.presets import PRESETS

    silence_decoders()
    try:
        info = OnnxEmbedder(model, size=size, layer=layer).fit().describe()
    except (ValueError, ImportError) as error:
        raise UserError(str(error).replace("set size, for example to 224", "give --size, for example 224")) from None
    if as_json:
        print(json.dumps(info))
        return
    height, width = info["size"]
    print(f"input:      {width} x {height} pixels, {info['layout']}")
    print(f"vector:     {one_line(info['layer'])}, {count(info['n_features'], 'number')}")
    if (pooled := info["suggested_layer"]) is not None:
        print(f"suggested:  {one_line(pooled)}, the last pooled tensor{' (taken)' if pooled == info['layer'] else ''}")
    else:
        print("suggested:  nothing is pooled, so the output is the vector")
    cells = "no: the vector is not the mean over a map"
    if info["cells"]:
        cells = f"yes, by {info['cells'][0]} x {info['cells'][1]} cells"
    print(f"explained:  {cells}")
    print(f"preprocess: not in the file; one of {', '.join(PRESETS)}, as the model's documentation says")
    settings: dict[str, object] = {"kind": "onnx", "onnx.model": model, "onnx.preprocess": "imagenet"}
    settings |= {"onnx.size": size} if size is not None else {}
    settings |= {"onnx.layer": layer or pooled} if layer or pooled else {}
    options = " ".join(f"--set {shlex.quote(f'features.{key}={value}')}" for key, value in settings.items())
    print(f"use it:     visterm features IMAGES {options}")


commands = typer.Typer(name="model", help="Inspect ONNX image models.", no_args_is_help=True)
commands.command("inspect")(inspect)
