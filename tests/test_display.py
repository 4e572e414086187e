"""What results show as the last expression of a notebook's cell: short, and texts of users as text."""

from dataclasses import replace

import numpy as np
import pandas as pd
from helpers import written

from pdcc import VolMaxDCC, read_answers, select_n_clusters, select_volume

EVIL = "<script>alert('&')</script>"


def test_a_fit_report_shows_its_words(noisy_blobs):
    given = noisy_blobs.X, noisy_blobs.answers.pairs, noisy_blobs.answers.similar
    report = VolMaxDCC(3, epochs=1, random_state=0, progress=False).fit(*given).report_
    shown = report._repr_html_()
    assert shown.startswith("<p>")
    assert shown.count("<p>") == len(str(report).split("\n"))
    assert f"<p>{report.useful}</p>" in shown
    assert len(report.compared) > 1
    assert len(repr(report)) < 1000  # without all that was compared
    assert "<script>" not in replace(report, reason=EVIL)._repr_html_()


def test_read_answers_show_their_notes_and_first_rows(tmp_path):
    rows = "".join(f"{EVIL},b{k}\N{RIGHT-TO-LEFT OVERRIDE},yes\n" for k in range(50))
    read = read_answers(written(tmp_path / "a.csv", f"left,right,answer\n{rows}0,1,unsure\n"))
    shown = read._repr_html_()
    assert shown.startswith("<p>50 answers, 1 unsure, 0 unreadable (csv)</p><p>Columns: i is &#x27;left&#x27;")
    assert shown.count("<tr>") < 10
    assert "&lt;script&gt;alert('&amp;')&lt;/script&gt;" in shown
    assert "<script>" not in shown
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in shown
    empty = replace(read, frame=pd.DataFrame({"i": np.array([], dtype=object), "j": [], "similar": []}))
    assert "<table" in empty._repr_html_()


def test_a_selection_shows_its_reason_and_table(noisy_blobs):
    given = noisy_blobs.X, noisy_blobs.answers.pairs, noisy_blobs.answers.similar
    by_volume = {"hidden": (8,), "epochs": 1, "scale": "standard", "init": "kmeans"}
    for found in (
        select_n_clusters(*given, candidates=(2, 3)),
        select_volume(*given, volumes=(0.0, 0.01), n_restarts=2, estimator=VolMaxDCC(3, random_state=0, **by_volume)),
    ):
        shown = found._repr_html_()
        assert shown.startswith("<p>")
        assert "<th>held_out_nll</th>" in shown
        assert shown.count("<tr>") == len(found.table)
        assert "Selection(" not in shown
        table = found.table.assign(chosen=EVIL)
        assert "<script>" not in replace(found, reason=EVIL, table=table)._repr_html_()
