"""Export small networks of well-known architectures by PyTorch, with the vectors that PyTorch itself gives.

``python tests/exports/make.py tests/exports/exports.zip`` needs torch, timm, transformers, onnxscript; their versions
are kept in the archive, which the tests read without them. Weights are of two values per tensor, so that they compress.
"""

import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

SIDE, N_IMAGES = 64, 6
PACKAGES = ("torch", "timm", "transformers", "onnxscript", "onnx")


def pixels() -> np.ndarray:
    """Return images of coarse random colours, uint8 (n, SIDE, SIDE, 3): networks tell them apart, unlike noise."""
    coarse = np.random.default_rng(0).integers(0, 256, (N_IMAGES, 8, 8, 3), dtype=np.uint8)
    return np.kron(coarse, np.ones((1, SIDE // 8, SIDE // 8, 1), np.uint8))


def networks() -> dict[str, Callable[[], Any]]:
    """Return makers of networks by name."""
    import timm
    import torch
    import transformers as hf

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": SIDE}
    text = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "eos_token_id": 49}

    def by_timm(name: str, **settings: Any) -> Callable[[], Any]:
        return lambda: timm.create_model(name, pretrained=False, **settings)

    class Joint(torch.nn.Module):
        """CLIP with the inputs and outputs that exporters give it."""

        def __init__(self) -> None:
            super().__init__()
            vision = small | {"patch_size": 16, "intermediate_size": 64}
            config = hf.CLIPConfig(
                text_config=text | {"intermediate_size": 32}, vision_config=vision, projection_dim=24
            )
            self.clip = hf.CLIPModel(config)

        def forward(self, input_ids: Any, pixel_values: Any, attention_mask: Any) -> Any:
            out = self.clip(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
            return out.logits_per_image, out.logits_per_text, out.text_embeds, out.image_embeds

    vit = small | {"patch_size": 8, "intermediate_size": 64}
    return {
        "resnet": by_timm("resnet18", channels=(8, 16, 24, 32), stem_width=8, num_classes=10),
        "mobilenet": lambda: hf.MobileNetV2Model(hf.MobileNetV2Config(depth_multiplier=0.25, image_size=SIDE)),
        "efficientnet": lambda: hf.EfficientNetModel(
            hf.EfficientNetConfig(width_coefficient=0.25, depth_coefficient=0.3, image_size=SIDE, hidden_dim=320)
        ),
        "densenet": by_timm("densenet121", growth_rate=4, block_config=(2, 2, 2, 2), num_classes=10),
        "convnext": by_timm("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32), num_classes=10),
        "swin": by_timm(
            "swin_tiny_patch4_window7_224", img_size=SIDE, window_size=2, embed_dim=12, depths=(1, 1, 2),
            num_heads=(1, 2, 4), num_classes=0, global_pool="",
        ),
        "mixer": lambda: timm.models.MlpMixer(img_size=SIDE, embed_dim=32, num_blocks=2, num_classes=0),
        "vit": lambda: hf.ViTModel(hf.ViTConfig(**vit)),
        "dinov2": lambda: hf.Dinov2WithRegistersModel(hf.Dinov2WithRegistersConfig(**small, patch_size=8)),
        "siglip": lambda: hf.SiglipVisionModel(hf.SiglipVisionConfig(**vit)),
        "clip": Joint,
    }  # fmt: skip


def export_all(folder: Path) -> Iterator[str]:
    """Export each network into a folder of its name, with ``expected.npz``: its outputs; yield the names."""
    import torch

    images = torch.from_numpy(pixels().astype(np.float32).transpose(0, 3, 1, 2) / np.float32(255))
    for name, make in networks().items():
        torch.manual_seed(0)
        network = make().eval()
        _randomise(network, gain=4 if name == "efficientnet" else 2)  # whose gates halve what passes
        texts = {"input_ids": torch.tensor([[48, 1, 2, 49]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}

        def inputs(image: Any, joint: bool = name == "clip", texts: Any = texts) -> tuple[Any, ...]:
            return (texts["input_ids"], image, texts["attention_mask"]) if joint else (image,)

        names = (["input_ids", "pixel_values", "attention_mask"], ["logits_per_image", "logits_per_text", "text_embeds",
                 "image_embeds"]) if name == "clip" else (None, None)  # fmt: skip
        (folder / name).mkdir(parents=True)
        with torch.no_grad():
            outputs = [_tensors(network(*inputs(image[None]))) for image in images]
            torch.onnx.export(
                network, inputs(images[:1]), folder / name / "model.onnx", dynamo=True, verbose=False,
                input_names=names[0], output_names=names[1],
            )  # fmt: skip
        arrays = [np.concatenate([one[i].numpy() for one in outputs]) for i in range(len(outputs[0]))]
        vectors = [array for array in arrays if array.ndim == 2] or arrays  # tokens and maps are large
        np.savez(folder / name / "expected.npz", *vectors)
        _without_traces(folder / name / "model.onnx")
        yield name


def _tensors(output: Any) -> tuple[Any, ...]:
    output = output.to_tuple() if hasattr(output, "to_tuple") else output
    return output if isinstance(output, tuple) else (output,)


def _randomise(network: Any, gain: float) -> None:
    """Set weights to random values of one size, which keeps the numbers of all layers in bounds."""
    import torch

    rng = np.random.default_rng(0)
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point():
            values = rng.choice([-1.0, 1.0], size=tuple(tensor.shape))
            if "running_var" in name:
                values = 1 + 0.1 * np.abs(values)
            elif tensor.ndim >= 2:
                values = values * (gain / np.prod(tensor.shape[1:])) ** 0.5
            else:
                values = values * 0.1 + (1 if name.endswith("weight") else 0)
            tensor.copy_(torch.from_numpy(np.asarray(values)))


def _without_traces(file: Path) -> None:
    """Remove what the exporter notes of the program: lines of source, with the paths of this machine."""
    import onnx

    model = onnx.load(file, load_external_data=False)
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.initializer, *graph.value_info, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    del graph.value_info[:]
    file.write_bytes(model.SerializeToString())


def main(archive: Path) -> None:
    """Write the archive."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as file:
        for name in export_all(Path(folder)):
            for part in ("model.onnx", "model.onnx.data", "expected.npz"):
                file.write(Path(folder) / name / part, f"{name}/{part}")
        file.writestr("versions.json", json.dumps({name: metadata.version(name) for name in PACKAGES}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
