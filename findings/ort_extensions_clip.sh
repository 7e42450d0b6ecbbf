#!/usr/bin/env bash
# onnxruntime-extensions: CLIPTokenizer, the operator that puts CLIP's tokenizer into an ONNX model, beside tokenizers, with CLIP's own steps.
#
# Guess: of one vocabulary and one list of merges both make the same tokens, as they do for English words, capitals, accents, Cyrillic,
#   punctuation and "don't"; texts that differ would be rare ones, if any.
# What happens, without a word:
#   1. Numbers: CLIP takes each digit for a word, 2</w> 0</w> 2</w> 4</w>, as its pattern says ([\p{N}]); the operator takes the number
#      for one, 2 0 2 4</w>. All tokens but the last are others, which CLIP met within words alone.
#   2. A tab, or a space that does not break (U+00A0, U+3000, which web pages and Japanese keyboards write), is a token or more, where CLIP takes it
#      for a space; a line feed takes the end off the word before it, which falls to pieces ("of" is o f).
#   3. Accents that are characters of their own ("e" and U+0301, as macOS writes names of files) are not joined (NFC), and split the word.
#   Lengths and masks are plausible, and the text's vector is that of other words.
# Who meets it: those who search photos by text with an exported CLIP whose tokenizer is in the graph (C#, phones), beside a gallery or
#   thresholds from Python: "boeing 747", "1960s car", "route 66", captions with line breaks, names of files as text.
# Versions: onnxruntime-extensions 0.15.2, tokenizers 0.23.3, onnxruntime 1.32.0, onnx 1.23.2, NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnxruntime-extensions==0.15.2 tokenizers==0.23.3 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
import json
from importlib.metadata import version

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime_extensions import get_library_path
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

print(*(f"{name} {version(name)}" for name in ("onnxruntime-extensions", "tokenizers", "onnxruntime", "onnx")))
START, END = "<|startoftext|>", "<|endoftext|>"
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def steps(tokenizer):
    """Those of CLIP's tokenizer.json before words are cut into tokens."""
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


learning = steps(Tokenizer(models.BPE(end_of_word_suffix="</w>")))
texts = ["a photo of a cat on route", "two dogs don't mind a boeing", "école château käfer über", "кошка собака"] * 5
learning.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=900, initial_alphabet=BYTES, end_of_word_suffix="</w>", show_progress=False))
merges = [tuple(pair) for pair in json.loads(learning.to_str())["model"]["merges"]]
tokens = [*BYTES, *(f"{byte}</w>" for byte in BYTES), *("".join(pair) for pair in merges), START, END]  # CLIP's order
vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
clip = steps(Tokenizer(models.BPE(vocabulary, merges, end_of_word_suffix="</w>", unk_token=END)))
clip.post_processor = processors.RobertaProcessing((END, vocabulary[END]), (START, vocabulary[START]), False, False)

lines = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in merges)])
node = helper.make_node(
    "CLIPTokenizer", ["text"], ["ids", "mask"], domain="ai.onnx.contrib", vocab=json.dumps(vocabulary), merges=lines, padding_length=-1
)
text, ids, mask = (
    helper.make_tensor_value_info(name, kind, shape)
    for name, kind, shape in (("text", TensorProto.STRING, ["n"]), ("ids", TensorProto.INT64, None), ("mask", TensorProto.INT64, None))
)
opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.contrib", 1)]
model = helper.make_model(helper.make_graph([node], "clip", [text], [ids, mask]), opset_imports=opsets, ir_version=9)
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(get_library_path())
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
names = {i: token for token, i in vocabulary.items()}


def both(text):
    in_graph = session.run(["ids"], {"text": np.array([text], object)})[0][0].tolist()
    return [[names[i] for i in ids[1:-1]] for ids in (clip.encode(text).ids, in_graph)]


alike = ["a photo of a cat", "Two DOGS don't mind!", "École, Käfer; über", "КОШКА", " a cat ", "route 6"]
unlike = ["route 66", "a boeing 747", "2024", "a\u00a0cat", "a\u3000cat", "a photo\tof\na cat", "e\u0301cole"]
for text in (*alike, *unlike):
    of_clip, of_graph = both(text)
    print(f"{text!r}: {'alike' if of_clip == of_graph else f'CLIP {of_clip}, in the graph {of_graph}'}")
    assert (of_clip == of_graph) == (text in alike)
assert both("66") == [["6</w>", "6</w>"], ["6", "6</w>"]]
PY
