"""The page in a real browser: by keyboard alone, at a phone's width, with hostile text, and when the server dies."""

from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest
from browser import CHROMIUM, DRIVER, ENTER, REQUIRED, TAB, Browser
from label_server import serving

from pdcc.label.store import Store

if not (CHROMIUM and DRIVER):
    if REQUIRED:
        raise RuntimeError("PDCC_BROWSER=required, and there is no chromium or no chromedriver")
    pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver", allow_module_level=True)

HOSTILE = [
    "<img src=x onerror=\"window.hit='img'\">", "<script>window.hit='script'</script>", "\"'><b>bold</b>", "</section><h1>out</h1>",
    "{{7*7}} ${7*7} &lt;not&gt; &amp;", "javascript:window.hit=1", "a" * 300, "שלום \u202e abc",
]  # fmt: skip
NAME = '<b>Ann</b> "O\'Neil" &amp;'
SHOWN = "return [...document.querySelectorAll('#left, #right')].map((s) => s.textContent)"
READY = "return state.pair && !state.busy && ![...document.images].some((i) => !i.complete)"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("page")
    texts = [f"{k}: {HOSTILE[k % len(HOSTILE)]}" for k in range(40)]
    np.save(home / "x.npy", np.zeros((40, 2)))
    pd.DataFrame({"item": range(40), "text": texts}).to_csv(home / "texts.csv", index=False)
    wide = {"item": range(40), "<i>title</i>": texts, "n" * 80: ["w" * 200] * 40}
    pd.DataFrame(wide).to_csv(home / "columns.csv", index=False)
    (home / "images").mkdir()
    from PIL import Image

    for k in range(40):
        Image.new("RGB", (900 if k % 2 else 8, 300), (k * 5, 90, 120)).save(home / "images" / f"{k}.png")
    return home


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


def enter(browser, server, name=NAME):
    """Open the page as someone new, and give a name."""
    browser.go(server.address)
    browser.run("sessionStorage.clear()")
    browser.go(server.address)
    browser.until("return document.activeElement.id === 'name'")
    browser.press(*name, ENTER)
    browser.until(READY)


def answer(browser, key, mine):
    """Press a key and wait until the page says that the answer is kept."""
    browser.press(key)
    kind = {"s": "same", "d": "different", "u": "unsure"}[key]
    browser.until(
        "return !state.busy && byId('status').textContent.startsWith(arguments[0]) && byId('counts').textContent.startsWith(arguments[1])",
        f"Kept: {kind}.", f"You: {mine} ",
    )  # fmt: skip


def left_overs(browser):
    """What the page complained of, and whom it asked but its own server."""
    return browser.console(), {urlsplit(a).netloc for a in browser.requests()}


def test_thirty_answers_by_keyboard_outlive_the_server(browser, home):
    """30 answers, one undone and given again otherwise; then kill -9, and another server at the same place."""
    texts = pd.read_csv(home / "texts.csv").text.tolist()
    keys = [("s", "d", "u")[k % 3] for k in range(30)]
    browser.size(1200, 800)
    left_overs(browser)
    with serving("x.npy", "--items", "texts.csv", "--goal", 30, "--store", "keys.sqlite", cwd=home) as server:
        enter(browser, server)
        seen = []
        for k, key in enumerate(keys):
            seen.append(browser.run(SHOWN))
            answer(browser, key, k + 1)
        assert "The goal is reached" in browser.run("return byId('status').textContent")
        assert browser.run("return [byId('bar').value, byId('bar').max, byId('bar').hidden]") == [30, 30, False]
        browser.press("z")
        browser.until("return !state.busy && byId('counts').textContent.startsWith('You: 29 ')")
        assert browser.run(SHOWN) == seen[-1]
        answer(browser, "s", 30)
        assert browser.run("return byId('me').textContent") == f"You are {NAME}."
        assert browser.run("return [window.hit === undefined, document.images.length]") == [True, 0]
        assert overflowing(browser, 320) == ([], 0)
        problems, asked = left_overs(browser)
        assert problems == []
        assert asked == {urlsplit(server.address).netloc}
        server.kill()
        before = browser.run(SHOWN)
        browser.press("d")
        browser.until("return byId('status').textContent.includes('not kept yet')")
        assert browser.run(SHOWN) == before
    with Store(home / "keys.sqlite") as store:
        kept = store.kept()
        withdrawn = store._one("SELECT count(*) FROM answers WHERE withdrawn IS NOT NULL")
    assert [a.answer for a in kept] == [{"s": "same", "d": "different", "u": "unsure"}[k] for k in [*keys[:-1], "s"]]
    assert [[texts[int(a.i)], texts[int(a.j)]] for a in kept] == seen
    assert {a.annotator for a in kept} == {NAME}
    assert withdrawn == 1
    with serving("x.npy", "--items", "texts.csv", "--store", "keys.sqlite", cwd=home, port=server.port):
        browser.until(
            "return !state.busy && byId('status').textContent.includes('Nothing was kept. Here is another pair.')"
        )
        answer(browser, "u", 31)
    left_overs(browser)


def overflowing(browser, width):
    """What lies outside of a page of this width, as on a phone, or makes it wider."""
    browser.size(width, 700, mobile=True)
    browser.until("return innerWidth === arguments[0]", width)
    outside = "const r = e.getBoundingClientRect(); return r.right > innerWidth + 0.5 || r.left < -0.5"
    script = f"return [...document.querySelectorAll('body *')].filter((e) => {{{outside}}}).map((e) => e.outerHTML)"
    return browser.run(script), browser.run("return document.documentElement.scrollWidth - innerWidth")


def test_nothing_overflows_on_a_phone(browser, home):
    """Nor is anything that is to be pressed smaller than a thumb; and dark is dark."""
    left_overs(browser)
    show = ["--images", "images", "--items", "columns.csv"]
    with serving(
        "x.npy", *show, "--goal", 9999, "--annotator", "N" * 80, "--store", "phone.sqlite", cwd=home
    ) as server:
        browser.go(server.address)
        browser.run("sessionStorage.clear()")
        browser.go(server.address)  # with a name, it asks for none
        browser.until(READY)
        for width in (360, 320):
            assert overflowing(browser, width) == ([], 0)
        heights = browser.run("return [...document.querySelectorAll('#buttons button')].map((b) => b.offsetHeight)")
        assert min(heights) >= 44
        assert min(heights[:2]) >= 60
        browser.click("#different")
        browser.until("return !state.busy && byId('counts').textContent.startsWith('You: 1 ')")
        browser.until(READY)
        assert browser.run("return [...document.images].map((i) => i.naturalHeight)") == [300, 300]
        colours = []
        for scheme in ("light", "dark"):
            browser.colours(scheme)
            colours.append(browser.run("return getComputedStyle(document.body).backgroundColor"))
        assert colours == ["rgb(246, 245, 242)", "rgb(22, 24, 27)"]
        assert left_overs(browser) == ([], {urlsplit(server.address).netloc})


def test_tab_and_enter_are_enough_and_the_token_goes(browser, home):
    """Behind a token: the address loses it, scripts cannot read it, and a reload asks for no name."""
    browser.size(1200, 800)
    left_overs(browser)
    with serving("x.npy", "--items", "columns.csv", "--host", "127.0.0.1", "--store", "tab.sqlite", cwd=home) as server:
        assert "?token=" in server.address
        enter(browser, server, "Bob")
        assert browser.run("return [location.search, document.cookie]") == ["", ""]
        assert browser.run("return document.querySelector('dt').textContent") == "<i>title</i>"
        for _ in range(12):
            browser.press(TAB)
            if browser.run("return document.activeElement.id") == "different":
                break
        outline = "const s = getComputedStyle(document.activeElement); return [document.activeElement.id, s.outlineStyle, s.outlineWidth]"
        assert browser.run(outline) == ["different", "solid", "3px"]
        browser.press(ENTER)
        browser.until("return !state.busy && byId('status').textContent === 'Kept: different.'")
        assert browser.run("return document.activeElement.id") == "different"
        assert browser.run("const s = byId('status'); return [s.getAttribute('aria-live'), s.getAttribute('role')]") == ["polite", "status"]  # fmt: skip
        before = browser.run(SHOWN)
        browser.go(server.address.split("?")[0])
        browser.until(READY)
        assert browser.run(SHOWN) == before
        assert browser.run("return byId('counts').textContent") == "You: 1 · All: 1"
        browser.click("#change")
        browser.until("return document.activeElement.id === 'name'")
        browser.press(*"sdu")  # a name, not answers
        assert browser.run("return byId('name').value") == "sdu"
        assert left_overs(browser) == ([], {urlsplit(server.address).netloc})
    with Store(home / "tab.sqlite") as store:
        assert [(a.answer, a.annotator) for a in store.kept()] == [("different", "Bob")]
