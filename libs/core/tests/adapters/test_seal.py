from __future__ import annotations

import pytest

from sluice_core.adapters.seal import Sealer, SealError, new_key
from sluice_core.adapters.settings import load
from sluice_core.domain.errors import ConfigError

OLD, NEW = new_key(), new_key()
DATA = b"of nobody's business"


def test_only_a_key_that_is_named_opens_it() -> None:
    sealed = Sealer([OLD]).seal(DATA)
    assert DATA not in sealed.encode()
    assert Sealer([OLD]).open(sealed) == Sealer([NEW, OLD]).open(sealed) == DATA
    for keys in ([NEW], []):
        with pytest.raises(SealError):
            Sealer(keys).open(sealed)
    with pytest.raises(SealError):
        Sealer([OLD]).open(f"{sealed[:-5]}AAAA=")
    with pytest.raises(SealError):
        Sealer([]).seal(DATA)


def test_a_key_is_changed_without_a_gap() -> None:
    sealed = Sealer([OLD]).seal(DATA)
    again = Sealer([NEW, OLD]).reseal(sealed)
    assert Sealer([NEW]).open(again) == DATA
    with pytest.raises(SealError):
        Sealer([OLD]).open(again)
    with pytest.raises(SealError):
        Sealer([NEW]).reseal(sealed)


@pytest.mark.parametrize(
    "text", ["short", f"{OLD},short", OLD[:-1]], ids=["short", "second", "cut"]
)
def test_a_setting_that_is_no_key_is_named_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match="SLUICE_SITE_SECRETS_KEY") as failure:
        load({"SLUICE_SITE_SECRETS_KEY": text})
    assert text not in str(failure.value)


def test_keys_are_read_and_masked() -> None:
    settings = load({"SLUICE_SITE_SECRETS_KEY": f"{NEW}, {OLD}"})
    assert settings.sites.keys == (NEW, OLD)
    assert settings.effective()["SLUICE_SITE_SECRETS_KEY"] == "***"
