"""
What the sandbox does not do, and says so in its documentation: here, all of this must differ.
"""

import fidelity_samples
from fidelity_talks import Talk, Transcript

PROTOBUF = 'application/vnd.kubernetes.protobuf'
RULES = {
    'type': 'object',
    'properties': {
        'spec': {
            'type': 'object',
            'properties': {'size': {'type': 'integer'}},
            'x-kubernetes-validations': [{'rule': 'self.size < 5', 'message': 'too big'}],
        }
    },
}


async def do_without(talk: Talk) -> None:
    await talk.post(talk.core('configmaps'), fidelity_samples.build_configmap())
    talk.note('rules in CEL')
    await talk.define(
        fidelity_samples.build_crd(talk, 'things', fidelity_samples.build_version(schema=RULES))
    )
    await talk.post(talk.custom('things'), fidelity_samples.build_thing(talk, spec={'size': 9}))
    talk.note('protobuf')
    await talk.get(
        talk.core('configmaps', 'one'), headers={'Accept': f'{PROTOBUF},application/json'}
    )
    talk.note('groups')
    await talk.get('/apis/autoscaling/v1')


TRANSCRIPTS = (Transcript('absences', do_without),)
