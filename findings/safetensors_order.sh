#!/usr/bin/env bash
# safetensors.numpy and arrays that are not in the order of C.
#
# Guess: save_file writes what the array holds, as np.save does and as versions up to 0.7 did, or refuses it, as safetensors.torch does.
# What happens: 0.8.0 writes the bytes as they lie in memory under the shape of the array: the transposed matrix, some columns, and what
#   scikit-learn's PCA returns come back with other numbers, without a word, in a file that every reader accepts.
# Who meets it: whoever saves embeddings that PCA reduced, a slice of the columns (shorter Matryoshka vectors), or X.T.
# Versions: safetensors 0.7.0 and 0.8.0, NumPy 2.4.6, scikit-learn 1.9.0, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numpy==2.4.6 scikit-learn==1.9.0 2>/dev/null
cat > "$folder/show.py" <<'PY'
import sys
import numpy as np, safetensors, sklearn
from safetensors.numpy import load_file, save_file
from sklearn.decomposition import PCA

file, whole = f"{sys.argv[1]}/x.safetensors", safetensors.__version__ == "0.7.0"
print("safetensors", safetensors.__version__, "NumPy", np.__version__, "scikit-learn", sklearn.__version__)
X = np.random.default_rng(0).normal(size=(1000, 64)).astype(np.float32)
reduced = PCA(16, svd_solver="full").fit_transform(X)
for name, array in {"X": X, "X.T": X.T, "X[:, :16]": X[:, :16], "PCA": reduced}.items():
    save_file({"vectors": array}, file)
    same = np.array_equal(load_file(file)["vectors"], array)
    print(f"{name}: {'the same' if same else 'other numbers'}, C order: {array.flags.c_contiguous}")
    assert same == (whole or array.flags.c_contiguous)
assert not reduced.flags.c_contiguous
PY
for version in 0.7.0 0.8.0; do
  "$folder/venv/bin/pip" install -q safetensors==$version 2>/dev/null
  "$folder/venv/bin/python" "$folder/show.py" "$folder"
done
