"""The page of the server: its policy, and its behavior in a browser."""

import asyncio
import base64
import hashlib
import json
import os
import re
import socket
import threading
from pathlib import Path

import pytest

pytest.importorskip("starlette")
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from longsum_jax.serving.app import Limits, make_app
from longsum_jax.serving.engine import Engine
from longsum_jax.serving.page import make_page

TITLE = "<script>window.hacked = 1</script>"
# The sentence outside of the basic plane shifts positions in UTF-16.
TEXT = (
    "\U0001f600 The council met on Monday. "
    "It raised the budget for schools by 5 percent. "
    f"{TITLE} is the title of the resolution. "
    "Nobody objected to the new budget. The next meeting is in May."
)


def policy_of(headers):
    parts = headers["content-security-policy"].split("; ")
    return dict(part.partition(" ")[::2] for part in parts)


def test_policy():
    """Nothing runs or loads except the script and the style in the page."""
    with TestClient(make_app(Engine(), limits=Limits(api_keys=["key"]))) as client:
        response = client.get("/")
    assert response.status_code == 200
    policy = policy_of(response.headers)
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in str(policy)
    for tag in ("script", "style"):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", response.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest())
        assert policy[f"{tag}-src"] == f"'sha256-{digest.decode()}'"
    assert "{{" not in response.text
    assert response.headers["x-content-type-options"] == "nosniff"


def test_parts_of_the_page():
    """Without other machines, inline handlers, and HTML made of texts."""
    text = make_page(max_bytes=10).text
    assert '<body data-max-bytes="10"' in text
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", text)
    assert not re.search(r"\son\w+=", text.partition("<script>")[0])
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write", text)
    ids = re.findall(r'\sid="([\w-]+)"', text)
    assert len(ids) == len(set(ids))
    references = r'\s(?:for|aria-labelledby|aria-describedby)="([\w-]+)"'
    assert set(re.findall(references, text)) <= set(ids)
    script = text.partition("<script>")[2]
    assert set(re.findall(r'\bat\("([\w-]+)"\)', script)) >= {"form", "source"}


def test_text_of_the_document():
    body = {"text": TEXT, "sources": True, "document_text": True}
    with TestClient(make_app(Engine())) as client:
        answers = [
            client.post("/v1/summaries", json=fields).json()["summaries"][0]
            for fields in (body, {"text": TEXT})
        ]
    assert answers[0]["document_text"] == TEXT
    [source, *_] = answers[0]["sources"][0]["sources"]
    assert TEXT[source["start"] : source["end"]] == source["text"]
    assert "document_text" not in answers[1]


# In a browser


class Server:
    """An application in a thread, with its address."""

    def __init__(self, app):
        uvicorn = pytest.importorskip("uvicorn")
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        config = uvicorn.Config(app, log_level="error")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()

    def close(self):
        self._server.should_exit = True
        self._thread.join(10)


@pytest.fixture(scope="module")
def address():
    server = Server(make_app(Engine()))
    yield server.address
    server.close()


@pytest.fixture
def page(browser, address):
    browser.set_theme("light")
    browser.resize(1280, 900)
    browser.open(address)
    browser.wait("document.getElementById('facts').textContent")
    return browser


def content(browser, selector):
    script = f"document.querySelector({json.dumps(selector)}).textContent"
    return browser.run(script)


def drop(browser, name, text):
    browser.run(f"""{{
      const transfer = new DataTransfer();
      transfer.items.add(new File([{json.dumps(text)}], {json.dumps(name)}));
      const options = {{ dataTransfer: transfer, bubbles: true, cancelable: true }};
      document.getElementById("drop").dispatchEvent(new DragEvent("drop", options));
    }}""")


def summarize(browser, length, unit="sentences", button="summarize"):
    browser.run(f"""{{
      document.getElementById("length").value = "{length}";
      document.getElementById("unit").value = "{unit}";
      document.getElementById("status").textContent = "";
      document.getElementById("{button}").click();
    }}""")
    browser.wait("document.getElementById('status').textContent === 'Summary finished'")


@pytest.mark.browser
def test_a_dropped_file(page):
    name = "<img src=x onerror=hacked=1>.txt"
    drop(page, name, TEXT)
    assert content(page, "#file-names") == name
    summarize(page, 5)
    assert page.run("document.activeElement.id") == "name"
    assert content(page, "#name") == name
    assert content(page, "#source") == TEXT
    sentences = page.run("document.querySelectorAll('.sentence').length")
    assert sentences >= 3
    page.run("document.querySelector('.sentence').focus()")
    for i in range(sentences):
        page.press("Enter", 13)
        shown = page.run("document.activeElement.textContent")
        [mark] = page.run("[...document.querySelectorAll('mark')].map((mark) => mark.textContent)")
        assert mark == f"{shown}100 %"
        assert content(page, "#support").startswith("Based on one sentence")
        assert page.run("document.querySelectorAll('[aria-pressed=true]').length") == 1
        if i + 1 < sentences:
            page.press("ArrowRight", 39)
    assert page.run("window.hacked") is None


@pytest.mark.browser
def test_comparing_copying_and_storing(page, tmp_path):
    page.run(f"document.getElementById('text').value = {json.dumps(TEXT)}")
    assert page.run("document.getElementById('compare').hidden")
    summarize(page, 1)
    page.run("document.getElementById('question').value = 'next meeting'")
    summarize(page, 2, button="compare")
    titles = page.run("[...document.querySelectorAll('#summaries h3')].map((h) => h.textContent)")
    assert titles == ["Summary in 1 sentence", "Summary in 2 sentences: next meeting"]
    tops = page.run("[...document.querySelectorAll('article')].map((a) => a.offsetTop)")
    assert tops[0] == tops[1]
    page.run(
        "copied = null; navigator.clipboard.writeText ="
        " (text) => { copied = text; return Promise.resolve(); }; 0"
    )
    page.run("document.querySelector('article .actions button').click()")
    assert page.run("copied").startswith("## Pasted text\n\n")
    assert page.run("copied").endswith("built-in*\n")
    # The stored report is a page that works on its own.
    page.run(
        "URL.createObjectURL = (blob) => { stored = blob.text(); return '#'; };"
        "HTMLAnchorElement.prototype.click = () => {};"
        "document.getElementById('download').click()"
    )
    path = tmp_path / "report.html"
    path.write_text(page.run("stored"), encoding="utf-8")
    page.open(path.as_uri())
    assert page.run("document.querySelectorAll('article').length") == 2
    assert content(page, "#source") == TEXT
    assert page.run("document.getElementById('form').offsetHeight") == 0
    page.run("document.querySelector('.sentence').click()")
    assert page.run("document.querySelectorAll('mark').length") == 1


@pytest.mark.browser
def test_comparing_two_models(browser, tmp_path):
    long = "w" * 80
    server = Server(make_app(Engine(name="reports"), Engine(name=long)))
    try:
        browser.open(server.address)
        browser.wait("document.getElementById('facts').textContent")
        options = "[...document.getElementById('model').options].map((option) => option.value)"
        assert browser.run(options) == ["reports", long]
        browser.run(f"document.getElementById('text').value = {json.dumps(TEXT)}")
        summarize(browser, 1)
        assert content(browser, "#compare") == "Compare with these settings"
        browser.run("document.getElementById('model').focus()")
        browser.press("ArrowDown", 40)
        assert content(browser, "#compare") == f"Compare with {long}"
        summarize(browser, 2, button="compare")
        titles = "[...document.querySelectorAll('#summaries h3')].map((h) => h.textContent)"
        expected = ["Summary by reports in 1 sentence", f"Summary by {long} in 2 sentences"]
        assert browser.run(titles) == expected
        tops = browser.run("[...document.querySelectorAll('article')].map((a) => a.offsetTop)")
        assert tops[0] == tops[1]
        assert browser.run("runs.map((run) => run.model)") == ["reports", long]
        for width in (360, 1280):
            browser.resize(width, 800)
            assert browser.run("document.documentElement.scrollWidth") <= width
            assert browser.run(CHECKS) == []
    finally:
        server.close()


def stream(with_error):
    """An application that streams the parts of a summary."""
    served = make_page(max_bytes=1000)
    body = {}

    async def parts():
        for text in ("The council ", "met."):
            part = json.dumps({"document": 0, "text": text})
            yield f"event: delta\r\ndata: {part}\r\n\r\n"
            await asyncio.sleep(0.2)
        if with_error:
            error = json.dumps({"error": {"message": "the device failed"}})
            yield f"event: error\ndata: {error}\n\n"
            return
        summary = {"document": "a.txt", "summary": "The council met."}
        summary |= {"document_text": TEXT, "dropped_tokens": 3, "sources": []}
        summary |= {"read_tokens": 20, "document_tokens": 23}
        failed = {"document": "b.txt", "error": {"message": "b.txt is empty"}}
        answer = json.dumps({"model": "small", "summaries": [summary, failed]})
        yield f"event: result\ndata: {answer}\n\n"

    async def summaries(request):
        body.update(await request.json())
        return StreamingResponse(parts(), media_type="text/event-stream")

    async def models(request):
        return JSONResponse({"data": [{"id": "small"}]})

    async def page(request):
        return HTMLResponse(served.text, headers=served.headers)

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/v1/models", models),
            Route("/v1/summaries", summaries, methods=["POST"]),
        ]
    )
    return Server(app), body


@pytest.mark.browser
@pytest.mark.parametrize("with_error", [False, True])
def test_a_streamed_summary(browser, with_error):
    server, body = stream(with_error)
    try:
        browser.open(server.address)
        browser.wait("document.getElementById('facts').textContent === 'Model: small'")
        browser.run(
            "document.getElementById('text').value = 'The council met.';"
            "document.getElementById('summarize').click()"
        )
        browser.wait("document.querySelector('.partial .text')?.textContent")
        assert content(browser, ".partial .text").startswith("The council ")
        assert body["stream"] is True
        assert "length" not in body
        browser.wait("!document.querySelector('.partial')")
        if with_error:
            assert content(browser, "#problem") == "The device failed."
            assert browser.run("document.getElementById('reader').hidden")
        else:
            assert "20 of 23 tokens read" in content(browser, "#summaries")
            browser.run("at('document').value = 1; showRuns(1)")
            assert "B.txt is empty." in content(browser, "#summaries")
    finally:
        server.close()


@pytest.mark.browser
def test_problems(page):
    def problem():
        page.run("document.getElementById('summarize').click()")
        page.wait("document.getElementById('problem').textContent")
        return content(page, "#problem")

    assert problem().startswith("There is no document")
    page._call("Log.disable")  # the browser reports the status 422
    try:
        page.run(
            "document.getElementById('text').value = 'A text.';"
            "document.getElementById('length').value = '1.5'"
        )
        page.run("document.getElementById('problem').textContent = ''")
        assert "1.5" in problem()
    finally:
        page._call("Log.clear")
        page._call("Log.enable")


# Elements without a name, and texts with too little contrast (WCAG 2.2).
CHECKS = """(() => {
  const seen = (node) => node.checkVisibility({ visibilityProperty: true });
  const all = [...document.body.querySelectorAll("*")].filter(seen);
  const name = (node) =>
    node.getAttribute("aria-label") ||
    (node.getAttribute("aria-labelledby") ?? "").split(" ").filter(Boolean)
      .map((id) => document.getElementById(id).textContent).join(" ") ||
    [...(node.labels ?? [])].map((label) => label.textContent).join(" ") ||
    (/INPUT|SELECT|TEXTAREA/.test(node.tagName) ? "" : node.textContent);
  const controls = all.filter((node) =>
    node.matches("a[href], button, input, select, textarea, [role=button], [role=group]"));
  const unnamed = controls.filter((node) => !name(node).trim());
  const small = controls.filter((node) => node.matches("button, select, input, textarea"))
    .filter((node) => node.offsetHeight < 24 || node.offsetWidth < 24);
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => channels(color).slice(0, 3)
    .map((value) => value / 255)
    .map((value) => value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4)
    .reduce((sum, value, i) => sum + value * [.2126, .7152, .0722][i], 0);
  const paper = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return channels(color)[3] === 0 && node.parentElement ? paper(node.parentElement) : color;
  };
  const faint = all.filter((node) =>
    [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
    .filter((node) => !node.disabled)
    .filter((node) => {
      const [dark, bright] = [light(getComputedStyle(node).color), light(paper(node))]
        .sort((a, b) => a - b);
      return (bright + .05) / (dark + .05) < 4.5;
    });
  const levels = all.filter((node) => /^H\\d$/.test(node.tagName))
    .map((node) => Number(node.tagName[1]));
  const skipped = levels.filter((level, i) => level > (levels[i - 1] ?? 0) + 1);
  const live = document.querySelectorAll("[role=status], [role=alert]").length;
  const problems = [...unnamed, ...small, ...faint].map((node) => node.outerHTML.slice(0, 99));
  return [...problems, ...skipped, ...(live === 3 ? [] : ["live regions"])];
})()"""


@pytest.mark.browser
def test_accessibility_and_width(page):
    page.run(f"document.getElementById('text').value = {json.dumps(TEXT * 20)}")
    axe = os.environ.get("LONGSUM_JAX_AXE")
    if axe:
        page.run(Path(axe).read_text(encoding="utf-8") + ";0")
    for has_results in (False, True):
        if has_results:
            summarize(page, 2)
            page.run("document.getElementById('question').value = 'W'.repeat(80)")
            summarize(page, 3, button="compare")
            page.run("document.querySelector('.sentence').click()")
            drop(page, "w" * 200 + ".txt", TEXT)
        for theme in ("light", "dark"):
            page.set_theme(theme)
            for width in (360, 1280):
                page.resize(width, 800)
                wide = page.run("document.documentElement.scrollWidth")
                assert wide <= width, (theme, width)
                assert page.run(CHECKS) == [], (theme, width)
                if axe:
                    rules = page.run(
                        "axe.run().then(({ violations }) => violations.map((rule) => rule.id))"
                    )
                    assert rules == [], (theme, width)
