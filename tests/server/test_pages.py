"""The pages as files: complete, strict about where things come from, and open to nothing else."""

from __future__ import annotations

import re

import httpx
import pytest

from pagoda.server.pages import files

PAGES = ["/", "/playground"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_and_all_it_names_are_there(client: httpx.Client, page: str):
    response = client.get(page)
    assert response.status_code == 200 and response.headers["content-type"].startswith("text/html")
    named = re.findall(r'(?:src|href)="(/web/[^"]+)"', response.text)
    assert len(named) >= 4
    for path in named:
        assert client.get(path).status_code == 200, path
    assert "{{" not in response.text


def test_scripts_name_only_scripts_that_are_there():
    for name, content in files().items():
        for found in re.findall(r'from "\./([^"]+)"', content.decode()):
            assert found in files(), f"{name} imports {found}"


@pytest.mark.parametrize("path", [*PAGES, "/web/dom.js", "/web/base.css"])
def test_the_policy_lets_nothing_in_from_elsewhere(client: httpx.Client, path: str):
    headers = client.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'" and policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"] and headers["x-content-type-options"] == "nosniff"


def test_no_page_has_a_script_or_style_of_its_own():
    for name, content in files().items():
        text = content.decode()
        if name.endswith(".html") and name != "sign-in.html":
            assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name


@pytest.mark.parametrize(
    "path",
    [
        "nothing.js",
        "../pages.py",
        "..%2Fpages.py",
        "%2e%2e/pages.py",
        "dashboard.html",
        "sign-in.html",
        "{file}",
        "a/b",
    ],
)
def test_nothing_else_is_served(client: httpx.Client, path: str):
    assert client.get(f"/web/{path}").status_code == 404
