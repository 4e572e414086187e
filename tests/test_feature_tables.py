"""Feature tables as people have them: delimiters, decimal commas, columns that are no features, and the two files exchanged."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import pdcc, written

from pdcc import PairData, PairDataError
from pdcc.data.io import read_features, read_table
from pdcc.data.item_tables import read_item_table
from pdcc.validation import check_features


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("comma", [False, True])
def test_delimiters_and_decimal_commas_are_recognised(tmp_path, delimiter, comma):
    if delimiter == "," and comma:
        return
    half = ["1,5", "-2,25", "3"] if comma else ["1.5", "-2.25", "3"]
    rows = [["name", "a", "b c", "empty"], *([f"n{k}", half[k], str(k), ["0.5", "", "1"][k]] for k in range(3))]
    path = written(tmp_path / "x.csv", "\n".join(delimiter.join(row) for row in rows))
    X, ids = read_features(path, id_column="name")
    assert ids.tolist() == ["n0", "n1", "n2"]
    assert X.columns.tolist() == ["a", "b c", "empty"]
    assert X["a"].tolist() == [1.5, -2.25, 3]
    assert X["b c"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(X["empty"], [0.5, np.nan, 1])


def test_ids_and_text_keep_their_commas(tmp_path):
    path = written(tmp_path / "x.csv", "id;place;x\n1,5;a, b;0,5\n2,5;1,5;1\n")
    X, ids = read_features(path, id_column="id")
    assert ids.tolist() == ["1,5", "2,5"]
    assert X["place"].tolist() == ["a, b", "1,5"]
    assert X["x"].tolist() == [0.5, 1]
    # A comma is what sets apart wherever it sets as much apart.
    assert read_table(written(tmp_path / "y.csv", "one;two,three\n1,2\n")).columns.tolist() == ["one;two", "three"]


def test_tables_of_items_too(tmp_path):
    path = written(tmp_path / "items.csv", "item;text\nb;one, two\na;three\n")
    rows, table = read_item_table(path, ["a", "b"])
    assert rows.tolist() == [1, 0]
    assert table["text"].tolist() == ["one, two", "three"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_unknown_id_column_is_said_beside_how_many_there_are(tmp_path, monkeypatch, ending):
    """In a table that is read as a whole, and in one that is mapped."""
    table = pd.DataFrame(np.eye(11), columns=[f"c{k}" for k in range(11)])
    table.to_csv(tmp_path / "x.csv", index=False)
    table.to_parquet(tmp_path / "x.parquet")
    monkeypatch.setattr("pdcc.data.parquet.is_large", lambda shape: True)
    with pytest.raises(PairDataError, match=r"'customer', which is not among c0, .*, c7 and 3 more"):
        read_features(tmp_path / f"x.{ending}", id_column="customer")


ANSWERS = {
    "our names, numbers": "i,j,similar\n0,1,1\n1,2,0\n",
    "our names, words": "i;j;similar;who\na;b;yes;x\nb;c;no;x\n",
    "other names, words": "left,right,answer\n0,1,same\n1,2,unsure\n",
    "other names, numbers": "left,right,answer\n0,1,1\n1,2,0\n",
}


@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("features", ["x.csv", "x.npy"])
def test_files_in_the_wrong_order_are_said(tmp_path, capsys, answers, features):
    np.save(tmp_path / "x.npy", np.eye(3))
    pd.DataFrame(np.eye(3), columns=["p", "q", "r"]).to_csv(tmp_path / "x.csv", index=False)
    path = written(tmp_path / "answers.csv", answers)
    assert pdcc("-q", "fit", path, tmp_path / features, "-k", 2, "-o", tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert "as of a table of answers" in said
    assert "FEATURES come first, then PAIRS" in said
    with pytest.raises(PairDataError, match="FEATURES come first"):
        PairData.read(path, tmp_path / features)


def test_features_that_are_called_as_answers_are_features(tmp_path):
    """Where they are numbers, and answers are beside them; and an error about those is theirs."""
    path = written(tmp_path / "x.csv", "left,right,label\n0,1.5,1\n1,2,0\n2,2,0\n")
    answers = written(tmp_path / "answers.csv", "i,j,similar\n0,1,yes\n1,2,no\n")
    assert PairData.read(path, answers).feature_names == ("left", "right", "label")
    with pytest.raises(PairDataError, match="maybe"):
        PairData.read(path, written(Path(answers), "i,j,similar\n0,1,yes\n1,2,maybe\n"))


def test_columns_that_are_not_numbers_are_named_together(tmp_path, capsys):
    path = written(tmp_path / "x.csv", "width,city,height,colour\n1,Rome,2,\n2,Oslo,?,red\n3,Oslo,4,blue\n")
    answers = written(tmp_path / "answers.csv", "i,j,similar\n0,1,yes\n1,2,no\n")
    words = (
        r"3 columns that are not: 'city' \('Rome'\), 'height' \('\?'\), 'colour' \('red'\) \(first at row 0.*Drop them"
    )
    with pytest.raises(PairDataError, match=words):
        check_features(pd.read_csv(path))
    assert pdcc("-q", "fit", path, answers, "-k", 2, "-o", tmp_path / "run") == 2
    assert "'city' ('Rome'), " in capsys.readouterr().err
    days = pd.DataFrame({"x": [1.0, 2.0], "day": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    with pytest.raises(PairDataError, match="1 column that is not: 'day'"):
        check_features(days)
    many = pd.DataFrame([["a"] * 23], columns=[f"c{k}" for k in range(23)])
    with pytest.raises(PairDataError, match=r"23 columns .*'c19' \('a'\) and 3 more"):
        check_features(many)


def test_a_missing_value_is_named_by_column_and_row():
    table = pd.DataFrame({"a": [1.0, 2, 3], "b": [1, np.nan, np.nan], "c": pd.array([1, 2, None], dtype="Int64")})
    with pytest.raises(PairDataError, match=r"NaN, .* in 2 row\(s\), .* 'b' \(row 1\), 'c' \(row 2\)") as error:
        check_features(table)
    assert error.value.row == 1
    kinds = {"object": [1, 2.5, True], "bool": [True, False, True], "Int64": pd.array([1, 2, 3], dtype="Int64")}
    found = check_features(pd.DataFrame(kinds).astype({"object": object}))
    np.testing.assert_array_equal(found, [[1, 1, 1], [2.5, 0, 2], [1, 1, 3]])
