"""
Expressions in CEL: the rules of custom resources, what they say, and how wrong ones are refused.
"""

from collections.abc import Mapping
from typing import Any

import fidelity_samples
from fidelity_talks import CRDS, Talk, Transcript

TEXT = {'type': 'string', 'maxLength': 64}
TEXTS = {'type': 'array', 'maxItems': 8, 'items': TEXT}
NUMBERS = {'type': 'array', 'maxItems': 8, 'items': {'type': 'integer'}}
KEYED = {
    'type': 'array',
    'maxItems': 8,
    'x-kubernetes-list-type': 'map',
    'x-kubernetes-list-map-keys': ['name'],
    'items': {
        'type': 'object',
        'required': ['name'],
        'properties': {'name': TEXT, 'value': {'type': 'integer'}},
    },
}
FIELDS: dict[str, Any] = {
    'text': TEXT,
    'other': TEXT,
    'number': {'type': 'integer'},
    'ratio': {'type': 'number'},
    'flag': {'type': 'boolean'},
    'texts': TEXTS,
    'numbers': NUMBERS,
    'keyed': KEYED,
    'tags': {**TEXTS, 'x-kubernetes-list-type': 'set'},
    'labels': {'type': 'object', 'maxProperties': 8, 'additionalProperties': TEXT},
    'amount': {'x-kubernetes-int-or-string': True},
    'moment': {'type': 'string', 'format': 'date-time', 'maxLength': 64},
    'span': {'type': 'string', 'format': 'duration', 'maxLength': 64},
    'some-name': TEXT,
    'namespace': TEXT,
}
VALUES: dict[str, Any] = {
    'text': 'Hello, World',
    'number': 5,
    'ratio': 2,
    'flag': True,
    'texts': ['b', 'a', 'b'],
    'numbers': [3, 1, 2],
    'keyed': [{'name': 'x', 'value': 1}, {'name': 'y', 'value': 2}],
    'tags': ['p', 'q'],
    'labels': {'k': 'v', 'x.y/z': 'w'},
    'amount': '500m',
    'moment': '2024-02-29T12:30:45.5Z',
    'span': '90m',
    'some-name': 's',
    'namespace': 'n',
}

# Rules that are evaluated; what they come to is in the messages.
RULES = (
    'self.number > 5',
    'self.number >= 5 && self.text.size() == 12',
    'self.other == "x"',
    'has(self.other)',
    '!has(self.other) || self.other == "x"',
    'self.text.matches("^[A-Z]")',
    'self.text.startsWith("hello")',
    'self.ratio == 2.0',
    'self.ratio / 0.0 > 1.0',
    'self.number / 0 == 1',
    'self.number % 0 == 1',
    'self.number * 9223372036854775807 > 0',
    'self.texts[5] == "x"',
    'self.labels["absent"] == "v"',
    'self.labels.k == "v"',
    '"x.y/z" in self.labels',
    'self.texts.all(t, t.size() == 1)',
    'self.texts.exists(t, t == "z")',
    'self.texts.exists_one(t, t == "b")',
    'self.numbers.filter(n, n > 1).size() == 2',
    'self.numbers.map(n, n * 2) == [6, 2, 4]',
    'self.tags == ["q", "p"]',
    'self.texts == ["a", "b", "b"]',
    'self.keyed.all(k, k.value > 1)',
    'self.amount == "500m"',
    'type(self.amount) == string',
    'self.amount > 5',
    'self.some__dash__name == "t"',
    'self.__namespace__ == "m"',
    'self.moment.getFullYear() == 2024 && self.moment.getMonth() == 1',
    'self.span > duration("1h")',
    'timestamp(self.text) == self.moment',
    'duration(self.text) == self.span',
    'int(self.text) == 1',
    'quantity(self.text).isInteger()',
    'ip(self.text) == ip("::1")',
    'cidr(self.text).prefixLength() == 1',
    'semver(self.text).major() == 1',
    'url(self.text).getHost() == "x"',
    'self.text.matches(self.texts[0] + "[")',
    'self.texts.all(i, t, t != self.texts[i])',
    'self.?other.orValue("d") == "d" && self.?text.hasValue()',
    'false',
    'self.text.charAt(99) == ""',
    'self.numbers.isSorted()',
    'self.number == 5 ? self.flag : self.texts[9] == ""',
    'self.texts[9] == "" || self.flag',
    'self.texts[9] == "" && self.flag',
    '[1, 2].sum() == 4',
    'self.numbers.filter(n, n > 9).max() == 3',
)
# Values: all of these rules are true.
TRUE = (
    '"%s %d %.2f %x".format([self.text, self.number, 1.5, 255]) == "Hello, World 5 1.50 ff"',
    '"%s %s".format([self.texts, self.flag]) == r\'["b", "a", "b"] true\'',
    'self.text.lowerAscii() == "hello, world" && self.text.upperAscii() == "HELLO, WORLD"',
    'self.text.split(", ") == ["Hello", "World"]',
    'self.texts.join("|") == "b|a|b" && self.text.split("l", 2).size() == 2',
    'self.text.replace("l", "L", 2) == "HeLLo, World"',
    'self.text.substring(7) == "World" && self.text.substring(1, 3) == "el"',
    'self.text.indexOf("o") == 4 && self.text.lastIndexOf("o") == 8',
    '" x ".trim() == "x"',
    'self.numbers.sum() == 6 && self.numbers.min() == 1 && self.numbers.max() == 3',
    'self.texts.indexOf("b") == 0 && self.texts.lastIndexOf("b") == 2',
    'self.text.find("[A-Z][a-z]+") == "Hello" && self.text.findAll("[A-Z]") == ["H", "W"]',
    'sets.contains(self.texts, ["a"]) && sets.equivalent([1], [1, 1])',
    'sets.intersects(self.numbers, [9, 3])',
    'quantity("1.5Gi").isGreaterThan(quantity("1500M"))',
    'quantity("1500m").add(quantity("1")).compareTo(quantity("2500m")) == 0',
    'quantity("200").asInteger() == 200 && quantity("1.5").asApproximateFloat() == 1.5',
    'quantity("1") == quantity("1000m") && quantity("2").sub(1) == quantity("1")',
    '!isQuantity("1x") && isURL("https://x") && !isIP("1.2.3.256") && isQuantity("1Ki")',
    'url("https://u@h.x:80/a%20b?k=v&k=w#f").getHost() == "h.x:80"',
    'url("https://h.x:80/a%20b").getEscapedPath() == "/a%20b"',
    'url("https://[::1]:80/").getHostname() == "::1" && url("/path").getScheme() == ""',
    'url("https://h.x:80/a?k=v&k=w").getPort() == "80"',
    'url("https://h.x/a?k=v&k=w").getQuery()["k"] == ["v", "w"]',
    'ip("192.168.0.1").family() == 4 && ip("::1").isLoopback()',
    '!ip.isCanonical("::0001") && ip("10.0.0.1").isGlobalUnicast()',
    'ip("fe80::1").isLinkLocalUnicast() && ip("224.0.0.1").isLinkLocalMulticast()',
    'cidr("192.168.0.0/24").containsIP("192.168.0.9")',
    'cidr("10.0.0.5/8").masked() == cidr("10.0.0.0/8")',
    'cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16") && cidr("10.0.0.0/8").ip() == ip("10.0.0.0")',
    'semver("1.2.3-rc.1").isLessThan(semver("1.2.3")) && !isSemver("1.2")',
    'semver("v1.2", true).minor() == 2 && semver("1.2.3").compareTo(semver("1.2.3+x")) == 0',
    'string(self.moment) == "2024-02-29T12:30:45.5Z" && string(self.span) == "5400s"',
    'self.moment + self.span == timestamp("2024-02-29T14:00:45.5Z")',
    'self.moment.getDayOfWeek() == 4 && self.moment.getHours("+02:00") == 14',
    'self.moment.getDayOfYear() == 59 && self.moment.getDate() == 29',
    'self.span.getMinutes() == 90 && self.moment - self.moment == duration("0s")',
    'string(1.0) == "1" && string(1e100) == "1e+100" && string(0.1) == "0.1" && string(5u) == "5"',
    'int("7") + int(2.9) == 9 && uint(3) == 3u && double("1.5") == 1.5',
    'format.dns1123Label().validate("Bad!").hasValue()',
    '!format.named("date").value().validate("2024-01-01").hasValue()',
    '[1, 2, 3].map(i, i * i).filter(i, i > 1) == [4, 9]',
    '{"a": 1, "b": 2}.all(k, v, v > 0) && {"a": 1}.exists(k, k == "a")',
    'self.texts.transformList(i, t, t + "x") == ["bx", "ax", "bx"]',
    '{"a": 1}.transformMap(k, v, v + 1) == {"a": 2}',
    '-7 / 2 == -3 && -7 % 3 == -1 && 7 - 9 == -2',
    'bool("true") && type(1) == int && null == null',
    '1 < 2.5 && 2u > 1 && dyn(1) == 1.0',
    'self.tags + ["q", "r"] == ["r", "p", "q"]',
    'optional.of(3).optMap(x, x + 1).value() == 4',
    'optional.none().orValue(2) == 2 && !optional.ofNonZeroValue(0).hasValue()',
    '[?self.?other, ?self.?text] == ["Hello, World"]',
    '{?"a": self.?text}.size() == 1',
    'self.?labels[?"k"].orValue("") == "v" && self.labels[?"z"].orValue("d") == "d"',
    '"\\u00e9t\\u00e9".size() == 3 && r"\\d" == "\\\\d" && b"a" == bytes("a")',
    '"a" in ["a"] && !("z" in self.labels) && 1 in [1, 2]',
    'size(self.labels) == 2 && self.labels.map(k, k).size() == 2',
    'self.keyed.filter(k, k.name == "x")[0].value == 1',
    'self.ratio == 2.0 && self.ratio < 3.0 && self.number == 5',
    'has(self.labels.k) && !has(self.labels.z)',
)
# Rules that are refused in definitions.
WRONG: tuple[Mapping[str, Any], ...] = (
    {'rule': 'self.number >'},
    {'rule': 'self.absent == 1'},
    {'rule': 'self.number == "x"'},
    {'rule': 'self.number'},
    {'rule': 'unknown == 1'},
    {'rule': 'self.text.unknown()'},
    {'rule': 'self.text.size() > 1', 'messageExpression': 'self.number'},
    {'rule': 'self.text.size() > 1', 'messageExpression': 'self.'},
    {'rule': 'self.text.size() > 1', 'messageExpression': 'self.absent'},
    {'rule': 'self.text + 1 == "x"'},
    {'rule': 'self.text.size(1) > 1'},
    {'rule': 'self.number.all(n, n > 1)'},
    {'rule': 'self.text.absent == 1'},
    {'rule': 'true', 'optionalOldSelf': True},
    {'rule': 'oldSelf.hasValue()', 'optionalOldSelf': True},
    {'rule': 'true', 'fieldPath': '.text'},
    {'rule': 'true', 'fieldPath': '.absent'},
    {'rule': 'true', 'fieldPath': 'text'},
    {'rule': 'true', 'reason': 'Whatever'},
    {'rule': 'true\n&& false', 'message': 'x'},
    {'rule': 'self.keyed[0].absent == 1'},
    {'rule': 'self.texts[0].size() > 0 ? 1 : 2'},
    {'rule': 'math.abs(-1) == 1 && math.greatest(1, 2) == 2'},
    {'rule': '[1, 1].distinct() == [1]'},
    {'rule': '[[1]].flatten() == [1]'},
    {'rule': '[2, 1].sort() == [1, 2]'},
    {'rule': '[2, 1].slice(0, 1) == [2]'},
    {'rule': '[2, 1].reverse() == [1, 2]'},
    {'rule': 'lists.range(2) == [0, 1]'},
    {'rule': 'strings.quote("a") == "x"'},
    {'rule': 'cel.bind(x, 1, x + x) == 2'},
    {'rule': '"a".reverse() == "a"'},
)


def build_crd(talk: Talk, spec: Mapping[str, Any], plural: str = 'things') -> dict[str, Any]:
    status = {'type': 'object', 'properties': {'n': {'type': 'integer'}}}
    status['x-kubernetes-validations'] = [{'rule': 'self.n < 10', 'message': 'too many'}]
    schema = {'type': 'object', 'properties': {'spec': spec, 'status': status}}
    version = fidelity_samples.build_version('v1', schema, subresources={'status': {}})
    return fidelity_samples.build_crd(talk, plural, version)


def build_cases(rules: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema with one field per rule: an object fails as many rules as it has fields."""
    fields = {
        f'c{index}': {'type': 'object', 'properties': FIELDS, 'x-kubernetes-validations': [rule]}
        for index, rule in enumerate(rules)
    }
    return {'type': 'object', 'properties': fields}


async def evaluate(talk: Talk) -> None:
    await talk.define(build_crd(talk, build_cases([{'rule': rule} for rule in RULES])))
    for index, rule in enumerate(RULES):
        talk.note(rule)
        await _post(talk, {f'c{index}': VALUES})


async def show(talk: Talk) -> None:
    rules = [{'rule': text} for text in TRUE]
    await talk.define(build_crd(talk, build_cases(rules)))
    for index, text in enumerate(TRUE):
        talk.note(text)
        await _post(talk, {f'c{index}': VALUES})


async def _post(talk: Talk, spec: Mapping[str, Any]) -> None:
    body = {
        'apiVersion': f'{talk.group}/v1',
        'kind': 'Thing',
        'metadata': {'name': 'one'},
        'spec': spec,
    }
    await talk.post(talk.custom('things'), body, dryRun='All')


async def refuse(talk: Talk) -> None:
    for rule in WRONG:
        talk.note(str(dict(rule)))
        spec = {'type': 'object', 'properties': FIELDS, 'x-kubernetes-validations': [rule]}
        await talk.post(CRDS, build_crd(talk, spec), dryRun='All')
    talk.note('oldSelf in a list')
    items = {**TEXT, 'x-kubernetes-validations': [{'rule': 'self == oldSelf'}]}
    spec = {'type': 'object', 'properties': {'list': {**TEXTS, 'items': items}}}
    await talk.post(CRDS, build_crd(talk, spec), dryRun='All')


async def follow_changes(talk: Talk) -> None:
    rules = [
        {'rule': 'self.number >= oldSelf.number', 'message': 'never less', 'fieldPath': '.number'},
        {'rule': 'self.text != "bad"', 'message': 'bad text', 'reason': 'FieldValueForbidden'},
        {
            'rule': 'oldSelf.hasValue() || self.flag',
            'optionalOldSelf': True,
            'messageExpression': '"flag it first: " + self.text',
        },
        {'rule': 'self.other != "d"', 'reason': 'FieldValueDuplicate', 'fieldPath': '.other'},
        {'rule': 'has(self.labels)', 'reason': 'FieldValueRequired', 'fieldPath': '.labels'},
    ]
    fixed = {**TEXT, 'x-kubernetes-validations': [{'rule': 'self == oldSelf'}]}
    item = {'type': 'object', 'required': ['name'], 'properties': {'name': TEXT, 'value': fixed}}
    keyed = {**KEYED, 'items': item}
    fields = {**FIELDS, 'keyed': keyed, 'other': {**TEXT}, 'fixed': fixed}
    spec = {'type': 'object', 'properties': fields, 'x-kubernetes-validations': rules}
    await talk.define(build_crd(talk, spec))
    things = talk.custom('things')
    good = {'number': 3, 'text': 'a', 'flag': True, 'labels': {}, 'fixed': 'f', 'other': 'o'}
    keyed_items = [{'name': 'x', 'value': '1'}, {'name': 'y', 'value': '2'}]
    for change in ({'flag': False}, {'text': 'bad'}, {'labels': None}, {'other': 'd'}):
        body = fidelity_samples.build_thing(talk)
        body['spec'] = {
            key: value for key, value in {**good, **change}.items() if value is not None
        }
        await talk.post(things, body)
    body = fidelity_samples.build_thing(talk)
    body['spec'] = {**good, 'keyed': keyed_items}
    await talk.post(things, body)
    for change in (
        {'number': 2},
        {'number': 4},
        {'text': 'bad'},
        {'fixed': 'g'},
        {'fixed': None},
        {'fixed': 'h'},
        {'keyed': [{'name': 'y', 'value': '2'}, {'name': 'x', 'value': '1'}]},
        {'keyed': [{'name': 'x', 'value': '3'}, {'name': 'z', 'value': '9'}]},
        {'number': None},
        {'number': 'x', 'text': 'bad'},
    ):
        await talk.merge(f'{things}/one', {'spec': change})
    await talk.merge(f'{things}/one/status', {'status': {'n': 5}})
    await talk.merge(f'{things}/one/status', {'status': {'n': 50}})


async def ratchet(talk: Talk) -> None:
    spec: dict[str, Any] = {'type': 'object', 'properties': dict(FIELDS)}
    await talk.define(build_crd(talk, spec))
    things = talk.custom('things')
    body = fidelity_samples.build_thing(talk)
    body['spec'] = {'text': 'bad', 'number': 1}
    await talk.post(things, body)
    rule = {'rule': 'self != "bad"', 'message': 'bad text'}
    spec['properties']['text'] = {**TEXT, 'x-kubernetes-validations': [rule]}
    crd = build_crd(talk, spec)
    path = f'{CRDS}/{crd["metadata"]["name"]}'
    await talk.merge(path, {'spec': crd['spec']})
    probe = {**body, 'metadata': {'name': 'probe'}}
    await talk.wait_until_denied(things, probe, 'bad text')
    await talk.merge(f'{things}/one', {'spec': {'number': 2}})
    await talk.merge(f'{things}/one', {'spec': {'text': 'bad'}})
    await talk.merge(f'{things}/one', {'spec': {'text': 'good'}})
    await talk.merge(f'{things}/one', {'spec': {'text': 'bad'}})


TRANSCRIPTS = (
    Transcript('rules-evaluated', evaluate),
    Transcript('rules-shown', show),
    Transcript('rules-refused', refuse),
    Transcript('rules-transitions', follow_changes),
    Transcript('rules-ratcheting', ratchet),
)
