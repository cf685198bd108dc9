"""The live page at `/`: a shell rendered here, static modules, everything else read from the functions over HTTP."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from string import Template

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from state.events import CATALOGUE
from state.program import PROGRAM
from state.settings import Settings

STATIC = Path(__file__).with_name("static")
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' blob:",  # the plot is fetched, so that a refusal of it can be shown
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",  # no text becomes markup, not even by a mistake of ours
    "trusted-types": "default",  # lets the chart library empty an element, and nothing else (static/charts.js)
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # ask again each time: an ETag makes that cheap, a restart never mixes versions
}


class PageFiles(StaticFiles):
    """Static files with the page's headers; Starlette adds the ETag and answers 304."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


def dashboard(settings: Settings) -> list[BaseRoute]:
    shell = Template((STATIC / "index.html").read_text()).substitute(
        lab=escape(settings.lab), program=escape(PROGRAM), types=escape(" ".join(sorted(CATALOGUE)))
    )

    async def page(_: Request) -> Response:
        return HTMLResponse(shell, headers=HEADERS)

    return [Route("/", page), Mount("/static", PageFiles(directory=STATIC))]
