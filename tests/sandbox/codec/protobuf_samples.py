"""
Bodies in protobuf: a small encoder, and what was captured of kubectl and of a real API, with what
it means in JSON.
"""

from typing import Any


def encode_varint(number: int) -> bytes:
    number &= 2**64 - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def number(field: int, value: int) -> bytes:
    return encode_varint(field << 3) + encode_varint(value)


def content(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return encode_varint(field << 3 | 2) + encode_varint(len(raw)) + raw


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b'k8s\0' + content(1, content(1, api_version) + content(2, kind)) + content(2, raw)


def named(name: str | bytes) -> bytes:
    return content(1, content(1, name))


CAPTURED: dict[str, tuple[str, dict[str, Any]]] = {
    'configmap': (
        'azhzAAoPCgJ2MRIJQ29uZmlnTWFwEigKFgoCYzESABoEcGIteCIAKgAyADgAQgASBgoBYRIBYhIGCgFrEgF2GgAiAA==',
        {
            'apiVersion': 'v1',
            'kind': 'ConfigMap',
            'metadata': {'name': 'c1', 'namespace': 'pb-x'},
            'data': {'a': 'b', 'k': 'v'},
        },
    ),
    'secret': (
        'azhzAAoMCgJ2MRIGU2VjcmV0EiIKFgoCczESABoEcGIteCIAKgAyADgAQgASBgoBYRIBYhoAGgAiAA==',
        {
            'apiVersion': 'v1',
            'kind': 'Secret',
            'metadata': {'name': 's1', 'namespace': 'pb-x'},
            'data': {'a': 'Yg=='},
        },
    ),
    'deployment': (
        'azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EroBCiEKAmQxEgAaBHBiLXgiACoAMgA4AEIAWgkKA2FwcBICZDEShgEIAhILCgkKA2Fw'
        'cBICZDEabQobCgASABoAIgAqADIAOABCAFoJCgNhcHASAmQxEk4SMAoFbmdpbngSB25naW54OjEqADIKCgAQABhQIgAqAEIAagByAIAB'
        'AIgBAJABAKIBABoAMgBCAEoAUgBYAGAAaACCAQCKAQCaAQDCAQAiAgoAKAA4ABoMCAAQABgAIAAoADgAGgAiAA==',
        {
            'apiVersion': 'apps/v1',
            'kind': 'Deployment',
            'metadata': {'name': 'd1', 'namespace': 'pb-x', 'labels': {'app': 'd1'}},
            'spec': {
                'replicas': 2,
                'selector': {'matchLabels': {'app': 'd1'}},
                'strategy': {},
                'template': {
                    'metadata': {'labels': {'app': 'd1'}},
                    'spec': {
                        'containers': [
                            {
                                'name': 'nginx',
                                'image': 'nginx:1',
                                'resources': {},
                                'ports': [{'containerPort': 80, 'protocol': 'TCP'}],
                            }
                        ]
                    },
                },
            },
            'status': {},
        },
    ),
    'service': (
        'azhzAAoNCgJ2MRIHU2VydmljZRKKAQolCgRzdmMxEgAaBHBiLXgiACoAMgA4AEIAWgsKA2FwcBIEc3ZjMRJdChsKBzgwLTgwODASA1RD'
        'UBhQIgcIABCQPxoAKAAKGAoDNDQzEgNUQ1AYuwMiBwgAELsDGgAoABILCgNhcHASBHN2YzEaACIJQ2x1c3RlcklQOgBCAFIAWgBgAGgA'
        'GgIKABoAIgA=',
        {
            'apiVersion': 'v1',
            'kind': 'Service',
            'metadata': {'name': 'svc1', 'namespace': 'pb-x', 'labels': {'app': 'svc1'}},
            'spec': {
                'ports': [
                    {'name': '80-8080', 'protocol': 'TCP', 'port': 80, 'targetPort': 8080},
                    {'name': '443', 'protocol': 'TCP', 'port': 443, 'targetPort': 443},
                ],
                'selector': {'app': 'svc1'},
                'type': 'ClusterIP',
            },
            'status': {'loadBalancer': {}},
        },
    ),
    'ingress': (
        'azhzAAofChRuZXR3b3JraW5nLms4cy5pby92MRIHSW5ncmVzcxKUAQoWCgJpMRIAGgRwYi14IgAqADIAOABCABJ2Cg4iDAoEc3ZjMRIE'
        'CgAQUBINCgdmb28uY29tEgJzMhpOCgdmb28uY29tEkMKQQodCgQvYmFyEg4iDAoEc3ZjMRIECgAQUBoFRXhhY3QKIAoCL3gSEiIQCgRz'
        'dmMxEggKBGh0dHAQABoGUHJlZml4IgVuZ2lueBoCCgAaACIA',
        {
            'apiVersion': 'networking.k8s.io/v1',
            'kind': 'Ingress',
            'metadata': {'name': 'i1', 'namespace': 'pb-x'},
            'spec': {
                'defaultBackend': {'service': {'name': 'svc1', 'port': {'number': 80}}},
                'tls': [{'hosts': ['foo.com'], 'secretName': 's2'}],
                'rules': [
                    {
                        'host': 'foo.com',
                        'http': {
                            'paths': [
                                {
                                    'path': '/bar',
                                    'pathType': 'Exact',
                                    'backend': {
                                        'service': {'name': 'svc1', 'port': {'number': 80}}
                                    },
                                },
                                {
                                    'path': '/x',
                                    'pathType': 'Prefix',
                                    'backend': {
                                        'service': {'name': 'svc1', 'port': {'name': 'http'}}
                                    },
                                },
                            ]
                        },
                    }
                ],
                'ingressClassName': 'nginx',
            },
            'status': {'loadBalancer': {}},
        },
    ),
    'quota': (
        'azhzAAoTCgJ2MRINUmVzb3VyY2VRdW90YRI2ChYKAnExEgAaBHBiLXgiACoAMgA4AEIAEhoKCgoDY3B1EgMKATEKDAoEcG9kcxIECgIx'
        'MBoAGgAiAA==',
        {
            'apiVersion': 'v1',
            'kind': 'ResourceQuota',
            'metadata': {'name': 'q1', 'namespace': 'pb-x'},
            'spec': {'hard': {'cpu': '1', 'pods': '10'}},
            'status': {},
        },
    ),
    'budget': (
        'azhzAAogCglwb2xpY3kvdjESE1BvZERpc3J1cHRpb25CdWRnZXQSOwoWCgJwMRIAGgRwYi14IgAqADIAOABCABIVCgkIARAAGgM1MCUS'
        'CAoGCgFhEgFiGgoIABgAIAAoADAAGgAiAA==',
        {
            'apiVersion': 'policy/v1',
            'kind': 'PodDisruptionBudget',
            'metadata': {'name': 'p1', 'namespace': 'pb-x'},
            'spec': {'minAvailable': '50%', 'selector': {'matchLabels': {'a': 'b'}}},
            'status': {
                'disruptionsAllowed': 0,
                'currentHealthy': 0,
                'desiredHealthy': 0,
                'expectedPods': 0,
            },
        },
    ),
    'token': (
        'azhzAAooChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESDFRva2VuUmVxdWVzdBIdChAKABIAGgAiACoAMgA4AEIAEgMgkBwaBAoAEgAa'
        'ACIA',
        {
            'apiVersion': 'authentication.k8s.io/v1',
            'kind': 'TokenRequest',
            'metadata': {},
            'spec': {'audiences': None, 'expirationSeconds': 3600, 'boundObjectRef': None},
            'status': {'token': '', 'expirationTimestamp': None},
        },
    ),
    'access-review': (
        'azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSPAoQCgASABoAIgAqADIAOABCABIe'
        'ChwKBHBiLXgSBmNyZWF0ZRoAIgAqBHBvZHMyADoAGggIABIAGgAgABoAIgA=',
        {
            'apiVersion': 'authorization.k8s.io/v1',
            'kind': 'SelfSubjectAccessReview',
            'metadata': {},
            'spec': {
                'resourceAttributes': {'namespace': 'pb-x', 'verb': 'create', 'resource': 'pods'}
            },
            'status': {'allowed': False},
        },
    ),
    'lease': (
        'azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRIkCgwKAmwyEgAaBHBiLXcSFAoCw7wQBSIMCKW7tfAFEIjq3MMC',
        {
            'apiVersion': 'coordination.k8s.io/v1',
            'kind': 'Lease',
            'metadata': {'name': 'l2', 'namespace': 'pb-w'},
            'spec': {
                'holderIdentity': 'ü',
                'leaseDurationSeconds': 5,
                'renewTime': '2020-01-02T03:04:05.678901Z',
            },
        },
    ),
    'revision': (
        'azhzAAodCgdhcHBzL3YxEhJDb250cm9sbGVyUmV2aXNpb24SKAoLCgFyEgAaBHBiLXcSFwoVeyJhIjogWzEsIDIuNSwgbnVsbF19GAM=',
        {
            'apiVersion': 'apps/v1',
            'kind': 'ControllerRevision',
            'metadata': {'name': 'r', 'namespace': 'pb-w'},
            'data': {'a': [1, 2.5, None]},
            'revision': 3,
        },
    ),
    'webhooks': (
        'azhzAApBCh9hZG1pc3Npb25yZWdpc3RyYXRpb24uazhzLmlvL3YxEh5WYWxpZGF0aW5nV2ViaG9va0NvbmZpZ3VyYXRpb24SXQoHCgF3'
        'EgAaABJSCgVhLmIuYxIOEgAaCmh0dHBzOi8veC8aFwoGQ1JFQVRFEg0KAWcSAnYxGgF4IgEqIgRGYWlsKgAyBE5vbmU4CkICdjFKCkVx'
        'dWl2YWxlbnRSAA==',
        {
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'ValidatingWebhookConfiguration',
            'metadata': {'name': 'w'},
            'webhooks': [
                {
                    'name': 'a.b.c',
                    'clientConfig': {'url': 'https://x/'},
                    'failurePolicy': 'Fail',
                    'sideEffects': 'None',
                    'rules': [
                        {
                            'operations': ['CREATE'],
                            'apiGroups': ['g'],
                            'apiVersions': ['v1'],
                            'resources': ['x'],
                            'scope': '*',
                        }
                    ],
                    'namespaceSelector': {},
                    'objectSelector': {},
                    'timeoutSeconds': 10,
                    'admissionReviewVersions': ['v1'],
                    'matchPolicy': 'Equivalent',
                }
            ],
        },
    ),
    'pod': (
        'azhzAAoJCgJ2MRIDUG9kEqsDCgsKAXASABoEcGItdxKbAwoSCgF2Eg2aAQoKAwoBYxikAyABEoYBCgFtEgFpKgA6EQoBZRIAGgoiCAoD'
        'CgFzEgFrQh4KDQoDY3B1EgYKBDEwMG0SDQoDY3B1EgYKBDEwMG1SGwoPGg0KCQgBEAAaA3dlYhIAEAAYASAKKAEwA2oUL2Rldi90ZXJt'
        'aW5hdGlvbi1sb2dyBkFsd2F5c4ABAIgBAJABAKIBBEZpbGUaBkFsd2F5cyAAMgxDbHVzdGVyRmlyc3RCAEoAUgBYAGAAaAByBCABIAKC'
        'AQCKAQCaARFkZWZhdWx0LXNjaGVkdWxlcrIBIwoBdBIGRXhpc3RzGgAiCU5vRXhlY3V0ZSj7//////////8BsgE2Chxub2RlLmt1YmVy'
        'bmV0ZXMuaW8vbm90LXJlYWR5EgZFeGlzdHMaACIJTm9FeGVjdXRlKKwCsgE4Ch5ub2RlLmt1YmVybmV0ZXMuaW8vdW5yZWFjaGFibGUS'
        'BkV4aXN0cxoAIglOb0V4ZWN1dGUorALCAQDIAQDwAQH6ARRQcmVlbXB0TG93ZXJQcmlvcml0eQ==',
        {
            'apiVersion': 'v1',
            'kind': 'Pod',
            'metadata': {'name': 'p', 'namespace': 'pb-w'},
            'spec': {
                'volumes': [
                    {'name': 'v', 'configMap': {'name': 'c', 'defaultMode': 420, 'optional': True}}
                ],
                'containers': [
                    {
                        'name': 'm',
                        'image': 'i',
                        'imagePullPolicy': 'Always',
                        'env': [
                            {'name': 'e', 'valueFrom': {'secretKeyRef': {'name': 's', 'key': 'k'}}}
                        ],
                        'resources': {'limits': {'cpu': '100m'}, 'requests': {'cpu': '100m'}},
                        'livenessProbe': {
                            'tcpSocket': {'port': 'web'},
                            'timeoutSeconds': 1,
                            'periodSeconds': 10,
                            'successThreshold': 1,
                            'failureThreshold': 3,
                        },
                        'terminationMessagePath': '/dev/termination-log',
                        'terminationMessagePolicy': 'File',
                    }
                ],
                'restartPolicy': 'Always',
                'terminationGracePeriodSeconds': 0,
                'dnsPolicy': 'ClusterFirst',
                'securityContext': {'supplementalGroups': [1, 2]},
                'schedulerName': 'default-scheduler',
                'tolerations': [
                    {
                        'key': 't',
                        'operator': 'Exists',
                        'effect': 'NoExecute',
                        'tolerationSeconds': -5,
                    },
                    {
                        'key': 'node.kubernetes.io/not-ready',
                        'operator': 'Exists',
                        'effect': 'NoExecute',
                        'tolerationSeconds': 300,
                    },
                    {
                        'key': 'node.kubernetes.io/unreachable',
                        'operator': 'Exists',
                        'effect': 'NoExecute',
                        'tolerationSeconds': 300,
                    },
                ],
                'priority': 0,
                'enableServiceLinks': True,
                'preemptionPolicy': 'PreemptLowerPriority',
            },
            'status': {},
        },
    ),
    'crd': (
        'azhzAAozChdhcGlleHRlbnNpb25zLms4cy5pby92MRIYQ3VzdG9tUmVzb3VyY2VEZWZpbml0aW9uEuwDChMKDXRoaW5ncy5wYi5kZXYS'
        'ABoAEtQDCgZwYi5kZXYaIQoGdGhpbmdzEgV0aGluZyIFVGhpbmcqCVRoaW5nTGlzdCIHQ2x1c3RlcjqTAwoCdjEQARgBIoYDCoMDCgAS'
        'ACIAKgZvYmplY3QyADoAUABgAHoAkAEA6gFhCgFhElwKABIAIgAqBWFycmF5MgA6AFAAYAB6AJABAMIBNgo0CgASACIAKgZzdHJpbmcy'
        'ADoAUABgAHoAkAEAogEFCgMieCKiAQUKAyJ5IqgCALgCAMACAKgCALgCAMACAOoBMwoBZhIuCgASACIAKgdib29sZWFuMgA6AEIHCgVm'
        'YWxzZVAAYAB6AJABAKgCALgCAMACAOoBTgoBbRJJCgASACIAKgZvYmplY3QyADoAUABgAHoAkAEA8gEiCAESHgoAEgAiACoAMgA6AFAA'
        'YAB6AJABAKgCALgCAMACAagCALgCAMACAOoBQAoBbhI7CgASACIAKgZudW1iZXIyADoAQgMKATFJAAAAAAAAJEBQAFkAAAAAAADgP2AA'
        'egCQAQCoAgC4AgDAAgDqAS4KAW8SKQoAEgAiACoGb2JqZWN0MgA6AFAAYAB6AJABAPIBAggBqAIAuAIAwAIAqAIAuAIAwAIAOABKBgoE'
        'Tm9uZVAA',
        {
            'apiVersion': 'apiextensions.k8s.io/v1',
            'kind': 'CustomResourceDefinition',
            'metadata': {'name': 'things.pb.dev'},
            'spec': {
                'group': 'pb.dev',
                'scope': 'Cluster',
                'conversion': {'strategy': 'None'},
                'names': {
                    'plural': 'things',
                    'singular': 'thing',
                    'kind': 'Thing',
                    'listKind': 'ThingList',
                },
                'versions': [
                    {
                        'name': 'v1',
                        'served': True,
                        'storage': True,
                        'schema': {
                            'openAPIV3Schema': {
                                'type': 'object',
                                'properties': {
                                    'a': {
                                        'type': 'array',
                                        'items': {'type': 'string', 'enum': ['x', 'y']},
                                    },
                                    'f': {'type': 'boolean', 'default': False},
                                    'm': {
                                        'type': 'object',
                                        'additionalProperties': {
                                            'x-kubernetes-int-or-string': True
                                        },
                                    },
                                    'n': {
                                        'type': 'number',
                                        'default': 1,
                                        'maximum': 10,
                                        'minimum': 0.5,
                                    },
                                    'o': {'type': 'object', 'additionalProperties': True},
                                },
                            }
                        },
                    }
                ],
            },
            'status': {
                'acceptedNames': {'kind': '', 'plural': ''},
                'conditions': None,
                'storedVersions': None,
            },
        },
    ),
}
