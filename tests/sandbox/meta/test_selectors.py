import dataclasses

import pytest

from kopf._sandbox.meta import errors, selectors


@pytest.mark.parametrize(
    'text, labels, expected',
    [
        pytest.param('', {}, True, id='empty-selects-all'),
        pytest.param('app', {'app': ''}, True, id='exists'),
        pytest.param('app', {}, False, id='exists-not'),
        pytest.param('!app', {}, True, id='absent'),
        pytest.param('! app', {'app': 'x'}, False, id='absent-not'),
        pytest.param('app=x', {'app': 'x'}, True, id='equal'),
        pytest.param('app==x', {'app': 'y'}, False, id='equal-not'),
        pytest.param('app=', {'app': ''}, True, id='equal-to-empty'),
        pytest.param('app!=x', {}, True, id='unequal-if-absent'),
        pytest.param('app!=x', {'app': 'x'}, False, id='unequal-not'),
        pytest.param('app in (x, y)', {'app': 'y'}, True, id='in'),
        pytest.param('app in (x,y)', {}, False, id='in-not-if-absent'),
        pytest.param('app notin (x,y)', {}, True, id='notin-if-absent'),
        pytest.param('app notin (x,y)', {'app': 'x'}, False, id='notin-not'),
        pytest.param('size>3', {'size': '4'}, True, id='greater'),
        pytest.param('size>3', {'size': '3'}, False, id='greater-not'),
        pytest.param('size<3', {'size': 'x'}, False, id='less-than-nonnumber'),
        pytest.param('a=1,b in (2),!c', {'a': '1', 'b': '2'}, True, id='all'),
        pytest.param('a=1,b in (2),!c', {'a': '1', 'b': '2', 'c': ''}, False, id='all-not'),
        pytest.param('example.com/app=x', {'example.com/app': 'x'}, True, id='prefixed'),
    ],
)
def test_label_selectors_match_labels(text, labels, expected):
    assert selectors.parse_labels(text).matches(labels) is expected


@pytest.mark.parametrize(
    'text, message',
    [
        pytest.param(
            'a===b',
            "unable to parse requirement: found '=', expected: identifier",
            id='operator-as-value',
        ),
        pytest.param(
            'a in b', "unable to parse requirement: found 'b' expected: '('", id='no-parenthesis'
        ),
        pytest.param(
            'a in (b', "unable to parse requirement: found '', expected: ',' or ')'", id='unclosed'
        ),
        pytest.param(
            'a in (b,',
            "unable to parse requirement: found '', expected: ',', or identifier",
            id='unfinished',
        ),
        pytest.param(
            'a in (b c)',
            "unable to parse requirement: found 'c', expected: ',' or ')'",
            id='no-comma',
        ),
        pytest.param(
            'a in (=)',
            "unable to parse requirement: found '=', expected: ',', ')' or identifier",
            id='operator-in-values',
        ),
        pytest.param(
            '!', "unable to parse requirement: found '', expected: identifier", id='no-key'
        ),
        pytest.param(
            'a>>1',
            "unable to parse requirement: found '>', expected: identifier",
            id='operator-as-number',
        ),
        pytest.param(
            'a>x',
            'unable to parse requirement: values[0]: Invalid value: "x": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
            id='no-number',
        ),
        pytest.param('a=b,', "found '', expected: identifier after ','", id='trailing-comma'),
        pytest.param('a=b,,c=d', "found ',', expected: identifier after ','", id='repeated-comma'),
        pytest.param(
            ',a=b', "found ',', expected: !, identifier, or 'end of string'", id='leading-comma'
        ),
        pytest.param('a=b=c', "found '=', expected: ',' or 'end of string'", id='extra-operator'),
        pytest.param(
            'a b',
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            id='no-operator',
        ),
    ],
)
def test_malformed_label_selectors_are_bad_requests(text, message):
    with pytest.raises(errors.ApiError) as e:
        selectors.parse_labels(text)

    assert e.value.code == 400
    assert e.value.message == message


def test_malformed_label_values_are_bad_requests():
    with pytest.raises(errors.ApiError) as e:
        selectors.parse_labels('a in (b, -c)')

    assert e.value.code == 400
    assert e.value.message.startswith(
        'unable to parse requirement: values[0][a]: Invalid value: "-c": a valid label '
    )


@pytest.mark.parametrize(
    'text, expected',
    [
        pytest.param('metadata.name=x', True, id='equal'),
        pytest.param('metadata.name==y', False, id='equal-not'),
        pytest.param('metadata.namespace!=other,spec.color=red', True, id='several'),
        pytest.param(r'spec.note=a\,b', True, id='escaped'),
    ],
)
def test_field_selectors_match_fields(text, expected):
    item = Item('ns', 'x', fields={'spec.color': 'red', 'spec.note': 'a,b'})
    interest = selectors.parse_interest(
        {'fieldSelector': text}, 'ns', ['.spec.color', '.spec.note']
    )

    assert interest.wants(item) is expected


@pytest.mark.parametrize(
    'text, message',
    [
        pytest.param('spec.size=1', 'field label not supported: spec.size', id='unknown-field'),
        pytest.param('foo', "invalid selector: 'foo'; can't understand 'foo'", id='no-operator'),
    ],
)
def test_malformed_field_selectors_are_bad_requests(text, message):
    with pytest.raises(errors.ApiError) as e:
        selectors.parse_interest({'fieldSelector': text}, '', ['.spec.color'])

    assert (e.value.code, e.value.message) == (400, message)


def test_interest_is_limited_to_the_namespace():
    interest = selectors.parse_interest({}, 'ns', [])

    assert interest.wants(Item('ns', 'x'))
    assert not interest.wants(Item('other', 'x'))


@pytest.mark.parametrize(
    'selector, labels, expected',
    [
        pytest.param(None, {}, True, id='none'),
        pytest.param({}, {'a': 'b'}, True, id='empty'),
        pytest.param({'matchLabels': {'a': 'b'}}, {'a': 'b'}, True, id='labels'),
        pytest.param({'matchLabels': {'a': 'b'}}, {}, False, id='labels-not'),
        pytest.param(
            {'matchExpressions': [{'key': 'a', 'operator': 'In', 'values': ['b']}]},
            {'a': 'b'},
            True,
            id='in',
        ),
        pytest.param(
            {'matchExpressions': [{'key': 'a', 'operator': 'NotIn', 'values': ['b']}]},
            {},
            True,
            id='notin',
        ),
        pytest.param(
            {'matchExpressions': [{'key': 'a', 'operator': 'Exists'}]}, {}, False, id='exists'
        ),
        pytest.param(
            {'matchExpressions': [{'key': 'a', 'operator': 'DoesNotExist'}]}, {}, True, id='absent'
        ),
    ],
)
def test_selector_objects_match_labels(selector, labels, expected):
    assert selectors.match_label_selector(selector, labels) is expected


def test_selector_objects_with_unknown_operators_are_refused():
    with pytest.raises(errors.ApiError) as e:
        selectors.build_selector({'matchExpressions': [{'key': 'a', 'operator': 'Near'}]})

    assert e.value.message == '"Near" is not a valid label selector operator'


@pytest.mark.parametrize(
    'selector, expected',
    [
        pytest.param({'matchLabels': {'b': '2', 'a': '1'}}, 'a=1,b=2', id='labels'),
        pytest.param(
            {'matchExpressions': [{'key': 'a', 'operator': 'In', 'values': ['y', 'x']}]},
            'a in (x,y)',
            id='in',
        ),
        pytest.param({'matchExpressions': [{'key': 'a', 'operator': 'Exists'}]}, 'a', id='exists'),
        pytest.param(
            {'matchExpressions': [{'key': 'a', 'operator': 'DoesNotExist'}]}, '!a', id='absent'
        ),
    ],
)
def test_selector_objects_are_written_as_text(selector, expected):
    assert selectors.format_selector(selector) == expected


@dataclasses.dataclass(frozen=True)
class Item:
    namespace: str
    name: str
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
