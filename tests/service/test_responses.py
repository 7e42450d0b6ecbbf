"""Texts of errors."""

import pytest

from visterm.service.responses import hide_folders


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/jo/my runs/photos/x.sqlite: damaged; run it", "photos/x.sqlite: damaged; run it"),
        ("cannot read '/etc/secret/a b/key' (/usr/lib/x.so)", "cannot read 'a b/key' (x.so)"),
        ("model=/opt/models/net.onnx", "model=net.onnx"),
        ("pears/1.jpg and a/b/c: not similar; 1 / 2", "pears/1.jpg and a/b/c: not similar; 1 / 2"),
    ],
)
def test_folders_are_hidden(text, shown):
    assert hide_folders(text, "/home/jo/my runs") == shown
