"""
Devices and the flow of requests: they are stored, and nothing acts upon them.
"""

from typing import Final

from kopf._sandbox.registry.rules import entries

_DEVICES: Final = 'resource.k8s.io'
_FLOW: Final = 'flowcontrol.apiserver.k8s.io'
_GENERATED: Final = entries.Rules(has_generation=True, is_bumped=entries.bumped_by_spec)

RULES: Final = {
    (_DEVICES, 'DeviceClass'): _GENERATED,
    (_DEVICES, 'ResourceClaim'): entries.Rules(initial_status={}),
    (_DEVICES, 'ResourceClaimTemplate'): entries.Rules(),
    (_DEVICES, 'ResourceSlice'): _GENERATED,
    (_FLOW, 'FlowSchema'): entries.Rules(
        has_generation=True, is_bumped=entries.bumped_by_spec, initial_status={}
    ),
    (_FLOW, 'PriorityLevelConfiguration'): entries.Rules(
        has_generation=True, is_bumped=entries.bumped_by_spec, initial_status={}
    ),
}
