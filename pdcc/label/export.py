"""Answers as the table that ``pdcc fit`` reads."""

import csv
import io

from pdcc.errors import safe_cell
from pdcc.label.store import Store

HEADER = ("i", "j", "similar", "annotator", "chosen_by", "probability")
SIMILAR = {"same": "1", "different": "0", "unsure": "unsure"}


def answers_csv(store: Store, *, safe: bool = False) -> bytes:
    """All answers that are not withdrawn. Ids and names as they are or, ``safe`` for a spreadsheet, with ' before a formula."""

    def cell(text: str) -> str:
        return str(safe_cell(text)) if safe else text

    file = io.StringIO(newline="")
    table = csv.writer(file)
    table.writerow(HEADER)
    for a in store.kept():
        chance = "" if a.probability is None else repr(a.probability)
        table.writerow((cell(a.i), cell(a.j), SIMILAR[a.answer], cell(a.annotator), a.chosen_by, chance))
    return file.getvalue().encode()
