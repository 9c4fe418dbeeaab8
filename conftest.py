"""Fixtures for the tests of all members."""

import signal

pytest_plugins = ["sluice_testing.plugin"]

# Whoever starts a run in the background may have it ignore Ctrl-C; programs under test inherit
# that, and could not be asked to end as a person does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
