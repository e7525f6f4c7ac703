"""Thousands of random networks."""

from networks_test import SLACK, check_networks


def test_many_random_networks_are_right(monkeypatch):
    monkeypatch.setenv("TESSERA_FUZZ_SLACK", str(SLACK))
    check_networks(5000, 700)
