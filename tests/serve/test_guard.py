"""Who may talk to the server."""

import pytest
from starlette.testclient import TestClient

from fne.serve.app import build_app

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def public(live):
    """A client of a server on another address, without the token."""
    with TestClient(
        build_app(live, TOKEN), base_url="http://192.0.2.7:8000", follow_redirects=False
    ) as opened:
        yield opened


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.1"])
def test_loopback_names_are_answered(client, host):
    assert client.get("/api/status", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example:8000", "0.0.0.0:8000", "[::1", "", "localhost@evil.example"],
)
def test_a_name_that_a_web_site_controls_is_refused(client, host):
    response = client.get("/api/status", headers={"host": host})
    assert response.status_code == 403
    assert (
        response.json()["error"]
        == "this server answers only to localhost; open http://localhost and its port"
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    ],
)
def test_pages_of_other_sites_are_refused(client, headers):
    response = client.post("/api/photos", content=b"x", headers=headers)
    assert (response.status_code, response.json()["error"]) == (
        403,
        "pages of other sites may not use this server",
    )


def test_the_page_itself_may_send_photos(client):
    response = client.post("/api/photos", content=b"x", headers={"origin": "http://127.0.0.1:8000"})
    assert response.status_code == 400  # it is no photo


@pytest.mark.parametrize(
    "path", ["/", "/api/status", "/openapi.json", "/page.js", "/nothing", "/?token=wrong"]
)
def test_another_address_demands_the_token(public, path):
    response = public.get(path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"].startswith("this server needs its token: open /?token=TOKEN")


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Basic {TOKEN}", 401),
        ("Bearer ", 401),
        ("Bearer \xe9", 401),
    ],
)
def test_the_token_is_taken_from_the_header(public, header, code):
    assert public.get("/api/status", headers={"authorization": header.encode("latin-1")}).status_code == code


def test_the_address_with_the_token_sets_a_cookie_that_scripts_cannot_read(live):
    with TestClient(
        build_app(live, TOKEN), base_url="http://192.0.2.7:8000", follow_redirects=False
    ) as browser:
        first = browser.get(f"/?token={TOKEN}")
        assert (first.status_code, first.headers["location"]) == (303, "/")
        assert first.headers["set-cookie"] == f"fne_token={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
        assert browser.get("/api/status").status_code == 200
        assert browser.get(f"/api/status?token={TOKEN}").status_code == 400  # only the page takes it there


@pytest.mark.parametrize("path", ["/", "/api/status", "/nothing", "/api/search"])
def test_every_answer_restricts_what_a_browser_may_do(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    )
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
