"""Thousands of random networks."""

from networks_test import check_networks


def test_many_random_networks_are_right():
    check_networks(5000, 700)
