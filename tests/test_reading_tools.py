"""Answers as other tools write them.

The files in tests/files were made by the tools themselves, in an environment of their own: dedupe 3.0.3 (``Dedupe.mark_pairs`` and
``write_training``), splink 5.0.0 (``register_labels_table`` and ``prediction_errors_from_labels_table``, then ``to_csv``), and label-studio-sdk
2.1.2 (its ``Converter`` made labelstudio.csv and labelstudio_min.json of labelstudio.json, which has the documented form of an export).
crowd-kit 1.4.2 has no writer: crowdkit.csv is a frame that its ``MajorityVote`` took. durel_judgments.csv has the documented form.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import pdcc, triples, written

from pdcc import PairData, PairDataError, read_answers
from pdcc.storage import run as runs

FILES = Path(__file__).parent / "files"


def test_dedupe(tmp_path):
    read = read_answers(FILES / "dedupe_training.json")
    same, different = [("r0", "r1"), ("r2", "r3")], [("r0", "r2"), ("r1", "r4"), ("r3", "r5")]
    assert triples(read) == [(*p, False) for p in different] + [(*p, True) for p in same]
    assert read.format == "dedupe"
    assert "Items are named by the field 'id' of the records." in read.notes
    by_name = read_answers(FILES / "dedupe_training.json", id_field="name")
    assert triples(by_name)[3][:2] == ("ann lee", "anne lee")
    # The field may be missing from a record: that pair is named.
    with pytest.raises(PairDataError, match=r"row 2, j: an empty cell \(first at row 2.*skip-unreadable"):
        read_answers(FILES / "dedupe_training.json", id_field="city")
    with pytest.raises(PairDataError, match=r"id field: .*the records have id, name, city"):
        read_answers(FILES / "dedupe_training.json", id_field="uid")
    plain = {"match": [[{"k": 1}, {"k": 2}], "odd"], "distinct": [], "uncertain": [[{"k": 1}, {"k": 3}]], "more": []}
    path = written(tmp_path / "t.json", json.dumps(plain))
    with pytest.raises(PairDataError, match="not two records, but 'odd'"):
        read_answers(path, id_field="k")
    read = read_answers(path, id_field="k", skip_unreadable=True)
    assert triples(read) == [(1, 2, True)]
    assert read.unsure[["row", "i", "j"]].to_numpy().tolist() == [[2, 1, 3]]
    assert "Keys that are ignored: more." in read.notes
    with pytest.raises(PairDataError, match=r"id field: .*found none; the records have k"):
        read_answers(path, skip_unreadable=True)


def test_splink(tmp_path):
    read = read_answers(FILES / "splink_labels.csv")
    assert triples(read) == [(0, 1, 0.95), (2, 3, 1.0), (4, 5, 0.4), (0, 2, 0.0)]
    assert (read.format, read.soft) == ("splink", True)
    assert triples(read_answers(FILES / "splink_errors.csv")) == [(0, 1, 0.95), (2, 3, 1.0)]
    head = "unique_id_l,source_dataset_l,unique_id_r,source_dataset_r,clerical_match_score\n"
    two = written(tmp_path / "two.csv", head + "1,left,1,right,1.0\n2,left,3,right,0.2\n")
    named = [("left-__-1", "right-__-1", 1.0), ("left-__-2", "right-__-3", 0.2)]
    assert triples(read_answers(two)) == named
    ids = ["left-__-1", "left-__-2", "right-__-1", "right-__-3"]
    assert triples(read_answers(two, item_ids=ids)) == named
    assert triples(read_answers(two, item_ids=[1, 2, 3])) == [(1, 1, 1.0), (2, 3, 0.2)]
    plain = written(tmp_path / "plain.csv", head + "1,a,2,a,1\n2,a,3,a,0\n")
    data = PairData.from_arrays(np.eye(4), read_answers(plain))
    assert (data.soft, data.similar.tolist()) == (None, [True, False])


def test_data_sets_of_splink_are_neither_ignored_nor_annotators(tmp_path):
    """Three of them, each in many rows, as names of annotators are; they name the items, or it is said that they do not."""
    sets = ["crm", "shop", "web"]
    rows = "".join(f"{k},{sets[k % 3]},{k + 1},{sets[k * k % 3]},1.0,new\n" for k in range(30))
    head = "unique_id_l,source_dataset_l,unique_id_r,source_dataset_r,clerical_match_score,state\n"
    path = written(tmp_path / "a.csv", head + rows)
    read = read_answers(path)
    assert read.notes[2:] == (
        "Columns that are ignored: state.",
        "Items are named by data set and id, as 'crm-__-0'.",
    )
    assert read.ignored == ("state",)
    alone = read_answers(path, item_ids=range(31))
    assert alone.notes[-1] == "Items are named by id alone, without source_dataset_l and source_dataset_r."
    assert alone.ignored == ("state",)
    one = written(tmp_path / "b.csv", (head + rows).replace("source_dataset_r", "other"))
    assert read_answers(one).ignored == ("source_dataset_l", "other", "state")


def test_durel():
    read = read_answers(FILES / "durel_judgments.csv")
    assert (read.format, read.soft, read.n_rows) == ("durel", True, 5)
    np.testing.assert_allclose(read.frame.similar, [1, 0, 1 / 3, 2 / 3])
    assert read.frame.annotator.tolist() == ["annotator0", "annotator0", "annotator0", "annotator1"]
    assert read.unsure[["row", "i", "j", "similar"]].to_numpy().tolist() == [[2, "use-2", "use-3", "0"]]
    assert "1 answer is '0': kept out of the likelihood." in read.notes
    assert "Columns that are ignored: comment, lemma." in read.notes
    with pytest.raises(PairDataError, match=r"write grade / 4 .*beside grades from 1 to 4, use --format durel"):
        read_answers(FILES / "durel_judgments.csv", format="csv")


def test_crowd_kit(tmp_path):
    read = read_answers(FILES / "crowdkit.csv")
    assert read.format == "crowdkit"
    assert triples(read) == [
        ("t0", "t1", True), ("t0", "t2", False), ("t1", "t2", False),
        ("t0", "t2", False), ("t0", "t3", False), ("t2", "t3", True),
    ]  # fmt: skip
    assert read.frame.annotator.tolist() == ["w1"] * 3 + ["w2"] * 3
    frame = pd.DataFrame(
        {"task": np.tile(np.arange(40), 3), "worker": np.repeat([1, 2, 3], 40), "label": np.arange(120) % 7}
    )
    frame.to_csv(tmp_path / "many.csv", index=False)
    every = read_answers(tmp_path / "many.csv").frame
    assert len(every) == len(every.drop_duplicates(["i", "j", "annotator"])) == 3 * 40 * 39 // 2
    label = {(t, w): y for t, w, y in frame.itertuples(index=False)}
    for i, j, same, who in every.itertuples(index=False):
        assert same == (label[i, who] == label[j, who])
    some = read_answers(tmp_path / "many.csv", max_pairs=100, random_state=3)
    assert len(some.frame) == 100
    assert "Drew 100 of 2340 such pairs (seed 3; max_pairs)." in some.notes
    assert len(some.frame.merge(every)) == 100
    assert not some.frame.equals(read_answers(tmp_path / "many.csv", max_pairs=100, random_state=4).frame)
    written(tmp_path / "gap.csv", "task,worker,label\na,1,x\nb,1,\nc,1,x\n")
    with pytest.raises(PairDataError, match="row 1, no label"):
        read_answers(tmp_path / "gap.csv")
    assert triples(read_answers(tmp_path / "gap.csv", skip_unreadable=True)) == [("a", "c", True)]


@pytest.mark.parametrize("name", ["labelstudio.json", "labelstudio.csv", "labelstudio_min.json"])
def test_label_studio(name):
    read = read_answers(FILES / name)
    assert read.format == "labelstudio"
    assert triples(read) == [("a1", "a2", True), ("a1", "a2", False), ("a1", "b1", False)]
    assert read.frame.annotator.tolist() == [10, 11, 10]
    assert "can't decide" in read.unsure.similar.tolist()
    assert any("i is 'left_id', j is 'right_id'" in note for note in read.notes)
    # The converter leaves out what was skipped; the raw export has it, and both have a task that nobody answered.
    assert any(
        "'skipped' (1)" in note or "1 row(s) with neither an answer nor an annotator" in note for note in read.notes
    )
    half = read_answers(FILES / name, unsure="half")
    assert half.frame.similar.tolist() == [1, 0, 0, *[0.5] * (2 if name == "labelstudio.json" else 1)]


def test_label_studio_is_asked_which_fields_and_which_question(tmp_path):
    def task(data, *choices, **more):
        result = [{"type": "choices", "from_name": name, "value": {"choices": [c]}} for name, c in choices]
        return {"data": data, "annotations": [{"completed_by": {"id": 7, "email": "a@b"}, "result": result, **more}]}

    tasks = [task({"x": 1, "y": 2, "z": 3}, ("same_thing", "yes"), ("clear", "no"))]
    path = written(tmp_path / "t.json", json.dumps(tasks))
    with pytest.raises(PairDataError, match=r"columns: .*the fields x, y, z.*--columns i=left,j=right"):
        read_answers(path)
    with pytest.raises(PairDataError, match="2 questions, same_thing, clear: name one"):
        read_answers(path, columns="i=x,j=z")
    read = read_answers(path, columns="i=x,j=z,similar=same_thing")
    assert triples(read) == [(1, 3, True)]
    assert read.frame.annotator.tolist() == ["a@b"]
    path = written(tmp_path / "two.json", json.dumps([task({"one": "a", "two": "b"}, ("q", "no"))]))
    assert triples(read_answers(path)) == [("a", "b", False)]


def test_fit_takes_what_dedupe_wrote(tmp_path, capsys):
    features = pd.DataFrame(np.random.default_rng(0).normal(size=(6, 3)), columns=list("xyz"))
    features.assign(id=[f"r{k}" for k in range(6)]).to_csv(tmp_path / "x.csv", index=False)
    fast = ["-k", 2, "--epochs", 1, "--confusion", "none", "--volume", 0, "--scale", "standard", "--init", "kmeans"]
    call = [
        "fit",
        tmp_path / "x.csv",
        FILES / "dedupe_training.json",
        "--id-column",
        "id",
        "-o",
        tmp_path / "run",
        *fast,
    ]
    assert pdcc(*call, "--format", "dedupe") == 0
    assert "5 answers about 6 items" in capsys.readouterr().out
    assert runs.read_data(tmp_path / "run").similar.tolist() == [False] * 3 + [True] * 2
