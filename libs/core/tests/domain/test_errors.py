from __future__ import annotations

import pytest

from sluice_core.domain.errors import CODES, MAX_MESSAGE, ErrorClass, SluiceError

#: The contract's list; a code may be added here, never taken out.
CONTRACT = """
unsupported_url not_found gone forbidden login_required geo_blocked age_restricted drm_protected
live_not_started rate_limited network timeout stalled server_error too_large too_many_entries
disk_full storage_error blocked_address bad_media no_media incomplete transcode_failed worker_lost
hard_time_limit canceled internal overloaded
""".split()  # noqa: SIM905  # to be compared with the contract by eye


def test_the_table_is_the_contracts_list() -> None:
    assert set(CODES) == set(CONTRACT)


@pytest.mark.parametrize("code", CODES)
def test_each_code_speaks_to_people(code: str) -> None:
    info = CODES[code]
    assert info.words
    assert info.words[0].islower()
    assert not info.words.endswith(".")
    assert info.help.endswith(".")
    # Columns of the database hold them.
    assert len(code) <= 32
    assert info.max_tries is None or info.error_class is ErrorClass.TRANSIENT


def test_an_error_takes_what_its_code_says() -> None:
    error = SluiceError(code="not_found")
    assert (error.message, error.error_class) == (CODES["not_found"].words, ErrorClass.PERMANENT)
    assert error.help == CODES["not_found"].help
    assert SluiceError().code == "internal"


def test_the_single_case_may_know_better() -> None:
    error = SluiceError("no", code="forbidden", error_class=ErrorClass.TRANSIENT, retry_after=9)
    assert (error.message, error.error_class, error.retry_after) == ("no", ErrorClass.TRANSIENT, 9)


def test_messages_are_cut() -> None:
    assert len(SluiceError("é" * 9000).message) == MAX_MESSAGE


def test_an_unknown_code_is_a_fault_of_ours() -> None:
    with pytest.raises(KeyError):
        SluiceError(code="no_such_code")
