"""``pdcc label`` before it serves: what is shown of items, where pairs come from, and one sentence for each mistake."""

import logging
import socket
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pytest

import pdcc.label.command
from pdcc import PairData, VolMaxDCC
from pdcc.cli import main
from pdcc.errors import ArtifactError, PairDataError
from pdcc.label.desk import Desk, Refused, answered_pairs, clean_name
from pdcc.label.items import Items, find_images, image_type, read_cells
from pdcc.label.session import Subject, opened, read_items, read_subject
from pdcc.label.store import Answer, Store
from pdcc.report.looks import read_looks
from pdcc.storage import run as runs
from pdcc.storage.lock import claimed_file


def run_pdcc(*arguments) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code)


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    pd.DataFrame({"name": ["a", "b", "c"], "width": [1.5, 2.0, 3.25]}).to_csv(tmp_path / "x.csv", index=False)
    (tmp_path / "items.csv").write_text("item,text,code\n2,two,007\n0,none,1.50\n1,one,NA\n")
    (tmp_path / "names.csv").write_text("name,text\nc,third\na,first\nb,second\n")
    return tmp_path


def test_cells_are_shown_as_they_are_written_and_by_id(files):
    cells = read_cells(files / "items.csv", ["0", "1", "2"], None)
    items = Items(("0", "1", "2"), cells)
    assert [items.shown(row)["fields"] for row in range(3)] == [[["code", "1.50"]], [["code", "NA"]], [["code", "007"]]]
    assert [items.shown(row)["text"] for row in range(3)] == ["none", "one", "two"]
    named = Items(("a", "b", "c"), read_cells(files / "names.csv", ["a", "b", "c"], "name"))
    assert named.shown(2) == {"text": "third", "fields": [], "image": None}


def test_numbers_with_leading_zeros_are_the_ids_that_fit_sees(files):
    """Both tables are read by pandas, to which 007 is 7; so they meet, and so do the answers."""
    (files / "x.csv").write_text("name,width\n007,1\n008,2\n")
    (files / "names.csv").write_text("name,text\n008,eight\n007,seven\n")
    items = read_items(read_subject(files / "x.csv", id_column="name"), items=files / "names.csv")
    assert items.ids == ("7", "8")
    assert items.shown(0)["text"] == "seven"


def test_tables_of_parquet_are_shown(files):
    pd.DataFrame({"item": [1, 0], "size": [1, None], "word": ["x", None]}).to_parquet(files / "items.parquet")
    items = Items(("0", "1"), read_cells(files / "items.parquet", ["0", "1"], None))
    assert items.shown(0)["fields"] == [["size", ""], ["word", ""]]


def test_columns_of_the_features_are_shown_where_nothing_else_is(files):
    items = read_items(read_subject(files / "x.csv", id_column="name"))
    assert (items.ids, items.shown(2)) == (("a", "b", "c"), {"text": "3.25", "fields": [], "image": None})


def test_images_are_found_by_id(tmp_path):
    for name in ("cat.1.png", "dog.JPG", "notes.txt", "whole.gif"):
        (tmp_path / name).write_bytes(b"")
    assert find_images(tmp_path, ["whole.gif", "cat.1", "dog"]) == ("whole.gif", "cat.1.png", "dog.JPG")
    with pytest.raises(PairDataError, match=r"none for 'notes' \(first at row 1"):
        find_images(tmp_path, ["dog", "notes"])
    (tmp_path / "dog.png").write_bytes(b"")
    with pytest.raises(PairDataError, match=r"dog.JPG and dog.png"):
        find_images(tmp_path, ["dog"])
    assert find_images(tmp_path, ["dog.JPG", "dog.png"]) == ("dog.JPG", "dog.png")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF89a", "image/gif"), (b"RIFF0000WEBPVP8", "image/webp"),
        (b"\x00\x00\x00\x1cftypavif", "image/avif"), (b"<svg onload='x'/>", None), (b"<html>", None), (b"", None), (b"RIFF0000WAVE", None),
    ],
)  # fmt: skip
def test_the_first_bytes_tell_an_image(content, kind):
    assert image_type(content) == kind


def test_names_are_cleaned():
    assert clean_name("  Ann   Bee ") == "Ann Bee"
    assert [clean_name(n) for n in ("", "x" * 81, "a\x00b", None, 7)] == [None] * 5


MISTAKES = {
    "nothing there": (["nowhere.npy"], "expected a file"),
    "numbers alone": (["x.npy"], "something to show of each item"),
    "no column item": (["x.npy", "--items", "names.csv"], "expected a column item, found the columns name, text"),
    "an item without a text": (["x.csv", "--id-column", "name", "--items", "items.csv"], "3 that are not in it, such as 'a'"),
    "no folder": (["x.npy", "--images", "nowhere"], "expected a folder"),
    "a name of nothing": (["x.npy", "--items", "items.csv", "--annotator", " "], "--annotator: expected a name"),
    "no such id column": (["x.csv", "--id-column", "id", "--items", "items.csv"], "id column: expected a column of x.csv"),
    "features of features": (["x.npy", "--features", "x.npy"], "expected a run beside it"),
    "a foreign store": (["x.npy", "--items", "items.csv", "--store", "x.csv"], "not a database"),
    "no answers yet": (["x.npy", "--export", "answers.csv"], "expected a file of answers, found none"),
    "safe without export": (["x.npy", "--items", "items.csv", "--safe-csv"], "--safe-csv: expected --export"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_sentence_for_a_mistake(mistake, files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    arguments, sentence = MISTAKES[mistake]
    assert run_pdcc("label", *arguments) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert said.out == ""


def test_a_port_in_use_is_said(files, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_pdcc("label", files / "x.npy", "--items", files / "items.csv", "--port", port) == 2
    assert f"127.0.0.1 port {port}" in capsys.readouterr().err


def test_a_second_server_of_one_store_is_refused(files, capsys):
    with claimed_file(files / "x.answers.sqlite"):
        assert run_pdcc("label", files / "x.npy", "--items", files / "items.csv") == 2
    assert "that no other command is writing to" in capsys.readouterr().err


def test_without_its_packages_it_says_how_to_get_them(files, capsys, monkeypatch):
    monkeypatch.setattr(pdcc.label.command, "find_spec", lambda name: None)
    assert run_pdcc("label", files / "x.npy", "--items", files / "items.csv") == 2
    assert "pip install 'pdcc[label]'" in capsys.readouterr().err


def test_help_loads_no_server():
    code = "import sys\nfrom pdcc.cli import main\ntry: main(['label', '--help'])\nexcept SystemExit as stop: assert stop.code == 0\n"
    code += "print('loaded:', *[m for m in ('starlette', 'uvicorn', 'torch', 'numpy', 'sqlite3') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--overlap" in done.stdout
    assert done.stdout.strip().splitlines()[-1] == "loaded:"


def test_export_from_the_shell(files, capsys):
    with Store(files / "x.answers.sqlite") as store:
        store.add(Answer("key-0001", "=a", "b", "same", "Ann", "random", 0.5))
    assert run_pdcc("label", files / "x.csv", "--export", files / "answers.csv") == 0
    assert "1 answers in" in capsys.readouterr().out
    assert (files / "answers.csv").read_text().splitlines()[1] == "=a,b,1,Ann,random,0.5"
    assert run_pdcc("label", files / "x.csv", "--export", files / "answers.csv", "--safe-csv") == 0
    assert (files / "answers.csv").read_text().splitlines()[1] == "'=a,b,1,Ann,random,0.5"
    assert run_pdcc("label", files / "x.csv", "--export", files / "x.answers.sqlite") == 2  # never over the answers
    with Store(files / "x.answers.sqlite") as store:
        assert store.count() == 1


def test_answers_about_other_items_are_not_mixed(tmp_path):
    with Store(tmp_path / "answers.sqlite") as store:
        store.add(Answer("key-0001", "a", "z", "same", "Ann", "random", 0.5))
        with pytest.raises(ArtifactError, match="found one about 'z'"):
            list(answered_pairs(store, Items(("a", "b"))))
        assert [(pair.rows, name) for pair, name in answered_pairs(store, Items(("z", "b", "a")))] == [((0, 2), "Ann")]


def answer_all(desk: Desk, n: int) -> list[Answer]:
    found = desk.next("page-0001", "Ann")
    for k in range(n):
        ticket = found["pair"]["ticket"]
        found = desk.answer(ticket=ticket, answer="same", key=f"key-{k:06}", client="page-0001", annotator="Ann")
    return desk.store.kept()


def fit_a_run(home, epochs):
    """As ``pdcc fit`` does it, with a smaller network."""
    params = {
        "n_clusters": 3,
        "hidden": (16,),
        "epochs": epochs,
        "confusion": "none",
        "volume": 0.0,
        "scale": "standard",
    }
    data = PairData.read(home / "x.csv", home / "pairs.csv", id_column="name")
    estimator = VolMaxDCC(**params, init="random", random_state=0)
    estimator.fit_data(data)
    source = runs.Source.of(home / "x.csv", home / "pairs.csv", "name")
    runs.finish(home / "run", *estimator.described(), data, source, params)


@pytest.fixture(scope="module")
def fitted_run(tmp_path_factory, blobs):
    """A run whose features lie in a table with ids, and the pairs it was fitted to."""
    home = tmp_path_factory.mktemp("run")
    table = pd.DataFrame(blobs.X[:30], columns=list("abcd"))
    table.insert(0, "name", [f"n{r}" for r in range(30)])
    table.to_csv(home / "x.csv", index=False)
    inside = (blobs.answers.pairs < 30).all(axis=1)
    pairs, similar = blobs.answers.pairs[inside], blobs.answers.similar[inside]
    ends = {c: [f"n{r}" for r in pairs[:, k]] for k, c in enumerate("ij")}
    pd.DataFrame({**ends, "similar": similar.astype(int)}).to_csv(home / "pairs.csv", index=False)
    fit_a_run(home, epochs=2)
    return home, np.sort(pairs, axis=1)


def test_a_run_knows_its_items_and_what_was_answered(fitted_run, tmp_path):
    home, pairs = fitted_run
    subject = read_subject(home / "run")
    items = read_items(subject)
    assert items.ids[:2] == ("n0", "n1")
    assert [name for name, _ in items.shown(0)["fields"]] == list("abcd")
    before = set(map(tuple, pairs.tolist()))
    with opened(subject, items, tmp_path / "answers.sqlite") as desk:
        kept = answer_all(desk, 60)
    assert {a.chosen_by for a in kept} <= {"random", "suggested"}
    rows = {tuple(sorted((int(a.i[1:]), int(a.j[1:])))) for a in kept}
    assert len(rows) == 60
    assert not rows & before
    with pytest.raises(PairDataError, match="none beside a run"):
        read_subject(home / "run", id_column="name")


def test_a_fit_suggests_and_a_new_fit_is_taken_up(fitted_run, tmp_path, monkeypatch, caplog):
    home, _ = fitted_run
    asked = []

    def suggest_pairs(self, X, n=200, exclude=None, random_state=0):
        asked.append((self, X.shape, n, len(exclude)))
        return pd.DataFrame({"i": [0], "j": [29], "gain": [0.5], "chosen_by": ["suggested"], "probability": [0.125]})

    monkeypatch.setattr(VolMaxDCC, "suggest_pairs", suggest_pairs)
    subject = read_subject(home / "run")
    assert subject.source is not None
    exclude = np.array([[0, 1]])
    assert subject.source(5, exclude).j.tolist() == [29]
    assert subject.source(5, exclude).j.tolist() == [29]
    assert [entry[1:] for entry in asked] == [((30, 4), 5, 1)] * 2
    assert asked[0][0] is asked[1][0]
    fit_a_run(home, epochs=3)
    with caplog.at_level(logging.INFO, "pdcc"):
        subject.source(5, exclude)
    assert asked[2][0] is not asked[0][0]
    assert "was fitted again" in caplog.text


def test_a_fit_of_named_columns_suggests_by_name(fitted_run):
    """scikit-learn warns of columns without names where a fit had some, and warnings are errors here."""
    subject = read_subject(fitted_run[0] / "run")
    assert subject.source is not None
    table = subject.source(5, np.array([[0, 1]]))
    assert len(table) == 5


def test_suggested_answers_say_so(tmp_path):
    def source(n, exclude):
        return pd.DataFrame({"i": [2], "j": [0], "gain": [0.5], "chosen_by": ["suggested"], "probability": [0.125]})

    items = Items(("a", "b", "c"), pd.DataFrame({"text": ["x", "y", "z"]}))
    with opened(Subject(np.zeros((3, 1)), None, None, None, source), items, tmp_path / "answers.sqlite") as desk:
        desk.queue._ahead.extend(desk.queue._read(source(1, None)))
        kept = answer_all(desk, 3)
    assert (kept[0].i, kept[0].j, kept[0].chosen_by, kept[0].probability) == ("c", "a", "suggested", 0.125)
    assert {a.chosen_by for a in kept[1:]} == {"random"}


@pytest.mark.parametrize("one_key", [True, False], ids=["one key", "a key each"])
def test_one_pair_answered_at_the_same_moment_is_kept_once(one_key, tmp_path, monkeypatch):
    find, add = Store.find, Store.add
    # Room for a race: after the look at the key, and between the look at the pair and the answer.
    monkeypatch.setattr(Store, "find", lambda self, key: (find(self, key), time.sleep(0.02))[0])
    monkeypatch.setattr(Store, "add", lambda self, answer: (time.sleep(0.02), add(self, answer))[1])
    items = Items(("a", "b"), pd.DataFrame({"text": ["x", "y"]}))
    outcomes = []
    with opened(Subject(np.zeros((2, 1)), None, None), items, tmp_path / "answers.sqlite") as desk:
        ticket = desk.next("page-0001", "Ann")["pair"]["ticket"]

        def work(number):
            key = "key-0001" if one_key else f"key-000{number}"
            try:
                desk.answer(ticket=ticket, answer="same", key=key, client="page-0001", annotator="Ann")
                outcomes.append(200)
            except Refused as refused:
                outcomes.append(refused.status)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(desk.store.kept()) == desk.store.count() == 1
    assert sorted(outcomes) == ([200] * 6 if one_key else [200, *[404] * 5])


def test_a_full_disk_keeps_the_pair_for_another_try(tmp_path, monkeypatch):
    items = Items(("a", "b"), pd.DataFrame({"text": ["x", "y"]}))
    with opened(Subject(np.zeros((2, 1)), None, None), items, tmp_path / "answers.sqlite") as desk:
        ticket = desk.next("page-0001", "Ann")["pair"]["ticket"]
        said = {"ticket": ticket, "answer": "same", "key": "key-0001", "client": "page-0001", "annotator": "Ann"}
        with monkeypatch.context() as patch:
            patch.setattr(Store, "add", lambda *_: (_ for _ in ()).throw(sqlite3.OperationalError("disk is full")))
            with pytest.raises(sqlite3.OperationalError):
                desk.answer(**said)
        assert desk.store.count() == 0
        assert desk.answer(**said)["progress"]["mine"] == 1
        assert desk.next("page-0002", "Bob")["pair"] is None


def test_label_and_report_find_the_same_items_whatever_zeros_their_ids_begin_with(tmp_path):
    """007 is 7 where pandas read the features' ids as numbers, and is not where they are text."""
    (tmp_path / "items.csv").write_text("item,text\n008,eight\n007,seven\n")
    for names in (["7", "8"], ["007", "008"]):
        cells = read_cells(tmp_path / "items.csv", names, None)
        assert cells["text"].tolist() == ["seven", "eight"]
        assert read_looks(names, tmp_path / "items.csv", None).texts == {0: "seven", 1: "eight"}
    assert read_looks(["007", "x"], tmp_path / "items.csv", None).texts == {0: "seven"}
    with pytest.raises(PairDataError, match="found none of them"):
        read_looks(["7", "x"], tmp_path / "items.csv", None)  # text, so that 7 is another item than 007
    with pytest.raises(PairDataError, match="'7'"):
        read_cells(tmp_path / "items.csv", ["7", "x"], None)
