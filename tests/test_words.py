"""What people write for an answer: phrases, other languages, and scales that would be read upside down."""

import csv

import pytest
from helpers import written

from pdcc import PairDataError, read_answers


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(
    ("cells", "soft", "fix"),
    [
        ("1 3 5", False, r"'3', '5', beside .*row 1,.*If 1 is different and 5 is the same, write \(grade - 1\) / 4.*--soft"),
        ("1 3 5", True, r"\(grade - 1\) / 4"),
        ("yes 5 no", False, r"\(grade - 1\) / 4"),
        ("1 4 2", False, "Grades from 1, different, to 4, the same, are read with --soft"),
        ("0 1 2", True, "If 0 is different and 2 is the same, write grade / 2 instead"),
        ("1 0 2", False, "write grade / 2 instead"),
        ("-2 1 2", False, r"write \(grade \+ 2\) / 4 instead"),
    ],
)  # fmt: skip
def test_scales_that_are_not_known_are_refused(tmp_path, cells, soft, fix, skip):
    """Beside a 5, a 1 would be read as the same, and means different: leaving out what cannot be read must not do so."""
    rows = "".join(f"0,{k + 1},{cell}\n" for k, cell in enumerate(cells.split()))
    path = written(tmp_path / "a.csv", f"i,j,similar\n{rows}")
    with pytest.raises(PairDataError, match="0 and 1, or -1 and 1; or, with --soft, probabilities.*" + fix):
        read_answers(path, soft=soft, skip_unreadable=skip)


@pytest.mark.parametrize(
    ("word", "same"),
    [
        ("Same topic", True), ("same person", True), ("Matching", True), ("match: both records", True), ("SIMILAR  enough", True),
        ("Different segment", False), ("not the same", False), ("Not a match", False), ("No match", False), ("not similar at all", False),
        ("distinct people", False), ("Ja", True), ("Nein", False), ("oui", True), ("NON", False), ("S\N{LATIN CAPITAL LETTER I WITH ACUTE}", True),
        ("same topic, different author", None), ("similar but not the same", None), ("not the same, but similar", None),
        ("same or different", None), ("match: no", None), ("match 0.1", None), ("same?", None), ("same, maybe", None), ("different: false", None),
        ("not different", None), ("sameness", None), ("same-ish", None), ("topic is the same", None), ("the same", None),
    ],
)  # fmt: skip
def test_texts_that_begin_with_an_answer(tmp_path, word, same):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["i", "j", "similar"], [0, 1, word], [2, 3, "yes"]])
    if same is None:
        with pytest.raises(PairDataError, match="row 0, similar"):
            read_answers(path)
    else:
        assert read_answers(path).frame.similar.tolist() == [same, True]


def test_unknown_words_are_counted_beside_those_that_are_known(tmp_path):
    rows = ["gleich", "anders", "gleich", *(f"w{k}" for k in range(9))]
    text = "i,j,similar\n" + "".join(f"0,{k + 1},{word}\n" for k, word in enumerate(rows))
    with pytest.raises(PairDataError) as error:
        read_answers(written(tmp_path / "a.csv", text))
    said = str(error.value)
    assert "Not words for an answer: 'gleich' (2), 'anders' (1), 'w0' (1), 'w1' (1), 'w2' (1) or 6 more." in said
    assert "same, yes, similar, match, true, ...; different, no, dissimilar, " in said
    assert "skip-unreadable" not in said  # nothing would be left
    with pytest.raises(PairDataError, match=r"Not words for an answer: .*with --skip-unreadable"):
        read_answers(written(tmp_path / "b.csv", text + "0,20,yes\n"))
