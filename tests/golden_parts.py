"""What tests/golden.py makes, part by part; the commands and addresses stand in golden.txt."""

import json
import re
import shutil
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SECTIONS = Path(__file__).with_name("golden.txt").read_text().strip().split("\n\n")[1:]
LINES = {name.strip("[]"): lines for name, *lines in map(str.splitlines, SECTIONS)}
FEW = ("Faces", "bonsai", "crab", "ketch")  # the classes of small runs


def help_texts(golden):
    """Keep the help of every command."""

    def walk(command):
        text = golden.run(f"{command} --help")
        for name in re.findall(r"^  ([a-z]+)  +[A-Z]", text.partition("Options:\n")[2], re.MULTILINE):
            walk(f"{command} {name}".strip())

    walk("")
    golden.run_all(["nothing", "search --nothing", "train --learner nothing", "search -k 0 a.jpg", "label"])


def caltech(golden):
    """Both configurations of Caltech-101, with few photos and few steps; most learners."""
    golden.photos("caltech101", None, 12)
    few = "--set compute.n_jobs=1 --set split.train=7 --set split.test=5"
    for name in ("caltech101-20", "caltech101-20-10000"):
        golden.run(f"features caltech101 --config {REPOSITORY}/configs/{name}.yaml {few}")
    golden.run("train --run caltech101-20-10000 --set oasis.n_steps=4000 --for open --json")
    golden.run("train --run caltech101-20-10000")
    golden.run("evaluate --run caltech101-20-10000 --json")
    for learner in ("oasis", "aroma", "wsabie", "pamir", "warp", "ovr", "hier", "lego"):
        steps = f"--set {learner}.n_steps=3000 --set {learner}.pass_steps=1000"
        golden.run(f"train --run caltech101-20 --learner {learner} {steps}")
    golden.run_all(LINES["caltech"], "--run caltech101-20")
    golden.artifacts("runs")
    golden.artifacts("exported")
    golden.artifacts("drawn")


def deep(golden):
    """Vectors of a network."""
    golden.photos("deep", FEW, 8)
    golden.run("features deep --deep --set compute.n_jobs=1")
    golden.run_all(LINES["deep"], "--run deep")
    golden.artifacts("runs")


def labelled(golden, name, more=""):
    """Make a small run with labels, two learners and a photo that is there twice."""
    golden.photos(name, FEW, 12)
    shutil.copy2(golden.work / name / "crab/image_0001.jpg", golden.work / name / "crab/copy.jpg")
    steps = " ".join(f"--set {learner}.n_steps=4000 --set {learner}.pass_steps=1000" for learner in ("oasis", "wsabie"))
    golden.run(f"features {name} --set compute.n_jobs=1 --set features.n_visterms=60 {steps} {more}")
    golden.run(f"train --run {name} --learner oasis,wsabie")


def flat(golden):
    """Photos without labels: a similarity learned from marks, its updates, undoing, forgetting."""
    golden.photos("flat", FEW, 12, flat=True)
    golden.run("features flat --set compute.n_jobs=1 --set features.n_visterms=60")
    golden.run_all(["train", "feedback status --json"], "--run flat")
    with golden.client("flat") as ask:
        for query in (1, 13, 25):
            answer = ask(f"GET /search?id={query}&k=12").json()[0]
            for result in answer["results"][:8]:
                relevant = result["rank"] == 1 or result["path"][:3] == answer["query"][:3]
                mark = {"query": answer["key"], "image": result["id"], "mark": 1 if relevant else -1}
                ask("POST /marks", json=mark)
            ask(f"GET /marks?query={answer['key']}")
        ask("POST /marks/undo", json={"query": answer["key"]})
        ask("POST /feedback/update", json={"learner": "oasis", "query": answer["key"]})
        for path in ("/search?id=1&k=5", "/api/feedback/effect?learner=oasis", "/feedback/export", "/api/run"):
            ask(f"GET {path}")
    golden.run_all(LINES["flat"], "--run flat")
    golden.artifacts("runs")


def labels(golden):
    """Edited labels, other images, and what follows from them."""
    labelled(golden, "labels")
    golden.photos("more", FEW, 16)
    golden.run_all(LINES["labels"], "--run labels")
    results = golden.run("search id:9 -k 3 --run labels --json")
    golden.run("label add bay --run labels", stdin=results)
    golden.artifacts("runs")


def index(golden):
    """The kinds of indexes, and a codebook of trees, which MuSL needs."""
    trees = "--set features.codebook.kind=forest --set features.codebook.n_trees=3 --set features.normalization=l1"
    labelled(golden, "index", f"--set index.kind=two-stage --set index.n_candidates=20 {trees}")
    golden.run_all(LINES["index"], "--run index")
    golden.artifacts("runs")
    golden.run_all(LINES["milvus"], "--run index")


def api(golden):
    """The service: its description, the JSON of its answers, and what it changes."""
    labelled(golden, "api")
    golden.run("evaluate --run api --learner oasis,wsabie")
    golden.serve("serve --run api --port 0")
    golden.serve("judge --run api --learner oasis --queries 2 --port 0")
    photo = (golden.work / "api/crab/image_0001.jpg").read_bytes()
    with golden.client("api") as ask:
        ask("GET /openapi.json")
        ask("POST /api/map")
        ask("GET /api/map", until=lambda state: not state["making"])
        upload = ask("POST /search", files={"file": ("a.jpg", photo)}, data={"k": "3"}).json()[0]["upload"]
        ask("POST /annotate", files={"file": ("a.jpg", photo)}, data={"k": "3"})
        ask("POST /search", files={"file": ("a.txt", b"no photo")})
        for path in LINES["read"]:
            ask(f"GET {path}".replace("UPLOAD", upload))
        for line in LINES["write"]:
            path, body = line.split(" ", 1)
            ask(f"POST {path}", json=json.loads(body))
        ask("POST /api/train")
        ask("GET /api/train", until=lambda state: not state["running"])
        ask("POST /api/train/undo")
        removal = ask("POST /api/images/remove", json={"ids": [7, 8]}).json()
        ask("POST /api/images/restore", json={"undo": removal["undo"]})
        ask("POST /api/add/photo", files={"file": ("new photo.jpg", photo)})
        ask("POST /api/add")
        ask("GET /api/add", until=lambda state: not state["running"])
        ask("POST /images/download", data={"ids": "1,2"})
        task = ask("GET /api/judge/next?judge=ann").json()["task"]
        for decision in ("relevant", "not"):
            body = {"judge": "ann", "task": task["task"], "image": task["image"], "decision": decision}
            task = ask("POST /api/judge/decisions", json=body).json()["task"]
        ask("POST /api/judge/undo", json={"judge": "ann"})
        for path in ("results", "export?format=json", "export?format=csv", "export?format=qrels"):
            ask(f"GET /api/judge/{path}")
    golden.run_all(["judge results", "judge results --json", "judge export --format qrels", "info"], "--run api")
    golden.artifacts("runs")


PARTS = {
    "help": help_texts,
    "caltech": caltech,
    "deep": deep,
    "flat": flat,
    "labels": labels,
    "index": index,
    "api": api,
}
