"""
Admission reviews: all are answered or refused, and what the handlers have patched is what the API
gets.

The first line is the id of the webhook, the rest is the review.
"""

import asyncio
import base64
import logging
import pathlib
import sys
from typing import Any

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'core' / 'engines' / 'admission'))

import admitting

import kopf
from kopf._cogs.helpers import jsons
from kopf._cogs.structs import reviews
from kopf._sandbox.apply import patches

office = admitting.Office()


@office.validate(
    id='validate', labels={'a': lambda value, **_: value != 'x'}, annotations={'b': kopf.PRESENT}
)
async def validate(labels, annotations, spec, diff, warnings, **_):
    warnings.extend(str(item) for item in diff)
    for view in (labels, annotations, spec):
        str(view)


@office.mutate(id='mutate', field='spec')
async def mutate(patch, spec, memo, **_):
    memo.seen = True
    patch.spec['field'] = None
    patch.spec['added'] = {'x': spec.get('list')}
    patch.metadata.labels['a/b~c'] = 'x'
    patch.fns.append(lambda body: body['spec'].update(made=True))


@office.validate(
    id='deny', when=lambda userinfo, **_: userinfo.get('username') != 'user', subresource='*'
)
async def deny(name, namespace, old, new, operation, **_):
    raise kopf.AdmissionError(f'Denied {operation} of {name}.', code=403)


def check(source: bytes) -> None:
    webhook, _, raw = source.partition(b'\n')
    try:
        review = jsons.loads(raw)
    except jsons.JSONDecodeError:
        return
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with asyncio.Runner() as runner:
            runner.run(_review(webhook.decode('latin-1') or None, review))
    finally:
        logging.disable(before)


async def _review(webhook: str | None, review: Any) -> None:
    try:
        response = await office.reviewer.review(review, webhook=webhook)
    except reviews.ReviewRefused as refusal:
        assert refusal.code in (400, 404)
        assert str(refusal)
        return
    answer = jsons.loads(jsons.dumps(response))
    payload = answer['response']
    assert answer['apiVersion'] in ('admission.k8s.io/v1', 'admission.k8s.io/v1beta1')
    assert payload['uid'] == review['request']['uid']
    assert isinstance(payload['allowed'], bool)
    assert ('status' in payload) is not payload['allowed']
    if 'patch' in payload:
        before = review['request']['object']
        after = patches.apply_json_patch(before, jsons.loads(base64.b64decode(payload['patch'])))
        assert after['spec']['made'] is True
        assert after['metadata']['labels']['a/b~c'] == 'x'
