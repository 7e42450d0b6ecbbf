"""Label edits: what stands of a long history."""

from visterm.pipeline.store import label_edits
from visterm.pipeline.store.label_edits import LabelEdits


def test_what_stands_is_read_in_rows_that_do_not_grow_with_the_history(tmp_path, monkeypatch):
    store = LabelEdits(tmp_path / "label_edits.sqlite")
    read, rows = [], label_edits._rows
    monkeypatch.setattr(label_edits, "_rows", lambda *query: [read.append(row) or row for row in rows(*query)])
    image = {"image": 1, "path": "a.jpg", "sha256": "", "weight": None, "source": "page"}
    history = [image | {"label": f"l{i % 3}", "change": (1, 1, -1, 0)[i % 4]} for i in range(203)]
    # A label in another Unicode form is the same one: the last row of both stands.
    for edits in (
        history,
        [image | {"label": "cafe\u0301", "change": 1}],
        [image | {"label": "caf\u00e9", "change": -1}],
    ):
        store.append(edits)
    (standing,) = store.standing().values()
    assert {label: edit.change for label, edit in standing.items()} == {"l0": 1, "l1": -1, "l2": 1, "caf\u00e9": -1}
    assert len(read) == 5
