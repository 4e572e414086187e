"""Answers that were not drawn at random: how they are told apart, carried, and judged by."""

import numpy as np
import pandas as pd
import pytest
from helpers import make_blobs

from pdcc import PairAnswers, PairData, PairDataError, VolMaxDCC, read_answers
from pdcc.storage import run as runs
from pdcc.storage.lock import claimed

SMALL = {"hidden": (8,), "epochs": 2, "scale": "standard", "confusion": "none", "volume": 0.0, "init": "kmeans"}
WORDS = np.array(["random", "suggested", "suggested"])


@pytest.fixture(scope="module")
def asked():
    """Blobs, a table of their answers, and which pairs were drawn at random."""
    blobs = make_blobs(n=60, n_pairs=240, seed=0)
    words = WORDS[np.arange(240) % 3]
    i, j = blobs.answers.pairs.T
    table = pd.DataFrame({"i": i, "j": j, "similar": blobs.answers.similar.astype(int), "chosen_by": words})
    return blobs.X, table.assign(probability=0.25), words == "random"


def test_the_words_are_carried_from_a_file_to_a_run(asked, tmp_path):
    X, table, drawn = asked
    table.to_csv(tmp_path / "answers.csv", index=False)
    read = read_answers(tmp_path / "answers.csv")
    assert read.frame["chosen_by"].tolist() == table["chosen_by"].tolist()
    assert read.frame["probability"].tolist() == [0.25] * 240
    assert not read.notes
    data = PairData.from_arrays(X, read)
    np.testing.assert_array_equal(data.random, drawn)
    np.testing.assert_array_equal(data.subset(np.array([4, 3])).random, [False, True])
    est = VolMaxDCC(3, random_state=0, **SMALL).fit_data(data)
    with claimed(tmp_path / "run"):
        runs.finish(tmp_path / "run", *est.described(), data, "test", X=X)
    again = runs.read_data(tmp_path / "run")
    np.testing.assert_array_equal(again.random, drawn)
    assert est.fitted_.holds(again)
    assert est.fitted_.holds(PairData.from_arrays(X, table[["i", "j", "similar"]]))  # a fit does not depend on it


def test_answers_that_split_with_the_items_keep_the_words(asked):
    X, table, drawn = asked
    y = PairAnswers.from_frame(len(X), table)
    rows = np.arange(len(X)) % 4 > 0
    inside = rows[table["i"]] & rows[table["j"]]
    np.testing.assert_array_equal(y[rows].random, drawn[inside])
    same = PairAnswers.from_arrays(len(X), y.pairs, y.similar, chosen_by=table["chosen_by"])
    np.testing.assert_array_equal(PairData.from_arrays(X, same).random, drawn)
    assert PairAnswers.from_frame(len(X), table.assign(chosen_by="random")).random is None  # nothing to tell apart


def test_other_words_are_refused_and_a_probability_alone_means_nothing(asked, tmp_path):
    X, table, _ = asked
    for bad in ("by hand", None):
        odd = table.astype({"chosen_by": object})
        odd.loc[7, "chosen_by"] = bad
        with pytest.raises(PairDataError, match="chosen_by") as error:
            PairData.from_arrays(X, odd)
        assert error.value.row == 7
        odd.to_csv(tmp_path / "odd.csv", index=False)
        with pytest.raises(PairDataError, match="neither random nor suggested"):
            read_answers(tmp_path / "odd.csv")
    with pytest.raises(PairDataError, match="chosen_by: expected a word for each of the 240 pairs"):
        PairAnswers.from_arrays(len(X), table[["i", "j"]].to_numpy(), table["similar"], chosen_by=["random"])
    table.drop(columns="chosen_by").to_csv(tmp_path / "alone.csv", index=False)
    read = read_answers(tmp_path / "alone.csv")
    assert read.frame.columns.tolist() == ["i", "j", "similar"]
    assert "Columns that are ignored: probability." in read.notes
