"""Commands below ``visterm model``."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import JsonOption
from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError


@command
def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="ONNX file of an image model.")],
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Side of the input, if the model leaves it open.")
    ] = None,
    layer: Annotated[str | None, typer.Option("--layer", metavar="NAME", help="The tensor that is the vector.")] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="POOL", help="Of tokens: cls, mean or mean-patches.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the input and the outputs of an ONNX model, the layer to take as the vector, and the settings to use.

    The model is run on noise. A preprocessor_config.json beside it, or in the folder above, is read.

    \b
    Example:
      visterm model inspect resnet50.onnx
    """
    from visterm.features import silence_decoders
    from visterm.features.presets import PRESETS

    from .onnx_inspect import inspect_model

    silence_decoders()
    try:
        info = inspect_model(model, size=size, layer=layer, pool=pool)
    except (ValueError, ImportError) as error:
        raise UserError(str(error).replace("set size, for example to 224", "give --size, for example 224")) from None
    if as_json:
        print(json.dumps(info))
        return
    height, width = info["size"]
    print(f"input:      {width} x {height} pixels, {info['layout']}")
    for output in info["outputs"]:
        needs = f" (needs {one_line(', '.join(output['needs']))} too)" if output["needs"] else ""
        shape = one_line(" x ".join(str(side) for side in output["shape"]))
        print(f"output:     {one_line(output['name'])}, {output['type']} {shape}{needs}")
    pooled = f", {info['pool']} of tokens" if info["pool"] else ""
    print(f"vector:     {one_line(info['layer'])}{pooled}, {count(info['n_features'], 'number')}")
    if (suggested := info["suggested_layer"]) is not None:
        taken = " (taken)" if suggested == info["layer"] else ""
        print(f"suggested:  {one_line(suggested)}, {info['suggested_as']}{taken}")
    elif len(info["outputs"]) > 1:
        print(f"suggested:  {one_line(info['layer'])}, of several outputs")
    else:
        print("suggested:  nothing is pooled, so the output is the vector")
    cells = "no: the vector is not the mean over a map"
    if info["cells"]:
        cells = f"yes, by {info['cells'][0]} x {info['cells'][1]} cells"
    print(f"explained:  {cells}")
    settings: dict[str, object] = {**info["settings"]}
    if info["preprocess"] == "none":
        print("preprocess: in the model, which takes pixels from 0 to 255")
    elif info["preprocessor"] is not None:
        print(f"preprocess: as {one_line(info['preprocessor'])} says")
    else:
        print(f"preprocess: not in the file; one of {', '.join(PRESETS)}, as the model's documentation says")
        settings["preprocess"] = "imagenet"
    if layer is None and suggested is not None and len(info["outputs"]) == 1:
        settings["layer"] = suggested
    options = {"kind": "onnx", "onnx.model": model} | {f"onnx.{key}": value for key, value in settings.items()}
    shown = " ".join(f"--set {shlex.quote(f'features.{key}={value}')}" for key, value in options.items())
    print(f"use it:     visterm features IMAGES {shown}")


commands = typer.Typer(name="model", help="Inspect ONNX image models.", no_args_is_help=True)
commands.command("inspect")(inspect)
