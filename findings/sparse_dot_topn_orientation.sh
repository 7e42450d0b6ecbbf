#!/usr/bin/env bash
# sparse_dot_topn: the best n products of rows of bags of words, whichever way the matrices lie, and whatever their signs.
#
# Guess: sp_matmul_topn(A, B, n) keeps the n largest of A @ B per row, negative ones too as long as threshold is None; CSR, CSC and COO
#   give one answer; B of the shape of the gallery (photos by words) is either always refused or always turned round.
# What happens, without a word:
#   1. Negative products are dropped, and a row with two positive ones has two results for five, unless n is the number of columns and
#      sort is False: then all are kept. threshold=-inf keeps them always.
#   2. Two CSC matrices (what hstack, slices of columns and X.T of CSR give) are multiplied as A.T @ B.T, where the shapes of that fit: the
#      result has other numbers, and of A by its own transposed the shape of words by words.
#   3. A gallery as it lies is turned round (A @ B.T), until it has as many photos as there are words: then it is A @ B.
# Who meets it: whoever ranks by centred, hashed (signed) or reduced vectors and takes the missing results for photos without a word in
#   common; who cuts columns by frequency from a CSC matrix; who compares blocks of a gallery, one of which is square.
# Versions: sparse_dot_topn 1.2.0, SciPy 1.17.1, NumPy 2.4.6, Python 3.11. Date: 2026-11-29.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q sparse-dot-topn==1.2.0 scipy==1.17.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import numpy as np
import scipy.sparse as sp
from sparse_dot_topn import sp_matmul, sp_matmul_topn

print(*(f"{name} {version(name)}" for name in ("sparse_dot_topn", "scipy", "numpy")))


def bags(rows, columns, kind, seed):
    return sp.random(rows, columns, 0.3, format=kind, random_state=seed)


signed = bags(20, 50, "csr", 0)
signed.data -= 0.5
exact = (signed @ signed.T).toarray()
print(f"1. {(exact < 0).sum()} of {exact.size} products are negative")
kept = {}
for n, sort, threshold in ((19, False, None), (20, False, None), (20, True, None), (20, True, -np.inf)):
    found = sp_matmul_topn(signed, signed.T.tocsr(), top_n=n, sort=sort, threshold=threshold)
    kept[n, sort, threshold] = int((found.data < 0).sum())
    print(f"   n={n}, sort={sort}, threshold={threshold}: {found.nnz} results, {kept[n, sort, threshold]} of them negative")
assert kept == {(19, False, None): 0, (20, False, None): 216, (20, True, None): 0, (20, True, -np.inf): 216}

left, right = bags(30, 50, "csc", 2), bags(50, 30, "csc", 3)
square = bags(30, 30, "csc", 4), bags(30, 30, "csc", 5)
print("2. CSC by CSC, furthest from A @ B, and from A.T @ B.T where that is possible:")
for a, b in (square, (left, right)):
    found, true, turned = sp_matmul(a, b), (a @ b).toarray(), (a.T @ b.T).toarray()
    ours = np.abs(found.toarray() - true).max() if found.shape == true.shape else "another shape"
    print(f"   {a.shape} by {b.shape}: {found.shape}; {ours}, {np.abs(found.toarray() - turned).max()}")
    assert found.shape == turned.shape and np.allclose(found.toarray(), turned)
    assert np.allclose(sp_matmul(a.tocsr(), b).toarray(), true) and np.allclose(sp_matmul(a, b.tocsr()).toarray(), true)

print("3. photos by words, as they lie:")
queries = bags(5, 50, "csr", 6)
for n in (49, 50, 51):
    gallery = bags(n, 50, "csr", 7)
    found = sp_matmul(queries, gallery).toarray()
    by_rows = np.allclose(found, (queries @ gallery.T).toarray())
    print(f"   {n} photos of 50 words: A @ B.T {by_rows}")
    assert by_rows == (n != 50)
PY
