"""The report: every section says what it should, nothing a user wrote is taken for markup, and the page stays small."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from made_up import HOSTILE, made_content, made_diagnosis, picture
from markupsafe import Markup

from pdcc.accuracy.outlook import Outlook
from pdcc.errors import printable
from pdcc.report import figures
from pdcc.report.content import Part
from pdcc.report.looks import BUDGET
from pdcc.report.page import render
from pdcc.report.words import shown

VOID = {"meta", "img", "input", "br", "link"}
PARTS = {"diagnosis": Part.DIAGNOSIS, "calibration": Part.CALIBRATION, "annotators": Part.ANNOTATORS, "doubtful": Part.DOUBTFUL, "suggested": Part.SUGGESTED}  # fmt: skip


class Page(HTMLParser):
    """Elements with their attributes, in order; the text of each section; what was not closed."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.text: dict[str, str] = {}
        self.within: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._section = ""
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs)["id"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        self.text[self._section] = self.text.get(self._section, "") + ("" if tag == "span" else " ")
        self._section = "" if tag == "section" else self._section

    def handle_data(self, data):
        self.text[self._section] = self.text.get(self._section, "") + data
        if self._open:
            self.within.setdefault(self._open[-1], []).append(data)

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.elements if name == tag]


def words(page: Page, section: str) -> str:
    return " ".join(page.text[section].split())


@pytest.fixture(scope="module")
def content():
    return made_content()


@pytest.fixture(scope="module")
def html(content):
    return render(content)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


@pytest.fixture(scope="module")
def hostile():
    return render(made_content(hostile=True))


@pytest.fixture
def sketched(monkeypatch):
    """Figures as empty frames with their captions, where it is words that are looked at."""

    def frame(name, height, plot, title, says, caption, width=0.0):
        return figures.Drawing(Markup('<svg id="figure-{}"></svg>').format(name), caption)

    monkeypatch.setattr(figures, "_drawn", frame)


def test_every_section_says_what_it_should(page, content):
    trust = words(page, "trust")
    assert "About 94 % of the labels are right, as far as answers can tell: between 85 and 99 %" in trust
    for question in ("Labels", "Items", "Clusters", "Soft memberships", "Model"):
        assert f"{question}:" in trust
    assert "About 39,000 more answers of this kind" in trust
    clusters = words(page, "clusters")
    card = clusters[clusters.index("Cluster 1 ") : clusters.index("Cluster 2 ")]
    assert "Items 30" in card
    assert "Confounded with cluster 2 (7 %)" in card
    assert "not settled" in card
    # The purest and the most doubtful items of a cluster, by the probability of their label.
    table = content.diagnosis.items[content.labels == 1].sort_values("probability")
    assert all(name in card for name in [*table["item"][:4], *table["item"][-4:]])
    assert table["item"].iloc[10] not in card
    assert "identified only through B = A\u2032A" in words(page, "confusion")
    assert "60 % 50 to 70 %" in words(page, "annotators")
    assert "The 300 most doubtful of 400 answers" in words(page, "doubtful")
    assert "by chance" in words(page, "calibration")
    fit = words(page, "fit")
    assert "Chosen: unit scale, K-means in directions that answers point out; confusion sigmoid, volume 0.01" in fit
    assert "A cluster is empty." in fit
    assert "setting 2" in fit
    following = words(page, "next")
    assert "Going on pays." in following
    assert "Ask about item-0." in following
    assert "30 of 40" in following
    origin = words(page, "origin")
    assert "seed 7" in origin
    assert "ab" * 32 in origin


def test_doubtful_answers_come_most_doubtful_first(page, content):
    text = words(page, "doubtful")
    worst = content.doubtful.loc[content.doubtful["wrong"].idxmax()]
    first = text[text.index("Reason") : text.index("Reason") + 60]
    assert f"item-{worst['i']}" in first
    assert ("same" if worst["similar"] else "different") in first


@pytest.mark.usefixtures("sketched")
@pytest.mark.parametrize("name", PARTS)
def test_what_is_absent_is_said(name, content, page):
    reason = "Because it rained & <poured>."
    bare = replace(content, **{name: None}, absent={PARTS[name]: reason})
    found = Page(render(bare))
    place = {"diagnosis": "trust", "suggested": "next"}.get(name, name)
    assert reason in words(found, place)
    assert reason not in words(page, place)
    drawn = {a["id"] for a in page.all("svg")} - {a["id"] for a in found.all("svg")}
    gone = {
        "diagnosis": {"accuracy", "outlook", "purity"},
        "calibration": {"calibration"},
        "annotators": {"annotators"},
    }
    assert drawn == {f"figure-{figure}" for figure in gone.get(name, set())}


def test_everything_may_be_absent(content):
    none = dict.fromkeys(PARTS) | {"history": (), "stopping": None, "n_annotators": 0}
    found = Page(render(replace(content, **none, fit=replace(content.fit, compared=()))))
    assert "There is no diagnosis here" in words(found, "trust")
    assert "its largest membership, which is not the probability" in words(found, "clusters")
    assert "There is no history of training." in words(found, "fit")
    assert len(found.all("svg")) == 2  # the map and B


@pytest.mark.usefixtures("sketched")
def test_no_claim_is_no_claim(content):
    """Where answers say nothing, beliefs are even: no probability is shown; where they depend on each other, whose they are is said."""
    silent = Page(render(replace(content, diagnosis=made_diagnosis(content.labels, 4, content.names, claim="none"))))
    assert "No claim is made about how many labels are right. Answers go wrong together." in words(silent, "trust")
    assert "25 %" not in words(silent, "clusters")
    dependent = Page(
        render(replace(content, diagnosis=made_diagnosis(content.labels, 4, content.names, claim="agreement")))
    )
    assert "those that the annotators themselves would give" in words(dependent, "trust")
    assert "Answers go wrong together." in words(dependent, "trust")
    assert "the one that annotators have in mind" in words(dependent, "clusters")


def test_texts_of_users_are_texts(hostile, page):
    found, plain = Page(hostile), page
    # The same elements as a page without any markup in its data, but for the numbers of rows and labels.
    assert {tag for tag, _ in found.elements} == {tag for tag, _ in plain.elements}
    assert len(found.all("script")) == len(found.all("style")) == len(found.all("h1")) == 1
    for tag, attributes in found.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("href", "src"):
            assert str(attributes.get(name, "#")).startswith(("#", "data:image/")), (tag, attributes)
    seen = " ".join(" ".join(found.text.values()).split())
    for text in HOSTILE:
        assert " ".join(printable(text).split()) in seen, text
    assert "49" not in words(found, "origin")  # {{ 7 * 7 }}
    assert "\u202e" not in hostile
    assert "\x1b" not in hostile


def test_names_in_attributes_do_not_break_out(hostile):
    found = Page(hostile)
    values = [a["data-value"] for a in found.all("td") if "data-value" in a]
    assert any(value.startswith('" onmouseover=') for value in values)
    assert any(value.startswith("=1+1") for value in values)


def test_the_policy_allows_this_page_and_nothing_else(page, html):
    (policy,) = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", html, flags=re.S)[1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not any("style" in attributes for _, attributes in page.elements)
    assert "unsafe" not in policy
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in html


def test_figures_speak(page):
    figures = [a for a in page.all("svg")]
    assert len(figures) == 8
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for attributes in figures:
        assert attributes["role"] == "img"
        assert all(name in ids for name in attributes["aria-labelledby"].split())
    assert len(page.within["title"]) == 1 + 8
    assert len(page.within["desc"]) == 8
    assert all(len(text) > 15 for text in page.within["desc"])
    references = [v for _, a in page.elements for v in re.findall(r"url\(#([^)]+)\)", " ".join(map(str, a.values())))]
    assert references
    assert set(references) <= set(ids)
    inks = {a.get("fill") for a in page.all("text")}
    assert "currentColor" in inks
    assert not inks & {"#000000", "#333333"}


def test_a_reader_without_eyes_finds_the_way(page):
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    for landmark in ("header", "nav", "main", "footer"):
        assert len(page.all(landmark)) == 1
    ids = {a["id"] for _, a in page.elements if "id" in a}
    links = [a["href"][1:] for a in page.all("a")]
    assert links[0] == "main"
    assert set(links) <= ids
    assert len(page.all("table")) == len(page.all("caption")) == 6
    assert all(a.get("scope") in ("col", "row") for a in page.all("th"))
    regions = [a for a in page.all("div") if a.get("class") == "scroll"]
    assert len(regions) == 6
    assert len({a["aria-label"] for a in regions}) == 6
    assert all(a["tabindex"] == "0" for a in regions)


def colours(css: str, dark: bool) -> dict[str, str]:
    found = dict(re.findall(r"--(\w+): (#\w{6})", css.split("@media (prefers-color-scheme: dark)")[0]))
    return found | (dict(re.findall(r"--(\w+): (#\w{6})", css.split("@media")[1])) if dark else {})


def contrast(a: str, b: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot(parts, [0.2126, 0.7152, 0.0722]))

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out(html, dark):
    css = re.search("<style>(.*?)</style>", html, flags=re.S)[1]
    known = colours(css, dark)
    assert (known["paper"] == "#ffffff") is not dark
    for ink in ("ink", "muted", "link", "good", "bad", "unsure"):
        for ground in ("paper", "panel"):
            assert contrast(known[ink], known[ground]) >= 4.5, (ink, ground)


def test_a_large_page_stays_below_two_megabytes(tmp_path):
    """10,000 items, ten clusters, 20,000 answers, long hostile texts, and images that do not compress."""
    files = [picture(tmp_path / f"{k}.png", seed=k) for k in range(12)]
    content = made_content(10_000, 10, 20_000, hostile=True, images={k: files[k % 12] for k in range(10_000)})
    content = replace(content, looks=replace(content.looks, texts=dict.fromkeys(range(10_000), "<b>" * 500)))
    html = render(content)
    assert len(html.encode()) < 2_000_000
    found = Page(html)
    thumbnails = found.all("img")
    assert thumbnails
    assert all(a["src"].startswith("data:image/jpeg;base64,") and a["alt"] for a in thumbnails)
    # Every item is counted once, but may be shown twice.
    assert sum(len(a) for a in {a["src"] for a in thumbnails}) <= BUDGET
    assert f"A random sample of {len(content.sample):,} of the 10,000 items" in words(found, "clusters")
    assert 1000 < len(content.sample) < 2000


def test_many_clusters_and_annotators_are_cut_and_counted():
    content = made_content(600, 60)
    people = pd.concat([content.annotators] * 20, ignore_index=True)
    people["annotator"] = [f"p{k}" for k in range(len(people))]
    found = Page(render(replace(content, annotators=people)))
    assert len(found.all("article")) == 30
    assert "Of 60 clusters, the 30 with the least certain items are described." in words(found, "clusters")
    assert "The 40 least pure of 60 clusters are drawn." in words(found, "clusters")
    assert "The numbers are left out" in words(found, "confusion")
    assert "100 of 160" in words(found, "annotators")
    assert "The 40 least reliable of 160 are drawn." in words(found, "annotators")


def test_three_clusters_are_drawn_in_their_simplex(page):
    found = Page(render(made_content(90, 3)))
    assert "figure-simplex" in {a["id"] for a in found.all("svg")}
    assert "figure-simplex" not in {a["id"] for a in page.all("svg")}


def test_an_empty_cluster_and_an_outlook_without_end(content):
    labels = np.where(content.labels == 3, 0, content.labels)
    never = Outlook({100: 0.8, 400: 0.8}, 0.9, float("inf"), (float("inf"), float("inf")), 400)
    diagnosis = replace(made_diagnosis(labels, 4, content.names), outlook=never)
    found = Page(render(replace(content, labels=labels, diagnosis=diagnosis)))
    last = words(found, "clusters").split("Cluster 3")[-1]
    assert "Items 0" in last
    assert "empty" in last
    assert "will hardly help" in words(found, "trust")


def test_what_an_estimate_rests_on_stands_beside_it(content):
    diagnosis = replace(content.diagnosis, doubt="This holds only if <people> call few pairs similar.")
    assert "only if <people> call" in words(Page(render(replace(content, diagnosis=diagnosis))), "trust")


def test_the_same_content_gives_the_same_page(html):
    assert render(made_content()) == html


def test_names_are_cut_and_kept_on_one_line():
    assert shown("a\n b\t c") == "a b c"
    assert shown("x" * 100, 10) == "x" * 9 + "…"
    assert shown(HOSTILE[11]) == "a\\u202eb\\x1b[31m"
