import pytest

from sluice_core.domain.egress import AddressPolicy, AllowRule
from sluice_core.domain.errors import ConfigError

REFUSED = [
    "0.0.0.0",  # noqa: S104  # nothing is bound
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "224.0.1.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe",
    "64:ff9b::7f00:1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "5f00::1",
    "localhost",
    "example.com",
    "2130706433",
    "0x7f.1",
    "127.1",
]

ALLOWED = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.0.1",
    "172.32.0.1",
    "198.17.0.1",
    "198.20.0.1",
    "223.255.255.255",
    "::ffff:8.8.8.8",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
]


@pytest.mark.parametrize("ip", REFUSED)
def test_special_addresses_are_refused(ip):
    assert not AddressPolicy().is_allowed(ip, 443)


@pytest.mark.parametrize("ip", ALLOWED)
def test_public_addresses_are_allowed(ip):
    assert AddressPolicy().is_allowed(ip, 443)


@pytest.mark.parametrize(
    ("rule", "ip", "port", "verdict"),
    [
        ("127.0.0.0/8", "127.0.0.1", 80, True),
        ("127.0.0.1", "127.0.0.1", 80, True),
        ("127.0.0.1", "127.0.0.2", 80, False),
        ("127.0.0.1:8080", "127.0.0.1", 8080, True),
        ("127.0.0.1:8080", "127.0.0.1", 80, False),
        ("127.0.0.1:8080", "::ffff:127.0.0.1", 8080, True),
        ("10.0.0.0/8:8080", "10.9.8.7", 8080, True),
        ("10.0.0.1/8", "10.9.8.7", 1, True),
        ("::1", "::1", 80, True),
        ("[::1]:80", "::1", 80, True),
        ("[::1]:80", "::1", 81, False),
        ("fd00::/8", "fd00::5", 1, True),
        ("[fd00::/8]:443", "fd00::5", 443, True),
        ("127.0.0.1", "169.254.169.254", 80, False),
    ],
)
def test_operator_opens_networks_and_ports(rule, ip, port, verdict):
    assert AddressPolicy.parse([rule]).is_allowed(ip, port) is verdict


@pytest.mark.parametrize("text", ["", "intranet", "10.0.0.0/33", "10.0.0.1:http", "10.0.0.1:0"])
def test_rule_that_can_not_be_read_is_named(text):
    with pytest.raises(ConfigError) as failure:
        AllowRule.parse(text)
    assert repr(text) in str(failure.value)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("nas.lan:80", "nas.lan", 80),
        ("Sluice-Sample-Site.media.svc:8080", "sluice-sample-site.media.svc", 8080),
        ("intranet:65535", "intranet", 65535),
    ],
)
def test_a_name_is_opened_on_one_port(text, host, port):
    policy = AddressPolicy.parse([text, "10.0.0.0/8"])
    assert policy.hosts_on(port) == (host,)
    assert policy.hosts_on(port - 1) == ()
    # A name says nothing of addresses: those are known to whoever looks it up.
    assert not policy.is_allowed("127.0.0.1", port)
    assert not policy.is_allowed(host, port)
    assert policy.is_open(host, port)
    assert policy.is_allowed("10.1.1.1", port)


@pytest.mark.parametrize(
    "text", ["nas.lan", "nas.lan:0", "nas.lan:65536", "-a:80", "a..b:80", "1.2.3:80", "a b:80"]
)
def test_a_name_that_can_not_be_read(text):
    with pytest.raises(ConfigError, match="neither a network nor"):
        AddressPolicy.parse([text])
