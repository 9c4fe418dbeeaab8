"""What all tests share: fixtures, and how many processes run them."""

import signal

import psutil
import pytest

from sluice_core.adapters.cores import usable_cores

pytest_plugins = ["sluice_testing.plugin"]

#: Test processes for each core: on the whole, three quarters of a test are waiting.
_PER_CORE = 2
#: Beyond so many, one for each core will do.
_MANY = 8
#: Memory that one takes with its servers and the systems that it starts, bytes.
_EACH = 1_200_000_000

# Whoever starts a run in the background may have it ignore Ctrl-C; programs under test inherit
# that, and could not be asked to end as a person does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means here."""
    cores = usable_cores()
    wanted = max(cores, min(_PER_CORE * cores, _MANY))
    return max(1, min(wanted, psutil.virtual_memory().total // _EACH))
