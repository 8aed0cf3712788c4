"""The patterns of schemas are read as Go reads them."""

import pytest

from kopf._sandbox.schema import patterns


@pytest.mark.parametrize(
    'pattern, good, bad',
    [
        pytest.param('b', 'abc', 'ac', id='searched-for'),
        pytest.param('^a$', 'a', 'a\n', id='end-is-the-very-end'),
        pytest.param(r'\Aa\z', 'a', 'ba', id='text-ends'),
        pytest.param('(?m)^a$', 'b\na\nb', 'b\nab', id='lines'),
        pytest.param('^(?i)aB$', 'Ab', 'b', id='flags-in-the-middle'),
        pytest.param('^(x(?i)a|b)$', 'B', 'XA', id='flags-beyond-a-choice'),
        pytest.param('^(?i:a)b$', 'Ab', 'AB', id='flags-of-a-group'),
        pytest.param(
            '^(?P<year>[0-9]{4})-(?<month>[0-9]{2})$', '2020-01', '2020-1', id='named-groups'
        ),
        pytest.param('^[[:alpha:]_][[:^digit:]]$', 'a-', 'a1', id='posix-classes'),
        pytest.param(r'^\d+$', '12', '١٢', id='digits-are-of-ascii'),
        pytest.param(r'^\w+$', 'a_1', 'é', id='words-are-of-ascii'),
        pytest.param(r'^[\d\-]+$', '1-2', 'a', id='class-in-a-class'),
        pytest.param(r'^\Qa.b*\E$', 'a.b*', 'aXb', id='quoted'),
        pytest.param(r'^\x41\x{42}\103$', 'ABC', 'abc', id='codes'),
        pytest.param('^a{,2}$', 'a{,2}', 'aa', id='braces-that-are-not-a-repetition'),
        pytest.param('^a{2,3}?$', 'aaa', 'a', id='lazy-repetition'),
        pytest.param(r'^[]a\]]+$', 'a]', 'b', id='bracket-in-a-class'),
        pytest.param(r'^[^a-c]$', 'd', 'b', id='negated-class'),
        pytest.param(r'^\p{Lu}\pL$', 'Éa', 'éa', id='unicode-classes'),
        pytest.param('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$', 'a-b', 'a-', id='label'),
        pytest.param(
            r'^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE])?$',
            '1.5Gi',
            '1.5G1',
            id='quantity',
        ),
    ],
)
def test_patterns_match_as_in_go(pattern, good, bad):
    regex = patterns.compile_pattern(pattern)

    assert regex.is_found(good)
    assert not regex.is_found(bad)


@pytest.mark.parametrize('text', ['\ud800', 'a\udfff', '\U0001f600'], ids=ascii)
def test_any_text_can_be_matched(text):
    assert patterns.compile_pattern('^.+$').is_found(text)
    assert not patterns.compile_pattern('^b$').is_found(text)


@pytest.mark.parametrize(
    'pattern, message',
    [
        pytest.param('(', 'missing closing ): `(`', id='open-group'),
        pytest.param('a)', 'unexpected ): `a)`', id='closed-group'),
        pytest.param('[a', 'missing closing ]: `[a`', id='open-class'),
        pytest.param('*a', 'missing argument to repetition operator: `*`', id='nothing-to-repeat'),
        pytest.param('a**', 'invalid nested repetition operator: `**`', id='repeated-repetition'),
        pytest.param('a{1001}', 'invalid repeat count: `{1001}`', id='too-many-times'),
        pytest.param('a{2,1}', 'invalid repeat count: `{2,1}`', id='less-than-least-times'),
        pytest.param('[z-a]', 'invalid character class range: `z-a`', id='range'),
        pytest.param('[[:foo:]]', 'invalid character class range: `[:foo:]`', id='posix-class'),
        pytest.param(r'\p{Foo}', r'invalid character class range: `\p{Foo}`', id='unicode-class'),
        pytest.param(r'\1', r'invalid escape sequence: `\1`', id='backreference'),
        pytest.param('a\\', 'trailing backslash at end of expression: ``', id='trailing-backslash'),
        pytest.param('(?=a)', 'invalid or unsupported Perl syntax: `(?=`', id='lookahead'),
        pytest.param('(?<!a)b', 'invalid named capture: `(?<!a)b`', id='lookbehind'),
        pytest.param('(?<=a>)b', 'invalid named capture: `(?<=a>`', id='lookbehind-as-a-name'),
        pytest.param(r'a\C', r'invalid escape sequence: `\C`', id='any-byte'),
        pytest.param('(a{1000}){2}', 'invalid repeat count: `{2}`', id='too-many-times-in-all'),
        pytest.param('(?P<n', 'invalid named capture: `(?P<n`', id='unfinished-name'),
    ],
)
def test_patterns_that_go_does_not_know_are_refused(pattern, message):
    with pytest.raises(patterns.PatternError) as caught:
        patterns.compile_pattern(pattern)

    assert str(caught.value) == f'error parsing regexp: {message}'
