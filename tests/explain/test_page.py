"""The page: what it holds, and in a headless Chromium, what it does.

The tests of the browser run where there is one; `make test-page` says if there is not.
"""

import html.parser
import re
import tempfile
from pathlib import Path

import browser
import jax
import jax.numpy as jnp
import pytest

import onescan
from onescan.api import reference

REASON = browser.missing()
in_browser = pytest.mark.skipif(REASON is not None, reason=str(REASON))
VOID = {"meta", "link", "input", "br"}


def add(total, number):
    return total + number, number + 2


def train(state, batch):
    """A step with containers, products and more than one function."""
    error = batch["x"] @ state["weights"] - batch["y"]
    gradient = batch["x"].T @ error
    weights = state["weights"] - 0.1 * gradient
    return {"weights": weights, "count": state["count"] + 1}, jnp.mean(error**2)


def batches():
    x = jax.random.normal(jax.random.key(0), (40, 16, 12))
    return {"x": x, "y": jnp.sum(x, axis=-1)}


INIT = {"weights": jnp.zeros(12), "count": 0}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    spec = jax.ShapeDtypeStruct
    return {
        "add": onescan.explain(add, 0, [1, 2, 3]).save(folder / "add.html"),
        "back": onescan.explain(add, 0, [1, 2, 3], reverse=True).save(
            folder / "b.html"
        ),
        "train": onescan.explain(train, INIT, batches()).save(folder / "train.html"),
        "types": onescan.explain(
            lambda c, x: (c @ x, None),
            spec((1024, 1024), jnp.float32),
            spec((8, 1024, 1024), jnp.float32),
        ).save(folder / "types.html"),
    }


class Reader(html.parser.HTMLParser):
    """Notes what is not closed, and every id."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.labelled = [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "id" in given:
            self.ids.append(given["id"])
        if tag not in VOID and tag not in ("svg",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("svg",):
            assert self.open.pop() == tag, f"</{tag}> closes something else"


def test_pages_are_whole_and_load_nothing(pages):
    for page in pages.values():
        text = page.read_text(encoding="utf-8")
        reader = Reader()
        reader.feed(text)
        assert reader.open == []
        assert len(reader.ids) == len(set(reader.ids))
        assert not re.findall(
            r"""(?:src|href|url)\s*[=(]\s*["']?(?!data:)[a-z/]""", text
        )
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert "default-src 'none'" in text
        assert not re.search(r"\$[a-z]", text)
        assert len(text) < 120_000


def test_values_are_in_the_table_without_a_script(pages):
    text = pages["add"].read_text(encoding="utf-8")
    cells = re.findall(r'<td class="(carry-in|x|carry-out|y)"><span[^>]*>(\d)<', text)
    assert "".join(value for _, value in cells) == "011312343365"


def test_names_are_escaped(tmp_path):
    def odd(c, x):
        return {"</script><b>": c["</script><b>"] + x}, x

    told = onescan.explain(odd, {"</script><b>": 0}, [1, 2])
    text = told.save(tmp_path / "odd.html").read_text(encoding="utf-8")
    assert text.count("</script>") == 1
    assert "<b>'" not in text


def test_a_notebook_shows_the_page_in_a_frame():
    shown = onescan.explain(add, 0, [1, 2, 3])._repr_html_()
    assert shown.startswith('<iframe title="add (test_page.py:')
    assert "&lt;!doctype html&gt;" in shown


@pytest.fixture(scope="module")
def window():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        opened = browser.Browser(Path(profile))
        try:
            yield opened
        finally:
            opened.close()


def shown(window):
    return [window.text(f"#{name}") for name in ("carry-in", "x", "carry-out", "y")]


@in_browser
def test_slider_and_keys_step_through_the_reference(window, pages):
    window.size(1100, 900)
    window.open(pages["add"])
    carry, expected = 0, []
    for x in [1, 2, 3]:
        before = carry
        carry, y = reference.scan(add, carry, [x])[0], add(carry, x)[1]
        expected.append([str(v) for v in (before, x, carry, y)])
    assert shown(window) == expected[0]
    window.press("right")
    assert shown(window) == expected[1]
    assert window.text("#now") == "step 1, 2 of 3"
    move = "const s = document.getElementById('slider'); s.value = 2; "
    window.run(move + "s.dispatchEvent(new Event('input'))")
    assert shown(window) == expected[2]
    assert (
        window.run("return document.querySelector('#steps .now').dataset.step") == "2"
    )
    tape = "return [...document.querySelectorAll('#ys li')].map(li => li.innerText)"
    assert window.run(tape) == ["3", "4", "5"]
    window.press("left")
    assert shown(window) == expected[1]
    assert window.run(tape) == ["3", "4", ""]
    window.click("#steps tbody tr:first-child .go")
    assert shown(window) == expected[0]
    assert window.run("return document.getElementById('back').disabled") is True
    window.run("document.getElementById('slider').focus()")
    window.press("right")
    assert shown(window) == expected[1]
    assert window.console() == []


@in_browser
def test_a_loop_from_last_to_first(window, pages):
    window.open(pages["back"])
    assert shown(window) == ["0", "3", "3", "5"]
    tape = "return [...document.querySelectorAll('#ys li')].map(li => li.innerText)"
    assert window.run(tape) == ["", "", "5"]


@in_browser
def test_no_tape_where_there_is_none(window, tmp_path):
    told = onescan.explain(lambda c, _: (2 * c, None), 1, length=3)
    window.open(told.save(tmp_path / "doubling.html"))
    window.press("right")
    assert shown(window) == ["2", "None", "4", "None"]
    assert window.text("#xs") == window.text("#ys") == "none"
    drawn = "return document.querySelectorAll('#wires path:not(.tip)').length"
    assert window.run(drawn) == 3  # the carry: in, out and round
    assert window.console() == []


@in_browser
def test_dots_run_along_the_wires(window, pages):
    still = {"name": "prefers-reduced-motion", "value": "no-preference"}
    window.devtools("Emulation.setEmulatedMedia", features=[still])
    window.open(pages["add"])
    dots = "return document.querySelectorAll('#wires circle').length"
    assert window.run(dots) == 0
    window.press("right")
    frames = [window.run(dots) for _ in range(300)]
    assert max(frames) > 0
    window.size(1100, 900)


@in_browser
def test_tabs_by_mouse_and_keys(window, pages):
    window.open(pages["train"])
    open_parts = (
        "return [...document.querySelectorAll('main > section')]"
        ".filter(s => !s.hidden).map(s => s.id)"
    )
    assert window.run(open_parts) == ["walk"]
    window.click("#tab-run")
    assert window.run(open_parts) == ["run"]
    assert "One step" in window.text("#run")
    window.run("document.getElementById('tab-run').focus()")
    window.press("right")
    assert window.run(open_parts) == ["source"]
    assert "gradient = batch" in window.text("#source")
    window.press("right")
    assert window.run(open_parts) == ["walk"]
    selected = "return document.activeElement.getAttribute('aria-selected')"
    assert window.run(selected) == "true"


@in_browser
def test_everything_has_a_label(window, pages):
    window.open(pages["train"])
    nameless = window.run("""
        const named = e => e.getAttribute('aria-label') || e.labels?.length
          || e.getAttribute('aria-labelledby') || e.innerText?.trim();
        return [...document.querySelectorAll('button, input, select, [tabindex="0"]')]
          .filter(e => e.tagName !== 'PRE' && !named(e)).map(e => e.outerHTML);
    """)
    assert nameless == []
    assert window.run("return document.documentElement.lang") == "en"


@in_browser
@pytest.mark.parametrize("width", [320, 375, 768, 1100])
@pytest.mark.parametrize("name", ["add", "train", "types"])
def test_nothing_overflows(window, pages, name, width):
    window.size(width, 800, dark=width == 375)
    window.open(pages[name])
    assert window.run("return document.documentElement.dataset.theme") == (
        "dark" if width == 375 else "light"
    )
    for tab in ("walk", "shapes", "run", "source"):
        window.click(f"#tab-{tab}")
        assert window.run("return document.documentElement.scrollWidth") <= width
        cut = window.run("""
            const style = e => getComputedStyle(e);
            const scrolls = e => ['auto', 'scroll'].includes(style(e).overflowX);
            return [...document.querySelectorAll('main *:not(h2)')].filter(e =>
              e.offsetParent && e.scrollWidth > e.clientWidth + 1 && e.clientWidth
              && style(e).display !== 'inline' && !e.closest('svg')
              && !scrolls(e) && ![...document.querySelectorAll('.scroll, pre, .leaves')]
                .some(s => s.contains(e))
            ).map(e => e.outerHTML.slice(0, 80));
        """)
        assert cut == []
    assert window.console() == []


@in_browser
def test_light_and_dark_by_the_button(window, pages):
    window.size(1100, 900)
    window.open(pages["add"])
    paper = "return getComputedStyle(document.body).backgroundColor"
    assert window.run(paper) == "rgb(255, 255, 255)"
    window.click("#theme")
    assert window.run(paper) == "rgb(20, 23, 28)"


@in_browser
def test_contrast_is_readable(window, pages):
    """Text on its ground by the WCAG formula: 4.5 to 1."""
    script = """
        const light = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
          .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
          .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const ground = e => { for (; e; e = e.parentElement) {
          const c = getComputedStyle(e).backgroundColor;
          if (!c.startsWith('rgba(0, 0, 0, 0')) return c;
        } return 'rgb(255,255,255)'; };
        const poor = [];
        for (const e of document.querySelectorAll('body *')) {
          if (!e.offsetParent || e.disabled) continue;
          const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
          if (!own) continue;
          const a = light(getComputedStyle(e).color), b = light(ground(e));
          const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          if (ratio < 4.5) poor.push(`${e.className} ${e.innerText} ${ratio}`);
        }
        return poor;
    """
    for dark in (False, True):
        window.size(1100, 900, dark)
        window.open(pages["train"])
        for tab in ("walk", "shapes", "run", "source"):
            window.click(f"#tab-{tab}")
            assert window.run(script) == []
