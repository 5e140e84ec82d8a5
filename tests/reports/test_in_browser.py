import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reports import render

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: pages are not opened")

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--window-size=1400,1000",
         "--virtual-time-budget=4000", "--dump-dom")
BROWSERS_OWN = re.compile(r"https?://[^/\"]*(google\.com|googleapis\.com|gstatic\.com)[/:\"]")
INK = {"light": "#1b1f27", "dark": "#e7eaef"}
PROBE = """<script>
addEventListener("load", async () => {
  document.querySelector("button[data-copy]").click();
  await new Promise((done) => setTimeout(done, 300));
  const drawn = [...document.querySelectorAll(".plot")].map((node) => ({
    width: node.getBoundingClientRect().width, points: node.data.map((trace) => trace.x.length),
    text: node._fullLayout.font.color, buttons: node.querySelector(".modebar").innerHTML,
  }));
  parent.postMessage(JSON.stringify({
    button: document.querySelector("button[data-copy]").textContent,
    overflow: document.documentElement.scrollWidth - innerWidth,
    background: getComputedStyle(document.body).backgroundColor, drawn,
  }), "*");
});
</script></body>"""
FRAME = """<!doctype html><pre id="found"></pre>
<script>addEventListener("message", (e) => { found.textContent = e.data; });</script>
<iframe src="probed.html" allow="clipboard-write" style="width:WIDTHpx;height:900px;border:0"></iframe>"""


def browse(page: Path, profile: Path, *flags: str) -> tuple[str, str]:
    """The page's document after its scripts ran, and what the browser logged."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


def probed(page: str, folder: Path, width: int, *flags: str) -> dict[str, Any]:
    """What the page looks like from inside a frame of `width` pixels."""
    # The probe is a stranger to the page's policy, which is tested in its own right.
    (folder / "probed.html").write_text(
        re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace("</body>", PROBE)
    )
    (folder / "frame.html").write_text(FRAME.replace("WIDTH", str(width)))
    dom, _ = browse(folder / "frame.html", folder / "profile", *flags)
    found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None, dom[:500]
    return dict(json.loads(html.unescape(found[1])))


def test_the_page_runs_without_errors_or_requests(tmp_path: Path, finished: Path) -> None:
    """Under its own policy every chart is drawn, the console stays silent, nothing is fetched."""
    page = tmp_path / "report.html"
    page.write_text(render([finished], "html"))
    dom, log = browse(page, tmp_path / "profile", f"--log-net-log={tmp_path / 'net.json'}")
    assert "CONSOLE" not in log
    assert len(re.findall(r'class="[^"]*js-plotly-plot', dom)) == 3
    urls = re.findall(r'"url":"(https?://[^"]+")', (tmp_path / "net.json").read_text(errors="replace"))
    assert [url for url in urls if not BROWSERS_OWN.match(url)] == []


@pytest.mark.parametrize(
    ("width", "scheme", "background"),
    [(1280, "light", "rgb(255, 255, 255)"), (400, "dark", "rgb(20, 23, 28)")],
)
def test_the_page_fits_and_follows_the_scheme(
    tmp_path: Path, finished: Path, width: int, scheme: str, background: str
) -> None:
    """Nothing is wider than the window, charts follow light and dark, the command is copied."""
    setting = f"--blink-settings=preferredColorScheme={1 if scheme == 'light' else 0}"
    found = probed(render([finished], "html"), tmp_path, width, setting)
    assert found["overflow"] <= 0
    assert found["background"] == background
    assert found["button"] in ("Copied", "Selected")
    for chart in found["drawn"]:
        assert 250 < chart["width"] <= width
        assert chart["text"] == INK[scheme]
        assert not re.search("share|cloud", chart["buttons"], re.IGNORECASE)
        assert sum(chart["points"]) > 0
