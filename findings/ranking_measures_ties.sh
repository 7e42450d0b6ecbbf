#!/usr/bin/env bash
# Average precision and reciprocal rank of one ranking, by ranx, by ir_measures and by pytrec_eval (trec_eval's own code).
#
# Guess: scores are compared as the 64-bit numbers that Python hands over; equal ones keep the order in which they were given, or
#   all three break ties alike.
# What happens:
#   1. Equal scores: ranx keeps the order of the dictionary, so that the measure depends on how a ranking was written down; the
#      other two order them by name, the last name first.
#   2. Scores that differ by less than 32 bits hold, as cosines of near copies do (1 - 1e-9), are equal for pytrec_eval and
#      ir_measures, and then ordered by name: a ranking whose first answer is the right one gets 0.1. ranx gives it 1.0.
# Who meets it: those who compare their own evaluation with these tools, or one of them with another; similarities near 1, scores
#   with a large constant part, quantised or binary codes.
# Versions: ranx 0.3.21, ir_measures 0.4.3, pytrec_eval-terrier 0.5.11, NumPy 2.4.6, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ranx==0.3.21 ir_measures==0.4.3 pytrec_eval-terrier==0.5.11 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import ir_measures
import pytrec_eval
from ranx import Qrels, Run, evaluate

print(*(f"{name} {version(name)}" for name in ("ranx", "ir_measures", "pytrec_eval-terrier", "numpy")))


def of_all(relevant, scores):
    truth, run = {"query": {relevant: 1}}, {"query": scores}
    by_trec = pytrec_eval.RelevanceEvaluator(truth, {"recip_rank"}).evaluate(run)["query"]["recip_rank"]
    by_ir = ir_measures.calc_aggregate([ir_measures.RR], truth, run)[ir_measures.RR]
    return [round(float(value), 3) for value in (evaluate(Qrels(truth), Run(run), "mrr"), by_ir, by_trec)]


names = [f"photo{i}" for i in range(10)]
ascending = of_all("photo3", dict.fromkeys(names, 1.0))
descending = of_all("photo3", dict.fromkeys(reversed(names), 1.0))
print("1. ten equal scores, names ascending: ranx, ir_measures, pytrec_eval", ascending)
print("   the same, written down in the other order:                        ", descending)
assert ascending[0] == 0.25 and descending[0] == round(1 / 7, 3)
assert ascending[1:] == descending[1:] == [round(1 / 7, 3)] * 2

close = of_all("photo0", {name: 1 - i * 1e-9 for i, name in enumerate(names)})
apart = of_all("photo0", {name: 1 - i * 1e-6 for i, name in enumerate(names)})
print("2. the right answer is first by 1e-9:", close, "by 1e-6:", apart)
assert close == [1.0, 0.1, 0.1] and apart == [1.0, 1.0, 1.0]
PY
