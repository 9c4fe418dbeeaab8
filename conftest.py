"""Fixtures for the tests of all members."""

pytest_plugins = ["sluice_testing.plugin"]
