"""The report in Chromium: nothing on the console, usable without a mouse or a script, sorted, filtered and saved, fit for a phone and paper."""

import csv
import time

import browser
import pytest
from made_up import HOSTILE, made_content, picture

from pdcc.report.page import render

MISSING = [name for name, found in (("chromium", browser.CHROMIUM), ("chromedriver", browser.DRIVER)) if not found]
needs_axe = pytest.mark.skipif(
    browser.axe() is None and not browser.REQUIRED,
    reason="axe-core is not there: npm install --prefix build/axe axe-core",
)
pytestmark = pytest.mark.skipif(
    bool(MISSING) and not browser.REQUIRED, reason=f"not found: {', '.join(MISSING)}; install them to run these tests"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def page(place):
    images = {n: picture(place / f"{n}.png", n) for n in range(3)}
    content = made_content(hostile=True, images={n: images[n % 3] for n in range(120)})
    path = place / "report.html"
    path.write_text(render(content), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium(place):
    assert not MISSING, f"PDCC_BROWSER is required, and not found: {', '.join(MISSING)}"
    found = browser.Browser(place)
    yield found
    found.close()


@pytest.fixture
def opened(chromium, page):
    chromium.devtools("Emulation.setScriptExecutionDisabled", value=False)
    chromium.look()
    chromium.go(page.resolve().as_uri())
    return chromium


@needs_axe
@pytest.mark.parametrize(("dark", "width"), [(False, 1200), (True, 390)], ids=["light desk", "dark phone"])
def test_axe_finds_nothing_serious(opened, page, dark, width):
    opened.look(dark=dark, width=width)
    opened.go(page.resolve().as_uri())
    opened.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert browser.axe() is not None, (
        "PDCC_BROWSER is required, and axe-core is not found: npm install --prefix build/axe axe-core"
    )
    opened.run(browser.axe().read_text(encoding="utf-8"))
    found = opened.wait_for(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document).then((r) => done([r.passes.length, r.violations.map((v) => [v.impact, v.id, v.nodes.map((n) => n.html)])]))"
    )
    assert found[0] > 20
    assert [v for v in found[1] if v[0] in ("serious", "critical")] == []
    # Nothing is wider than the screen.
    assert opened.run("return document.documentElement.scrollWidth") <= width


def test_nothing_is_on_the_console_and_nothing_ran(opened):
    assert opened.console() == []
    assert opened.run("return document.scripts.length") == 1
    assert opened.run("return performance.getEntriesByType('resource').filter((r) => !r.name.startsWith('data:')).length") == 0  # fmt: skip
    assert opened.run("return [...document.images].every((i) => i.complete && i.naturalWidth > 0)")
    assert opened.run("return document.images.length") > 10
    # Figures follow the page's colours.
    ink = "return getComputedStyle(document.querySelector('#figure-purity text')).fill"
    light = opened.run(ink)
    opened.look(dark=True)
    assert opened.run(ink) != light
    # A script that someone smuggled in would be stopped: the policy holds.
    opened.run(
        "const s = document.createElement('script'); s.textContent = 'window.smuggled = 1'; document.body.append(s)"
    )
    assert opened.run("return window.smuggled ?? null") is None
    assert any("Content Security Policy" in line for line in opened.console())


ROWS = "return [...document.querySelectorAll('#answer-table tbody tr')].filter((r) => !r.hidden)"


def column(opened, number: int) -> list[str]:
    return opened.run(f"{ROWS}.map((r) => r.cells[{number}].textContent.trim())")


def test_answers_are_sorted_by_keyboard(opened):
    heading = "#answer-table th:nth-child(6)"
    assert column(opened, 5) == sorted(column(opened, 5), reverse=True)
    opened.run(f"document.querySelector('{heading} button').focus()")
    for key, reverse, word in (("Enter", False, "ascending"), (" ", True, "descending")):
        for kind in ("keyDown", "keyUp"):
            opened.devtools("Input.dispatchKeyEvent", type=kind, key=key, code="Space" if key == " " else key, text="\r" if key == "Enter" else " ", windowsVirtualKeyCode=13 if key == "Enter" else 32)  # fmt: skip
        assert opened.run(f"return document.querySelector('{heading}').getAttribute('aria-sort')") == word
        assert column(opened, 5) == sorted(column(opened, 5), reverse=reverse)
    assert opened.run("return document.activeElement.textContent") == "Wrong"


def test_answers_are_filtered_and_saved(opened, place):
    name = column(opened, 3)[0]
    opened.run(
        "const i = document.querySelector('[data-for=answer-table] input'); i.value = arguments[0]; i.dispatchEvent(new Event('input'))",
        name,
    )
    kept = column(opened, 3)
    assert 0 < len(kept) < 300
    status = opened.run("return document.querySelector('[data-for=answer-table] [role=status]').textContent")
    assert status == f"{len(kept)} of 300 answers shown"
    opened.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(place))
    opened.run("document.querySelector('[data-for=answer-table] button').click()")
    saved = place / "doubtful-answers.csv"
    for _ in range(300):
        if saved.exists():
            break
        time.sleep(0.1)
    with saved.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["Item", "Item", "Answer", "Annotator", "Expected", "Wrong", "Reason"]
    assert len(rows) == 1 + len(kept)
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row)
    assert any(cell.startswith("'=1+1") for row in rows for cell in row)
    assert opened.console() == []


def test_it_is_read_without_a_script(opened, page):
    opened.devtools("Emulation.setScriptExecutionDisabled", value=True)
    opened.go(page.resolve().as_uri())
    text = opened.devtools("DOM.getDocument", depth=-1)
    html = opened.devtools("DOM.getOuterHTML", nodeId=text["root"]["nodeId"])["outerHTML"]
    table = html[html.index('id="answer-table"') :]
    assert table[: table.index("</tbody>")].count("<tr>") == 301
    assert "<button" not in table[: table.index("</table>")]
    assert 'data-for="answer-table" hidden' in html


def test_it_prints(opened, place):
    opened.pdf(place / "report.pdf")
    body = (place / "report.pdf").read_bytes()
    assert body.startswith(b"%PDF")
    assert len(body) > 50_000
    opened.devtools("Emulation.setEmulatedMedia", media="print")
    hidden = opened.run("return ['nav', '.tools'].map((s) => getComputedStyle(document.querySelector(s)).display)")
    shown = opened.run("return [...document.querySelectorAll('#answer-table tbody tr')].filter((r) => getComputedStyle(r).display !== 'none').length")  # fmt: skip
    opened.devtools("Emulation.setEmulatedMedia", media="")
    assert hidden == ["none", "none"]
    assert shown == 40


def test_the_first_stop_of_the_tabulator_skips_the_contents(opened):
    for kind in ("keyDown", "keyUp"):
        opened.devtools("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert opened.run("return document.activeElement.textContent") == "Skip to the report"
    assert opened.run("return document.activeElement.getBoundingClientRect().left") >= 0
    assert HOSTILE[0] in opened.run("return document.title")
