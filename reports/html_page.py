"""A document as one HTML file that needs nothing else: no network, no second file."""

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reports.document import Chart, Details, Document


def html_page(document: Document) -> str:
    """The page; the same document gives the same bytes.

    All text is escaped. The page's security policy allows its own two scripts by their hashes
    and no connection, so that text from outside can neither run nor reach anything. plotly's
    bundle (4.8 MB) is embedded once, and only when a chart is drawn.
    """
    js = _asset("page.js")
    bundle = (
        _plotly() if any(_draws(block) for section in document.sections for block in section.blocks) else ""
    )
    # Markup marks our own files as no text to escape; everything else is.
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            document=document,
            css=Markup(_asset("page.css")),
            js=Markup(js),
            bundle=Markup(bundle),
            script_sources=Markup(
                " ".join(f"'sha256-{_digest(script)}'" for script in (bundle, js) if script)
            ),
        )
    )


def _draws(block: Any) -> bool:
    if isinstance(block, Details):
        return any(_draws(inner) for inner in block.blocks)
    return isinstance(block, Chart) and block.figure is not None


@cache
def _environment() -> Environment:
    return Environment(loader=PackageLoader("reports"), autoescape=True, undefined=StrictUndefined)


@cache
def _asset(name: str) -> str:
    return (resources.files("reports") / "templates" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
