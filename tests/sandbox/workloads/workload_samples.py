"""
Manifests of workloads, and what tests ask about them.
"""

from typing import Any


def build_template(labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    containers = [{'name': 'main', 'image': 'example:1'}]
    return {'metadata': {'labels': labels}, 'spec': {'containers': containers, **spec}}


def build_deployment(name: str = 'web', replicas: int = 2, **spec: Any) -> dict[str, Any]:
    labels = {'app': name}
    return {
        'apiVersion': 'apps/v1',
        'kind': 'Deployment',
        'metadata': {'name': name, 'labels': labels},
        'spec': {
            'replicas': replicas,
            'selector': {'matchLabels': labels},
            'template': build_template(labels),
            **spec,
        },
    }


def build_image_patch(image: str) -> dict[str, Any]:
    containers = [{'name': 'main', 'image': image}]
    return {'spec': {'template': {'spec': {'containers': containers}}}}


def build_service(name: str = 'web', **spec: Any) -> dict[str, Any]:
    return {
        'apiVersion': 'v1',
        'kind': 'Service',
        'metadata': {'name': name},
        'spec': {
            'selector': {'app': name},
            'ports': [{'name': 'http', 'port': 80, 'targetPort': 8080}],
            **spec,
        },
    }


def build_pod(
    name: str = 'one', labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    template = build_template(labels or {'app': name}, **spec)
    return {
        'apiVersion': 'v1',
        'kind': 'Pod',
        'metadata': {'name': name, **template['metadata']},
        'spec': template['spec'],
    }


def is_rolled_out(replicas: int) -> Any:
    """Make a condition: all pods are updated and available, and there are no others."""

    def check(body: Any) -> bool:
        status = (body or {}).get('status') or {}
        fields = ('replicas', 'updatedReplicas', 'availableReplicas')
        return body is not None and (
            [status.get(field) or 0 for field in fields] == [replicas] * len(fields)
            and status.get('observedGeneration') == body['metadata']['generation']
        )

    return check


def get_condition(body: dict[str, Any], type: str) -> dict[str, Any]:
    conditions = (body.get('status') or {}).get('conditions') or ()
    return next((item for item in conditions if item['type'] == type), {})


def list_images(pods: list[dict[str, Any]]) -> list[str]:
    return sorted(pod['spec']['containers'][0]['image'] for pod in pods)
