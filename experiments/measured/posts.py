"""Posts of 20 Newsgroups: their text and their terms."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.model_selection import train_test_split

from benchmarks.vectors import CACHE, DATA, keep

N_TERMS = 1000
TEST_SHARE = 0.35
# Headers that name or reveal the group of a post; the site of the paper's splits removes them.
NAMES_GROUP = re.compile(r"^(xref|path|newsgroups|followup-to|date)\s*:.*\n", re.IGNORECASE | re.MULTILINE)
MESSAGE_ID = re.compile(r"^message-id\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
TERM = r"(?u)\b[a-z][a-z]+\b"  # words of two letters or more: numbers name hosts and dates
# A term in fewer than three posts is uninformative about other posts.
COUNTED = {"stop_words": "english", "min_df": 3, "token_pattern": TERM}


def read_posts() -> list[tuple[str, str, str]]:
    """Headers, body and group of each post; of a cross-posted one, the first copy only."""
    posts, seen = [], set()
    with gzip.open(DATA / "newsgroups.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            post = json.loads(line)
            headers, _, body = post["text"].partition("\n\n")
            found = MESSAGE_ID.search(headers)
            name = found[1] if found else post["text"]
            if name not in seen:
                seen.add(name)
                posts.append((headers, body, post["label"]))
    return posts


@cache
def count_terms() -> tuple[sp.csr_array, np.ndarray]:
    """How often each post has each term, and the group of each post; cached under build/bench."""
    source = DATA / "newsgroups.jsonl.gz"
    made_from = zlib.crc32(f"{NAMES_GROUP.pattern}{MESSAGE_ID.pattern}{COUNTED}{source.stat().st_size}".encode())

    def write(path: Path) -> None:
        posts = read_posts()
        texts = [f"{NAMES_GROUP.sub('', headers + chr(10))}\n{body}" for headers, body, _ in posts]
        X = CountVectorizer(**COUNTED, dtype=np.int32).fit_transform(texts)
        groups = np.array([group for _, _, group in posts])
        np.savez_compressed(path, y=groups, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape)

    kept = keep(CACHE / f"newsgroups-{made_from:08x}.npz", write)
    with np.load(kept) as found:
        counts = sp.csr_array((found["data"], found["indices"], found["indptr"]), tuple(found["shape"]))
        return counts, found["y"]


def information_gain(has: sp.csr_array, y: np.ndarray) -> np.ndarray:
    """Information gain of each term's presence about the class, in bits: H(class) - H(class | has the term or not).

    Yang, Pedersen: A Comparative Study on Feature Selection in Text Categorization, ICML 1997. `has`, bool, is (n,
    n_terms).
    """
    classes, codes = np.unique(y, return_inverse=True)
    members = sp.csr_array((np.ones(len(y)), (codes, np.arange(len(y)))), (len(classes), len(y)))
    total = np.bincount(codes).astype(float)[:, None]
    with_term = (members @ has.astype(float)).toarray()  # (n_classes, n_terms)
    gain = np.full(has.shape[1], entropy(total / len(y))[0])
    for part in (with_term, total - with_term):
        size = part.sum(axis=0)
        gain -= size / len(y) * entropy(part / np.maximum(size, 1))
    return gain


def entropy(p: np.ndarray) -> np.ndarray:
    """Entropy of each column, in bits."""
    return -(p * np.log2(np.where(p > 0, p, 1))).sum(axis=0)


def load_split(repeat: int) -> tuple[sp.csr_array, np.ndarray, sp.csr_array, np.ndarray]:
    """X, y of the training posts and X, y of the test posts; terms and idf come from the training posts only."""
    counts, y = count_terms()
    learned, asked = train_test_split(np.arange(len(y)), test_size=TEST_SHARE, stratify=y, random_state=repeat)
    gain = information_gain(counts[learned] > 0, y[learned])
    terms = np.sort(np.argsort(-gain, kind="stable")[:N_TERMS])
    weigh = TfidfTransformer().fit(counts[learned][:, terms])
    X, Q = (sp.csr_array(weigh.transform(counts[rows][:, terms])).astype(np.float32) for rows in (learned, asked))
    return X, y[learned], Q, y[asked]
