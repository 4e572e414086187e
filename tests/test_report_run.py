"""A report from a run: what is gathered, what is looked up for its items, and the command."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_up import made_diagnosis, picture

from pdcc import PairData, PairDataError, VolMaxDCC
from pdcc.cli import main
from pdcc.errors import ArtifactError
from pdcc.report import gather, gather_fit, render, write_report
from pdcc.report.collect import FEWEST_DRAWN, MOST_DRAWN, draw
from pdcc.report.content import Looks, Part
from pdcc.report.extras import Extras, compute_extras
from pdcc.report.looks import read_looks, thumbnails

TINY = {"confusion": "sigmoid", "volume": 0.0, "scale": "standard", "hidden": (8,), "epochs": 3, "random_state": 0, "progress": False, "device": "cpu"}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory, noisy_blobs):
    """A run made by the command line from a table with ids, column names and annotators."""
    place = tmp_path_factory.mktemp("report")
    ids = [f"<i>{n}" for n in range(len(noisy_blobs.X))]
    table = pd.DataFrame(noisy_blobs.X, columns=list("abcd"))
    table.assign(name=ids).to_csv(place / "x.csv", index=False)
    a = noisy_blobs.answers
    left, right = ([ids[n] for n in a.pairs[:, side]] for side in (0, 1))
    who = [f"<u>{n % 3}" for n in range(len(left))]
    pd.DataFrame({"i": left, "j": right, "similar": a.similar.astype(int), "annotator": who}).to_csv(place / "pairs.csv", index=False)  # fmt: skip
    with pytest.raises(SystemExit) as stop:
        main(["-q", "fit", str(place / "x.csv"), str(place / "pairs.csv"), "-k", "3", "-o", str(place / "run"), "--id-column", "name", "--epochs", "2", "--confusion", "none", "--volume", "0", "--scale", "standard", "--init", "kmeans"])  # fmt: skip
    assert stop.value.code == 0
    return place


@pytest.fixture
def diagnosed(monkeypatch):
    """The diagnosis made up, and what it was asked for."""
    asked = []

    def made(fitted, data, **options):
        asked.append(options)
        names = tuple(range(data.n_items)) if data.item_ids is None else tuple(data.item_ids)
        return made_diagnosis(fitted.memberships(data.features).argmax(axis=1), fitted.config.n_clusters, names)

    monkeypatch.setattr("pdcc.report.collect.diagnose", made)
    return asked


def test_what_a_run_knows_is_gathered(files, diagnosed):
    content = gather(files / "run", quick=True, random_state=3)
    est = VolMaxDCC.load(files / "run")
    assert [(a["quick"], a["random_state"]) for a in diagnosed] == [(True, 3)]
    assert content.names[4] == "<i>4"
    assert (content.n_items, content.n_clusters, content.n_answers, content.n_annotators) == (150, 3, 600, 3)
    np.testing.assert_array_equal(content.labels, est.labels_)
    assert not content.free
    assert content.sampled.shape == (150, 4)
    held = est.fitted_.split.held
    assert len(content.calibration.similar) == held.sum() == est.report_.n_held_out
    pairs = pd.read_csv(files / "pairs.csv")[held]
    rows = np.column_stack([pairs[c].str[3:].astype(int) for c in ("i", "j")])
    table = pd.read_csv(files / "x.csv")[list("abcd")]
    np.testing.assert_allclose(content.calibration.probability, est.predict_pairs(table, rows, pairs["annotator"]))
    assert content.facts.seed == 0
    assert set(content.facts.hashes) >= {"features: x.csv", "pairs: pairs.csv"}
    assert content.facts.versions["pdcc"]
    assert str(files) not in render(content)  # directories tell of people


def test_nothing_is_computed_where_that_is_asked(files, diagnosed):
    content = gather(files / "run", compute=False)
    assert diagnosed == []
    assert content.diagnosis is None
    assert set(content.absent) >= {Part.DIAGNOSIS, Part.ANNOTATORS, Part.DOUBTFUL, Part.SUGGESTED}
    assert "It was left out of this report" in render(content)


def test_a_fit_in_memory_has_a_report(noisy_blobs):
    a = noisy_blobs.answers
    data = PairData.from_arrays(noisy_blobs.X, a.pairs, a.similar)
    est = VolMaxDCC(3, **TINY).fit(noisy_blobs.X, a.pairs, a.similar)
    content = gather_fit(est, data, compute=False)
    assert content.free
    assert content.history
    assert content.facts.hashes == {"answers": data.fingerprint()}
    assert content.facts.options["hidden"] == (8,)
    page = render(content)
    assert "figure-history" in page
    assert "(8,)" in page


def test_what_to_ask_and_whom_to_trust_is_computed(noisy_blobs):
    a = noisy_blobs.answers
    who = np.array(["ann", "<b>bob"])[np.arange(len(a.similar)) % 2]
    data = PairData.from_arrays(noisy_blobs.X, a.pairs, a.similar, who)
    est = VolMaxDCC(3, **TINY).fit(noisy_blobs.X, a.pairs, a.similar, who)
    found = compute_extras(est, data)
    assert sorted(found.annotators["annotator"]) == ["<b>bob", "ann"]
    np.testing.assert_array_equal(found.doubtful["i"], data.i)
    assert len(found.suggested) == 30
    assert "stop if that is not worth it" in found.stopping
    assert found.absent == {}
    unnamed = VolMaxDCC(3, **TINY).fit(noisy_blobs.X, a.pairs, a.similar)
    found = compute_extras(unnamed, replace(data, annotator=None, annotator_names=()))
    assert "do not say who gave them" in found.absent[Part.ANNOTATORS]
    few = data.subset(np.arange(20))
    est = VolMaxDCC(3, **TINY).fit(noisy_blobs.X, a.pairs[:20], a.similar[:20], who[:20])
    found = compute_extras(est, few)
    assert "at least 10 answers of each kind" in found.absent[Part.DOUBTFUL]


def test_the_command_writes_a_page(files, diagnosed, capsys):
    (files / "items.csv").write_text('name,text\n<i>7,"=cmd, <script>"\n<i>8,second\nother,unknown\n')
    picture(files / "<i>7.png", size=20)
    arguments = ["report", str(files / "run"), "-o", str(files / "out.html"), "--items", str(files / "items.csv"), "--images", str(files), "--quick"]  # fmt: skip
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    assert "The report is in" in capsys.readouterr().out
    page = (files / "out.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count("<script>") == 1
    assert "&lt;i&gt;" in page
    assert diagnosed[0]["quick"] is True


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"items": "none.csv"}, "none.csv: expected a file, found none"),
        ({"images": "none"}, "none: expected a folder"),
        ({"run": "elsewhere"}, "expected a pdcc run"),
        ({"output": "run/run.json"}, "found a file of a run"),
        ({"output": "x.csv", "features": "x.csv"}, "found what is to be read"),
    ],
)
def test_bad_input_is_refused_before_any_work(files, diagnosed, options, match):
    given = {"run": "run", "output": "out.html"} | options
    places = {name: files / value for name, value in given.items()}
    with pytest.raises((ArtifactError, PairDataError), match=match):
        write_report(places.pop("run"), places.pop("output"), **places)
    assert diagnosed == []


NAMES = ("a", "b", "../c")


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ("name,text\na,x\n", "expected a column item, found the columns name, text"),
        ("item,words\na,x\n", "expected a column text or image, found the columns words"),
        ("item,text\nz,x\n", "items of the run, such as a, found none"),
        ("item,text\na,x\nb,y\na,z\n", r"each item once, found 'a' again \(first at row 2"),
        ("", "expected a readable .csv file"),
        ("item,image\na,../secret.png\n", r"images inside .*found '../secret.png' \(first at row 0"),
        ("item,image\na,/etc/hostname\n", "images inside"),
    ],
)
def test_bad_tables_of_items(table, match, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    picture(tmp_path / "secret.png")
    (tmp_path / "items.csv").write_text(table)
    with pytest.raises(PairDataError, match=match):
        read_looks(NAMES, tmp_path / "items.csv", folder)


def test_texts_and_images_are_found(tmp_path):
    (tmp_path / "items.csv").write_text("item,text,image\nb,NA,javascript:alert(1).png\na, ,none.png\n")
    picture(tmp_path / "javascript:alert(1).png")
    picture(tmp_path / "a.JPG")
    picture(tmp_path.parent / "c.png")
    named = read_looks(NAMES, tmp_path / "items.csv", tmp_path)
    assert named == Looks({1: "NA"}, {1: tmp_path / "javascript:alert(1).png"})
    (tmp_path / "named.csv").write_text("name,text\nb,second\n")
    assert read_looks(NAMES, tmp_path / "named.csv", None, id_column="name") == Looks({1: "second"}, {})
    # By the items' own names; one that leads out of the folder finds nothing.
    assert read_looks(NAMES, None, tmp_path) == Looks({}, {0: tmp_path / "a.JPG"})
    with pytest.raises(PairDataError, match="found none of any item"):
        read_looks(("x", "y"), None, tmp_path)


def test_thumbnails_keep_the_picture_alone(tmp_path):
    good = picture(tmp_path / "good.png", size=300)
    (tmp_path / "script.png").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    (tmp_path / "cut.png").write_bytes(good.read_bytes()[:200])
    pixels = np.zeros((8, 8), dtype=np.uint8)
    images = {0: good, 1: tmp_path / "script.png", 2: tmp_path / "cut.png", 3: pixels, 4: tmp_path / "gone.png"}
    found = thumbnails(images, [4, 2, 1, 0, 3, 0, 9])
    assert list(found) == [0, 3]
    assert all(uri.startswith("data:image/jpeg;base64,") for uri in found.values())
    assert len(found[0]) < 8000
    assert list(thumbnails(images, [3, 0], budget=len(found[3]) + 10)) == [3]


def test_a_sample_leaves_no_cluster_out():
    labels = np.r_[np.zeros(9000, dtype=np.int64), np.ones(980, dtype=np.int64), np.full(20, 2)]
    rows = draw(labels, 0)
    np.testing.assert_array_equal(rows, draw(labels, 0))
    count = np.bincount(labels[rows])
    assert count[2] == FEWEST_DRAWN
    assert count[0] == round(MOST_DRAWN * 0.9)
    assert len(np.unique(rows)) == len(rows)
    np.testing.assert_array_equal(draw(labels[:50], 0), np.arange(50))


def test_extras_may_be_given(files, diagnosed):
    content = gather(files / "run", extras=Extras(stopping="Enough."))
    assert content.stopping == "Enough."
    assert len(diagnosed) == 1
