"""The tests run without a network: see ``refuse_network`` in conftest.py."""

import socket
import urllib.request

import pytest


@pytest.mark.parametrize("host", ["192.0.2.1", "example.org", "2001:db8::1"])
def test_other_machines_are_not_reached(host):
    with pytest.raises(RuntimeError, match=f"a test reaches for {host}; tests need no network"):
        socket.create_connection((host, 80), timeout=1)


def test_nothing_is_fetched():
    with pytest.raises((RuntimeError, OSError), match="tests need no network"):
        urllib.request.urlopen("http://example.org/", timeout=1)


def test_this_machine_is_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
