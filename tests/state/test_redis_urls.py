"""URLs of Sentinels and Clusters."""

from __future__ import annotations

from typing import Any

import pytest

from state.redis_urls import Servers, servers_of


@pytest.mark.parametrize(
    ("url", "addresses", "service", "options"),
    [
        (
            "redis+sentinel://u:p%2F@a,b:26380/mymaster/2",
            (("a", 26379), ("b", 26380)),
            "mymaster",
            {"username": "u", "password": "p/", "db": 2},
        ),
        ("redis+cluster://a,b:7000", (("a", 6379), ("b", 7000)), None, {}),
        ("redis+cluster://:p@[::1]:7000,a/0", (("::1", 7000), ("a", 6379)), None, {"password": "p", "db": 0}),
    ],
)
def test_a_url_names_several_servers(
    url: str, addresses: tuple[tuple[str, int], ...], service: str | None, options: dict[str, Any]
) -> None:
    assert servers_of(url) == Servers(addresses, service, options)


def test_other_urls_name_a_redis_itself_and_a_cluster_s_nodes_are_reached_by_tls_as_its_url_says() -> None:
    assert [servers_of(url) for url in ("redis://h:6379/0", "rediss://h", "unix:///run/redis.sock")] == [
        None
    ] * 3
    found = servers_of("rediss+cluster://h?ssl_ca_certs=/ca.pem")
    assert found is not None
    assert found.options["connection_class"].__name__ == "SSLConnection"
    assert found.options["ssl_ca_certs"] == "/ca.pem"
