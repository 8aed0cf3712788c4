"""
Patterns of namespaces: which namespaces they mean.
"""

import re

import pytest

from kopf._cogs.structs import references


@pytest.mark.parametrize(
    'pattern, matching, mismatching',
    [
        pytest.param('ns', ['ns'], ['ns1', 'xns', 'n', ''], id='exact'),
        pytest.param(
            '*-pr-123-*',
            ['app-pr-123-x', '-pr-123-'],
            ['app-pr-123', 'app-pr-1234-x'],
            id='asterisks',
            marks=pytest.mark.guarantee('SCP-002'),
        ),
        pytest.param(
            'ns?',
            ['ns1', 'nsx'],
            ['ns', 'ns12'],
            id='question',
            marks=pytest.mark.guarantee('SCP-002'),
        ),
        pytest.param(
            '*', ['ns', 'kube-system'], [], id='all', marks=pytest.mark.guarantee('SCP-002')
        ),
        pytest.param(
            '!*-pr-123-*',
            ['ns', 'app-pr-123'],
            ['app-pr-123-x'],
            id='negated',
            marks=pytest.mark.guarantee('SCP-003', 'SCP-006'),
        ),
        pytest.param(
            'a*,!ab*,abc*',
            ['a', 'ax', 'abc', 'abcd'],
            ['ab', 'abx', 'b'],
            id='last-decides',
            marks=pytest.mark.guarantee('SCP-004'),
        ),
        pytest.param(
            'a*,!*', [], ['a', 'ab', 'b'], id='all-excluded', marks=pytest.mark.guarantee('SCP-004')
        ),
        pytest.param(
            'a*,b*',
            ['a', 'ab'],
            ['b', 'bb'],
            id='first-decides',
            marks=pytest.mark.guarantee('SCP-005'),
        ),
        pytest.param(
            '!a*,ab*',
            ['ab', 'b'],
            ['a', 'ax'],
            id='negated-first',
            marks=pytest.mark.guarantee('SCP-006', 'SCP-004'),
        ),
        pytest.param(
            'myapp-*,!*-pr-*,*-pr-123',
            ['myapp-live', 'myapp-pr-123'],
            ['myapp-pr-456', 'otherapp-live', 'otherapp-pr-123'],
            id='all-together',
            marks=pytest.mark.guarantee('SCP-007'),
        ),
        pytest.param(' a* , ! ab* ', ['a', 'ax'], ['ab', 'abc', 'b'], id='spaces'),
        pytest.param(' ns ', ['ns'], ['ns1'], id='spaces-around-name'),
        pytest.param('a*,,', ['a', 'ab'], ['b'], id='empty-parts'),
        pytest.param('', [], ['ns', ''], id='empty'),
        pytest.param(',', [], ['ns', ''], id='only-comma'),
        pytest.param('n[s]', ['n[s]'], ['ns'], id='brackets-mean-themselves'),
        pytest.param('n.s', ['n.s'], ['nxs'], id='dots-mean-themselves'),
        pytest.param('NS', ['NS'], ['ns'], id='case-matters'),
        pytest.param(re.compile('ns[0-9]'), ['ns1'], ['ns', 'ns12', 'xns1'], id='regexp'),
        pytest.param(re.compile('a|ab'), ['a', 'ab'], ['abc'], id='regexp-alternatives'),
        pytest.param(re.compile('NS', re.IGNORECASE), ['ns', 'NS'], ['ns1'], id='regexp-flags'),
    ],
)
def test_namespaces_are_matched(pattern, matching, mismatching):
    names = [*matching, *mismatching]

    assert [name for name in names if references.match_namespace(name, pattern)] == matching


@pytest.mark.parametrize(
    'pattern, expected',
    [
        ('ns', True),
        (' ns ', True),
        ('a,b', False),
        ('a*', False),
        ('a?', False),
        ('!a', False),
        ('', False),
        (' ', False),
        (re.compile('ns'), False),
    ],
)
def test_exact_names_are_told_from_patterns(pattern, expected):
    assert references.is_exact(pattern) is expected


def test_exact_names_are_selected_once_and_without_spaces():
    patterns = ['a', ' a ', 'b', 'c*', '!d', re.compile('e')]

    assert references.select_exact(patterns) == {'a', 'b'}
