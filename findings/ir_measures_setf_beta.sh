#!/usr/bin/env bash
# ir_measures: SetF(beta=2), the F measure of a set of results, in which recall counts more than precision.
#
# Guess: beta is that of F-beta, as in van Rijsbergen's book, scikit-learn's fbeta_score and every text on retrieval: (1 + b^2) P R / (b^2 P + R).
# What happens, without a word: the number goes to trec_eval's set_F as it is, whose parameter x stands where b^2 does: (1 + x) P R / (x P + R).
#   SetF(beta=2.0) is F of 1.41, SetF(beta=0.5) that of 0.71; SetF(beta=4.0) is F2. Only 0 and 1 are what they say, so that tests on F1 pass. Of two systems,
#   one with more recall and one with more precision, F2 prefers the first, SetF(beta=2.0) the other.
# Who meets it: who reports F2 or F0.5 of keywords, tags or filtered results (patents, medicine, near duplicates, where a miss costs more), beside figures
#   from scikit-learn or a paper.
# Versions: ir_measures 0.4.3, pytrec_eval-terrier 0.5.11, scikit-learn 1.9.1, NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ir_measures==0.4.3 pytrec_eval-terrier==0.5.11 scikit-learn==1.9.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import ir_measures
from ir_measures import SetF
from sklearn.metrics import fbeta_score

print(*(f"{name} {version(name)}" for name in ("ir_measures", "pytrec_eval-terrier", "scikit-learn", "numpy")))
photos = [f"photo{i:02}" for i in range(40)]
relevant = photos[:10]


def both(results, beta):
    """F of a set of photos by ir_measures and by scikit-learn."""
    truth, run = {"query": dict.fromkeys(relevant, 1)}, {"query": dict.fromkeys(results, 1.0)}
    by_ir = ir_measures.calc_aggregate([SetF(beta=float(beta))], truth, run)[SetF(beta=float(beta))]
    masks = ([photo in some for photo in photos] for some in (relevant, results))
    return by_ir, fbeta_score(*masks, beta=beta)


wide, narrow = photos[:9] + photos[10:22], photos[:6]  # P 9/21 and R 0.9; P 1 and R 0.6
for beta in (1, 2, 0.5, 4):
    for name, results in (("wide", wide), ("narrow", narrow)):
        by_ir, by_sklearn = both(results, beta)
        print(f"beta {beta}, {name}: ir_measures {by_ir:.4f}, scikit-learn {by_sklearn:.4f}, of the root of beta {both(results, beta**0.5)[1]:.4f}")
        assert abs(by_ir - both(results, beta**0.5)[1]) < 1e-6
        assert (abs(by_ir - by_sklearn) < 1e-6) == (beta == 1)
f2 = [both(results, 2) for results in (wide, narrow)]
assert f2[0][1] > f2[1][1] and f2[0][0] < f2[1][0]
PY
