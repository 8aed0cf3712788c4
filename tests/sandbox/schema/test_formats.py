"""The formats of strings are those that the API checks, and as it checks them."""

import pytest

from kopf._sandbox.schema import formats


@pytest.mark.parametrize(
    'name, good, bad',
    [
        (
            'date-time',
            [
                '2020-01-01T00:00:00Z',
                '2020-01-01t10:00:00.5+02:00',
                '2020-01-01T00:00:00.123456789Z',
            ],
            [
                'x',
                '2020-01-01 00:00:00',
                '2020-01-01T00:00:00',
                '2020-13-01T00:00:00Z',
                '2020-01-01T24:00:00Z',
            ],
        ),
        ('date', ['2020-02-29'], ['2020-02-30', 'x', '2020-1-1']),
        ('byte', ['YWJj', 'YQ=='], ['', '!', 'YQ', 'YW Jj']),
        (
            'duration',
            ['1h', '1.5h', '-1h', '.5s', '1h30m', '1d', '22 ns', '1 week'],
            ['', '5', 'abc', '1x'],
        ),
        ('ipv4', ['1.2.3.4', '01.2.3.4', '::ffff:1.2.3.4'], ['x', '::1', '1.2.3', '256.1.1.1']),
        ('ipv6', ['::1', '::ffff:1.2.3.4'], ['x', '1.2.3.4', 'fe80::1%eth0']),
        ('cidr', ['10.0.0.0/8', '::/0'], ['10.0.0.0', '10.0.0.0/33']),
        (
            'mac',
            ['01:23:45:67:89:ab', '01-23-45-67-89-ab', '0123.4567.89ab'],
            ['x', '01:23:45:67:89'],
        ),
        (
            'uuid',
            ['123e4567-e89b-12d3-a456-426614174000', '123E4567E89B12D3A456426614174000'],
            ['x'],
        ),
        ('uuid3', ['123e4567-e89b-32d3-a456-426614174000'], ['x']),
        (
            'uuid4',
            ['123e4567-e89b-42d3-a456-426614174000'],
            ['123e4567-e89b-12d3-a456-426614174000'],
        ),
        ('uuid5', ['123e4567-e89b-52d3-a456-426614174000'], ['x']),
        (
            'email',
            ['a@b.c', 'a@b', 'A <a@b>', '<a@b>', '"a b"@c'],
            ['x', '@b', 'a@', 'a b@c', 'a..b@c'],
        ),
        (
            'uri',
            ['http://a', 'http://', '/path', '//host/p', 'mailto:x'],
            ['', 'x', 'http://a b', 'http://[::1', 'http://a:port/'],
        ),
        ('hostname', ['a.com', 'a', 'localhost'], ['a_b', '-a', 'a.b.c1', 'a.com.', '1.2.3.4']),
        ('isbn', ['0321751043', '978-0321751041'], ['x']),
        ('creditcard', ['4111111111111111'], ['x', '4111111111111112']),
        ('ssn', ['123-45-6789'], ['x', '123456789']),
        ('hexcolor', ['#fff', 'ffffff'], ['ggg']),
        ('rgbcolor', ['rgb(1,2,3)'], ['x']),
        ('password', ['x', ''], []),
        ('bsonobjectid', ['507f1f77bcf86cd799439011'], ['x']),
        ('k8s-short-name', ['abc'], ['A', 'a.b']),
        ('k8s-long-name', ['a.b'], ['A']),
    ],
)
def test_formats_are_checked(name, good, bad):
    check = formats.find_check(name)

    assert [value for value in [*good, *bad] if check(value)] == good


@pytest.mark.parametrize('name', ['', 'int32', 'int64', 'double', 'strange'])
def test_other_formats_are_not_checked(name):
    assert formats.find_check(name) is None
