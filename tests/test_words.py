"""What people write for an answer: phrases, other languages, and scales that would be read upside down."""

import csv

import pytest
from helpers import written

from pdcc import PairDataError, read_answers
from pdcc.data.words import DIFFERENT, SAME


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
        ("match failed", None), ("match rejected", None), ("matching rejected", None), ("same (unlikely)", None), ("same; but wrong", None),
        ("similar in nothing", None), ("different spelling, identical firm", None), ("different spelling", None), ("same name", None),
        ("different documents, one topic", None), ("match:", None), ("match: refused", None), ("match found", True), ("No match found.", False),
        ("not the same topic", False), ("same.", True), ("similar enough", True), ("not similar enough", False), ("different companies", False),
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
        read = read_answers(path)
        assert read.frame.similar.tolist() == [same, True]
        assert any(note.startswith("Read by their beginning: ") for note in read.notes) == (
            word.casefold() not in SAME + DIFFERENT
        )


def test_texts_that_were_read_by_their_beginning_are_said(tmp_path):
    """Those of rows that are kept, the most frequent first; words for answers are not."""
    words = ["same person", "Different people", "same person", "yes", "match failed", "Matching"]
    path = written(tmp_path / "a.csv", "i,j,similar\n" + "".join(f"0,{k + 1},{w}\n" for k, w in enumerate(words)))
    read = read_answers(path, skip_unreadable=True)
    assert read.frame.similar.tolist() == [True, False, True, True, True]
    assert read.notes[0] == (
        "Read by their beginning: 'same person' as same, 'Different people' as different, 'Matching' as same."
    )
    kinds = ["topic", "subject", "theme", "class", "group", "kind", "item"]
    path = written(tmp_path / "b.csv", "i,j,similar\n" + "".join(f"0,{k + 1},same {w}\n" for k, w in enumerate(kinds)))
    assert read_answers(path).notes[0].endswith("'same group' as same and 2 more.")


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
