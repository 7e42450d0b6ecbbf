"""Mistakes that people make: each is one line that says what is wrong, where, and what to do."""

import sys

import numpy as np
import pytest

from visterm.pipeline.cli.app import main

# What was typed; what and where; what to do. {} is a folder with the files that `files` writes.
MISTAKES = {
    "the run": [
        ("info --run nothing", "no run nothing in runs", "run 'visterm features IMAGES --run nothing' first"),
        ("info --run friut", "no run friut in runs", "did you mean fruit?"),
        ("info --run a/b", "--run 'a/b'", "one plain word, such as photos"),
        ("info --run ''", "--run ''", "one plain word, such as photos"),
    ],
    "usage": [
        ("frobnicate", "No such command 'frobnicate'", "'visterm --help' lists the options"),
        ("serch", "No such command 'serch'", "Did you mean 'search'"),
        ("search id:1 --colour", "No such option: --colour", "'visterm search --help' lists the options"),
        ("search id:1 -k 0", "Invalid value for '-k'", "greater than or equal to 1"),
        ("search id:1 -k x", "Invalid value for '-k'", "valid integer"),
        ("search id:1 --format xml", "Invalid value for '--format': 'xml'", "'table', 'json', 'csv'"),
        ("search id:1 --json --format csv", "--json and --format csv", "give only one of them"),
        ("search id:1 --learned-weight 2", "Invalid value for '--learned-weight'", "less than or equal to 1"),
        ("explain id:1", "Missing argument 'RESULT'", "'visterm explain --help' lists the options"),
        ("label add", "Missing argument 'LABEL'", "'visterm label add --help' lists the options"),
        ("train --for x", "Invalid value for '--for'", "'open', 'seen', 'unseen'"),
        ("train --time-limit soon", "--time-limit soon", "a time such as 90s, 5m or 1h"),
        ("tune --budget soon", "--budget soon", "a time such as 90s, 5m or 1h"),
        ("train --again --force", "--again", "takes no other option than --run and --json"),
        ("serve --port 99999", "Invalid value for '--port'", "less than or equal to 65535"),
        ("serve --token short", "--token", "give at least 22 ASCII letters"),
    ],
    "queries": [
        ("search", "no query", "give an image file, or --label NAME"),
        ("search ''", "a query is an empty name", "give an image file"),
        ("search missing.jpg", "missing.jpg: cannot be read (no such file", "give another image, a folder of images"),
        ("search id:x", "id:x: cannot be read (no such file", "or id:N"),
        ("search id:999", "id:999: run fruit has no image of this id", "give another image"),
        ("search {}/text.jpg", "text.jpg: not an image", "give another image"),
        ("search {}/empty.jpg", "empty.jpg: empty file", "give another image"),
        ("search {}/cut.jpg", "cut.jpg: truncated", "give another image"),
        ("search {}/folder", "folder: no images in this folder", "give another image"),
        ("search https://x.org/a.jpg", "https://x.org/a.jpg: an address on the web", "curl -O https://x.org/a.jpg"),
        ("search id:1 --learner osis", "unknown learner osis", "did you mean oasis?"),
        ("search id:1 --learner aroma", "run fruit has no trained aroma", "run 'visterm train --learner aroma"),
        ("search id:1 --learner oasis,knn", "only one learner can answer", "such as --learner oasis"),
        ("search id:1 --label paer", "run fruit has no label 'paer'", "did you mean pear?"),
        ("search id:1 --label PEAR", "run fruit has no label 'PEAR'", "did you mean pear?"),
        ("search id:1 --where DATE=2024", "no image has the field 'DATE'", "did you mean date?"),
        ("search id:1 --not-label zzz", "run fruit has no label 'zzz'", "there are apple, pear, plum"),
        ("search id:1 -", "search - reads queries from standard input", "give no others, or ./- for a file"),
        ("search id:1 --folder none", "no image passes --folder none", "folders are relative to"),
        ("search id:1 --where label=pear", "no image has the field 'label'", "--label NAME and --not-label NAME"),
        ("search id:1 --learner", "'--learner' requires an argument", "'visterm search --help' lists the options"),
        ("search id:1 --where camera", "where: 'camera' is no condition", "a value: camera=X100"),
        ("search id:1 --where camera=X", "no image has the field 'camera'", "there are date, date_source"),
        ("search id:1 --after soon", "after: 'soon' is not a date", "such as 2024, 2024-05"),
        ("search id:1 --region 0,0,2,2", "region:", "in shares of the image, each from 0 to 1"),
        ("search id:1 --example id:1@-1", "the examples cancel each other out", "change a weight or remove one"),
        ("search id:1 --learner cosine --min-probability 0.5", "cosine has no probability", "use a trained learner"),
        ("search id:1 --html results.txt", "--html results.txt", "ends in .html"),
        ("search id:1 --html none/a.html", "--html none/a.html", "no such folder: none"),
        ("search --label pear id:1 --query-label pear", "--query-label pear", "give images or --query-label, not both"),
        ("annotate id:1 --learner oasis", "oasis ranks images, not labels", "wsabie, pamir, warp"),
        ("explain id:1 id:2 --output why.txt", "--output why.txt", "ends in .png"),
    ],
    "images and settings": [
        ("features none", "none: no such folder", "give the folder that holds the images"),
        ("features {}/text.jpg", "text.jpg: not a folder", "give the folder that holds the images"),
        ("features {}/folder", "folder: no image could be read", "JPEG, PNG, WebP"),
        ("features ''", "the name of the image directory is empty", "give a directory"),
        ("features fruit --set features.n_visterm=5", "unknown key features.n_visterm", "did you mean n_visterms?"),
        ("features fruit --set features.n_visterms=many", "features.n_visterms", "a valid integer, not 'many'"),
        ("features fruit --set n_visterms", "--set n_visterms", "for example --set features.n_visterms=1000"),
        ("features fruit --config none.yaml", "none.yaml: no such configuration file", "configs/ holds examples"),
        ("features fruit --config {}/bad.yaml", "bad.yaml: not valid YAML", "at line 2"),
        ("features fruit --config {}/typo.yaml", "typo.yaml: unknown key featurs", "did you mean features?"),
        ("features fruit --config {}/list.yaml", "list.yaml", "expected sections such as 'features:'"),
        ("features fruit --set collection.labels=none.csv", "none.csv: cannot be read", "give the path of a table"),
        ("features fruit --set collection.labels={}/other.csv", "other.csv: none of its rows", "paths are relative to"),
        ("features fruit --set collection.labels={}/foo.csv", "foo.csv: no column path", "collection.name_column=NAME"),
        ("features fruit --set collection.labels={}/empty.csv", "empty.csv: empty", "with the columns path and label"),
        ("features fruit --run x --set features.kind=onnx", "onnx needs a model", "features.onnx.model=model.onnx"),
        ("features --vectors {}/v.npy --run x", "v.npy: has no ids", "--ids ids.txt"),
        ("features --vectors {}/v.npy --ids {}/2.txt --run x", "2.txt: 2 ids for 3 vectors", "one per vector"),
        ("features --vectors {}/v*.npz --run x", "v*.npz: no file matches this pattern", "such as 'img_emb/*.npy'"),
        ("features --vectors {}/folder --run x", "folder: a folder without .npy", "name them by a pattern"),
        ("features --vectors {}/v.txt --ids {}/2.txt --run x", "v.txt: holds no vectors", "use a .npy"),
        ("features fruit --deep --vectors {}/v.npy --run x", "give --deep or --vectors, not both", "need no network"),
        ("features fruit --deep --set collection.vectors.file=v.npy", "give --deep or --vectors, not both", "need no"),
        ("features fruit pear", "unexpected extra argument(s) (pear)", "give one folder, which holds all images"),
        ("features " + "fruit/pear/1.jpg " * 50 + "x", "unexpected extra argument(s) (fruit", "give one folder, which"),
        ("train fruit", "unexpected extra argument(s) (fruit)", "did you mean --run fruit?"),
        ("train aroma", "unexpected extra argument(s) (aroma)", "did you mean --learner aroma?"),
        ("features fruit --deep --set features.kind=onnx", "--deep and --set features.kind=onnx", "leave one of them"),
        (
            'features fruit --deep --set features={"kind":"onnx"}',
            "--deep and --set features={",
            "leave one of them out",
        ),
        (
            "features --vectors {}/v.npy --set collection.vectors.file=x.npy",
            "v.npy and --set coll",
            "leave one of them",
        ),
        ("features --ids a.txt --vectors b --set collection.vectors.ids=null", "--ids a.txt and --set", "leave one"),
        ("features fruit --skip-bad-rows --set collection.skip_bad_rows=false", "--skip-bad-rows and", "leave one of"),
        ("features fruit --scheduler none --set cluster.scheduler=tcp://h:1", "--scheduler none and", "leave one of"),
        ("train --for seen --set train.world=open", "--for seen and --set train.world=open", "leave one of them out"),
        ("train --budget 10m", "--budget is the time of --tune", "give both, or --time-limit"),
        ("train --set oasis.C=-1", "--set oasis.C=-1", "should be greater than 0"),
        ("evaluate --set evaluation.protocol=x", "unknown key evaluation", "did you mean evaluate?"),
        ("evaluate --learner aroma", "run fruit has no trained aroma", "run 'visterm train --learner aroma"),
    ],
    "the collection": [
        ("add missing.jpg", "missing.jpg: no such file or folder", "give images or folders"),
        ("remove", "no images given", "give files, folders, id:N, or --label NAME"),
        ("remove missing.jpg", "run fruit has no image missing.jpg", "give id:N or a path of the run"),
        ("remove --label zzz", "run fruit has no images with the label 'zzz'", "'visterm label list'"),
        ("label rename peer apple", "run fruit has no label 'peer'", "'visterm label list'"),
        ("label add pear id:999", "run fruit has no image id:999", "no label was changed"),
        ("label list none.jpg", "run fruit has no image none.jpg", "give id:N or a path of the run"),
        ("label export none/x.csv", "label export none/x.csv", "no such folder: none"),
        ("duplicates id:1 --not-same", "that show different pictures", "give two or more images"),
        ("model inspect none.onnx", "none.onnx: the model cannot be read", "give the path of an ONNX file"),
        ("model inspect {}/text.jpg", "text.jpg: not an ONNX model, or damaged", "export it again"),
        ("try none", "none: no such folder", "give the folder that holds the images"),
        ("try {}/folder", "folder: no images", "give the folder that holds the images"),
    ],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, finished):
    """A folder of files that nothing can be done with."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "folder").mkdir()
    texts = {"text.jpg": "no image", "empty.jpg": "", "empty.csv": "", "v.txt": "1 2", "2.txt": "a\nb\n"}
    texts |= {"bad.yaml": "features: [", "typo.yaml": "featurs: {}\n", "list.yaml": "- 1\n"}
    for name, text in (texts | {"other.csv": "path,label\nnone.jpg,x\n", "foo.csv": "foo,bar\n1,2\n"}).items():
        (folder / name).write_text(text)
    (folder / "cut.jpg").write_bytes((finished / "fruit/pear/0.jpg").read_bytes()[:600])
    np.save(folder / "v.npy", np.ones((3, 4), np.float32))
    return folder


def test_there_are_enough():
    """As many as were tried by hand when errors were last rewritten, and more."""
    typed = [command for mistakes in MISTAKES.values() for command, _, _ in mistakes]
    assert len(set(typed)) == len(typed) >= 68


@pytest.mark.parametrize(
    ("typed", "what", "advice"),
    [pytest.param(*one, id=one[0][:80]) for mistakes in MISTAKES.values() for one in mistakes],
)
def test_a_mistake_is_one_line_with_advice(finished, files, monkeypatch, capsys, typed, what, advice):
    monkeypatch.chdir(finished)
    monkeypatch.setenv("VISTERM_RUN", "")
    monkeypatch.delenv("VISTERM_RUNS", raising=False)
    before = sorted(path.name for path in (finished / "runs").iterdir())
    words = [word.replace("{}", str(files)).strip("'") if word != "''" else "" for word in typed.split(" ")]
    monkeypatch.setattr(sys, "argv", ["visterm", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("visterm: ")]
    assert len(err) < 1000
    assert (ended.value.code, out, len(lines)) == (2, "", 1)
    assert what in lines[0]
    assert advice in lines[0].replace(what, "", 1) or advice in what
    if what.startswith(("No such", "Invalid value", "Missing argument")):
        assert err == f"{lines[0]}\n"
        assert "--help' lists the options" in lines[0]
    assert sorted(path.name for path in (finished / "runs").iterdir()) == before
