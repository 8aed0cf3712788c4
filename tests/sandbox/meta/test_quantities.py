import decimal

import hypothesis
import hypothesis.strategies
import pytest

from kopf._sandbox.meta import quantities


@pytest.mark.parametrize(
    'value, expected',
    [
        pytest.param('1', '1', id='whole'),
        pytest.param(5, '5', id='number'),
        pytest.param(0.5, '500m', id='fraction-as-number'),
        pytest.param('0.5', '500m', id='fraction'),
        pytest.param('1000m', '1', id='thousand-thousandths'),
        pytest.param('1500m', '1500m', id='thousandths'),
        pytest.param('1000', '1k', id='thousand'),
        pytest.param('1000k', '1M', id='thousand-thousands'),
        pytest.param('1024', '1024', id='kibi-in-decimal'),
        pytest.param('1Gi', '1Gi', id='gibi'),
        pytest.param('1024Mi', '1Gi', id='mebi-to-gibi'),
        pytest.param('2048Ki', '2Mi', id='kibi-to-mebi'),
        pytest.param('1.5Gi', '1536Mi', id='fraction-of-gibi'),
        pytest.param('0.5Ki', '512', id='less-than-kibi'),
        pytest.param('10Ei', '9223372036854775807', id='capped'),
        pytest.param('1e3', '1e3', id='exponent'),
        pytest.param('12e6', '12e6', id='exponent-of-millions'),
        pytest.param('1.5e2', '150', id='exponent-with-fraction'),
        pytest.param('0', '0', id='zero'),
        pytest.param('0Gi', '0', id='zero-gibi'),
        pytest.param('-5', '-5', id='negative'),
        pytest.param('5.', '5.', id='kept-as-written'),
        pytest.param('+5', '+5', id='kept-with-sign'),
    ],
)
def test_quantities_are_written_in_their_canonical_form(value, expected):
    assert quantities.format_quantity(value) == expected


@pytest.mark.parametrize(
    'value, expected',
    [
        pytest.param('0.0001', '1m', id='small'),
        pytest.param('1n', '1m', id='tiny'),
        pytest.param('100m', '100m', id='exact'),
    ],
)
def test_amounts_of_resources_are_rounded_up_to_thousandths(value, expected):
    assert quantities.format_quantity(value, milli=True) == expected


@pytest.mark.parametrize(
    'value, expected',
    [
        pytest.param('', 'quantities must match the regular expression', id='empty'),
        pytest.param('abc', 'quantities must match the regular expression', id='word'),
        pytest.param('1.2.3', 'quantities must match the regular expression', id='dots'),
        pytest.param('1GB', 'quantities must match the regular expression', id='unknown-letters'),
        pytest.param(True, 'quantities must match the regular expression', id='boolean'),
        pytest.param({}, 'quantities must match the regular expression', id='object'),
        pytest.param('1mi', "unable to parse quantity's suffix", id='unknown-suffix'),
        pytest.param('5e', "unable to parse quantity's suffix", id='no-exponent'),
        pytest.param('9' * 5000, 'unable to parse numeric part of quantity', id='enormous'),
    ],
)
def test_other_values_are_refused(value, expected):
    with pytest.raises(quantities.QuantityError) as e:
        quantities.parse_quantity(value)

    assert str(e.value).startswith(expected)


@hypothesis.given(
    hypothesis.strategies.decimals(min_value=0, max_value=10**6, places=3),
    hypothesis.strategies.sampled_from(['', 'm', 'k', 'M', 'Ki', 'Mi', 'Gi', 'e2', 'E3']),
)
def test_canonical_forms_mean_the_same_amounts(number: decimal.Decimal, suffix: str):
    text = f'{number}{suffix}'

    canonical = quantities.format_quantity(text)

    assert quantities.parse_quantity(canonical) == quantities.parse_quantity(text)
    assert quantities.format_quantity(canonical) == canonical
