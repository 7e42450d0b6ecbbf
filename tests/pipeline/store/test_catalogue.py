"""Opening and reading the catalogue, and its transactions."""

import contextlib
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from visterm.pipeline.errors import UserError
from visterm.pipeline.search.state import disk_state
from visterm.pipeline.store import database
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.checksums import file_crc32
from visterm.pipeline.store.database import change_counter
from visterm.pipeline.store.in_memory import opened_in_memory


def test_counts_come_in_the_order_asked_for(collection, scan, extract):
    scan("a/1.jpg", "a/2.jpg", "a/3.jpg")
    images = extract()
    np.testing.assert_array_equal(collection.counts(images[::-1]).toarray(), [[0, 0, 3], [0, 2, 0], [1, 0, 0]])


def test_a_catalogue_that_another_process_writes_is_not_called_damaged(collection, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    with contextlib.closing(sqlite3.connect(collection.folder / "catalogue.sqlite", isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UserError, match=r"database is locked.*try again later") as refused:
            Collection(collection.folder)
        assert "remove" not in str(refused.value)
    Collection(collection.folder).close()


def test_a_refused_transaction_is_rolled_back(collection):
    def enter():
        with collection.transaction():
            collection["a"] = "1"
            collection.execute("INSERT INTO meta VALUES ('a', '2')")

    with pytest.raises(sqlite3.IntegrityError):
        enter()
    assert collection["a"] is None


def test_looking_at_a_catalogue_leaves_the_locks_of_its_writers(run):
    """A process that closes a descriptor of a file loses the locks that SQLite has on it."""
    file = run.collection / "catalogue.sqlite"
    write = f"import sqlite3; sqlite3.connect({str(file)!r}, timeout=0).execute('BEGIN IMMEDIATE')"
    with Collection(run.collection) as collection, collection.transaction():
        collection["looked"] = "at"
        disk_state(run)
        change_counter(file)
        file_crc32(file)
        opened_in_memory(file).close()
        other = subprocess.run([sys.executable, "-c", write], capture_output=True, text=True)
    assert "database is locked" in other.stderr
