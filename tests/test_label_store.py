"""Answers as they are kept, and as they come out again."""

import io
import sqlite3
import subprocess
import sys
import threading

import pandas as pd
import pytest

from pdcc import PairData
from pdcc.errors import ArtifactError, BusyError
from pdcc.label.export import answers_csv
from pdcc.label.store import Answer, KeyUsed, Store
from pdcc.storage.lock import claimed_file


def an_answer(key="key-0001", i="a", j="b", answer="same", annotator="Ann", chosen_by="random", probability=0.25):
    return Answer(key, i, j, answer, annotator, chosen_by, probability)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "answers.sqlite") as store:
        yield store


def test_what_is_kept_is_there_again(tmp_path):
    path = tmp_path / "answers.sqlite"
    kept = [an_answer(f"key-{k:04}", annotator=name) for k, name in enumerate(["Ann", "Bob", "Ann"])]
    with Store(path) as store:
        for answer in kept:
            store.add(answer)
        assert (store.count(), store.count("Ann"), store.count("Cem")) == (3, 2, 0)
    with Store(path) as store:
        assert store.kept() == kept
        assert (store.count(), store.count("Ann")) == (3, 2)
    with sqlite3.connect(path) as base:
        modes = [base.execute("PRAGMA journal_mode").fetchone()[0]]
        times = [row[0] for row in base.execute("SELECT time FROM answers")]
    base.close()
    assert modes == ["wal"]
    assert all(pd.Timestamp(t).tzinfo is not None for t in times)


def test_every_commit_waits_for_the_disk(store):
    assert store._one("PRAGMA synchronous") == 2


def test_a_key_is_kept_once(store):
    store.add(an_answer())
    with pytest.raises(KeyUsed, match="key-0001"):
        store.add(an_answer(answer="different"))
    assert store.kept() == [an_answer()]
    assert store.count() == 1


def test_undo_marks_and_deletes_nothing(store):
    store.add(an_answer())
    store.add(an_answer("key-0002"))
    assert store.latest("Ann") == "key-0002"
    assert store.withdraw("key-0002")
    assert not store.withdraw("key-0002")
    assert not store.withdraw("key-none")
    assert store.latest("Ann") == "key-0001"
    assert (store.count(), [a.key for a in store.kept()]) == (1, ["key-0001"])
    assert store.find("key-0002") == an_answer("key-0002")
    rows = store._base.execute("SELECT key, withdrawn IS NULL FROM answers ORDER BY number").fetchall()
    assert rows == [("key-0001", 1), ("key-0002", 0)]


def test_threads_share_a_store(store):
    def work(name):
        for k in range(40):
            store.add(an_answer(f"{name}-{k:06}", annotator=name))

    threads = [threading.Thread(target=work, args=(name,)) for name in ("Ann", "Bob", "Cem")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (store.count(), store.count("Bob"), len(store.kept())) == (120, 40, 120)


def damaged(path):
    with Store(path) as store:
        for k in range(80):
            store.add(an_answer(f"key-{k:04}", i="x" * 50))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


def other_program(path):
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE bookmarks (url TEXT)")
    base.commit()
    base.close()


def newer(path):
    Store(path).close()
    base = sqlite3.connect(path)
    base.execute("PRAGMA user_version = 99")
    base.close()


FILES = {
    "text": (lambda path: path.write_text("i,j,similar\n0,1,1\n" * 100), "not a database"),
    "a directory": (lambda path: path.mkdir(), "something else"),
    "another program's": (other_program, "another program"),
    "a newer one": (newer, "found version 99"),
    "damaged": (damaged, "readable file of answers"),
}


@pytest.mark.parametrize("kind", FILES)
def test_other_files_get_one_clear_error_and_stay_as_they_are(kind, tmp_path):
    make, sentence = FILES[kind]
    path = tmp_path / "found"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(ArtifactError, match=sentence):
        Store(path)
    assert before is None or path.read_bytes() == before


def test_an_empty_file_is_a_new_store(tmp_path):
    """What a kill between the making of the file and of its tables leaves."""
    (tmp_path / "answers.sqlite").touch()
    with Store(tmp_path / "answers.sqlite") as store:
        store.add(an_answer())
    base = sqlite3.connect(tmp_path / "bare.sqlite")
    base.execute("PRAGMA journal_mode = WAL")
    base.close()
    with Store(tmp_path / "bare.sqlite") as store:
        store.add(an_answer())
        assert store.count() == 1


def test_nothing_is_made_where_answers_are_only_read(tmp_path):
    with pytest.raises(ArtifactError, match="found none"):
        Store(tmp_path / "answers.sqlite", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_held_by_one_process(tmp_path):
    path = tmp_path / "answers.sqlite"
    code = f"from pathlib import Path\nfrom pdcc.storage.lock import claimed_file\nwith claimed_file(Path({str(path)!r})): pass"
    with claimed_file(path):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "BusyError" in done.stderr
        with pytest.raises(BusyError, match="found one in use by process"), claimed_file(path):
            pass
    with claimed_file(path):
        pass
    assert list(tmp_path.iterdir()) == []


ODD = ["007", "=1+1", "a,b", 'say "hi"', "line\nbreak", "ü-ß", "-5", "with\rreturn"]


def test_export_keeps_ids_exactly(store):
    for k, (i, j) in enumerate(zip(ODD, ODD[1:] + ODD[:1], strict=True)):
        store.add(an_answer(f"key-{k:04}", i=i, j=j, annotator="@Ann", answer=("same", "different", "unsure")[k % 3]))
    store.withdraw("key-0001")
    kept = [k for k in range(len(ODD)) if k != 1]
    table = pd.read_csv(io.BytesIO(answers_csv(store)), dtype=str)
    assert table.columns.tolist() == ["i", "j", "similar", "annotator", "chosen_by", "probability"]
    assert table.i.tolist() == [ODD[k] for k in kept]
    assert table.similar.tolist() == [("1", "0", "unsure")[k % 3] for k in kept]
    assert set(table.annotator) == {"@Ann"}
    assert set(table.probability) == {"0.25"}
    safe = pd.read_csv(io.BytesIO(answers_csv(store, safe=True)), dtype=str)
    assert [i for i in safe.i if i.startswith("'")] == ["'-5"]
    assert [j for j in safe.j if j.startswith("'")] == ["'=1+1", "'-5"]
    assert set(safe.annotator) == {"'@Ann"}


def test_a_chance_that_is_not_known_is_an_empty_cell(store):
    store.add(an_answer(probability=None, chosen_by="suggested"))
    assert answers_csv(store).decode().splitlines()[1] == "a,b,1,Ann,suggested,"


def test_fit_takes_what_is_exported(store):
    """Answers without "unsure" and in its own columns are pairs, by the ids that the features have."""
    for k, answer in enumerate(["same", "different", "unsure"]):
        store.add(an_answer(f"key-{k:04}", i=str(k + 5), j=str(k + 6), answer=answer))
    table = pd.read_csv(io.BytesIO(answers_csv(store)))
    table = table[table.similar != "unsure"].astype({"similar": int})[["i", "j", "similar", "annotator"]]
    data = PairData.from_frame([[0.0], [1.0], [2.0], [3.0]], table, item_ids=[5, 6, 7, 8])
    assert (data.i.tolist(), data.j.tolist(), data.similar.tolist()) == ([0, 1], [1, 2], [True, False])
