"""
Descriptions: short texts about the built-in kinds and their most used fields.

They are for ``kubectl explain`` with the sandbox. The full reference is in the Kubernetes
documentation.
"""

from collections.abc import Mapping
from typing import Any, Final

COMMON_FIELDS: Final[Mapping[str, str]] = {
    'apiVersion': 'The group and version of the API in which this object is written.',
    'kind': 'The kind of this object.',
    'metadata': 'What all objects have: names, labels, annotations, owners, and the like.',
    'spec': 'The desired state.',
    'status': 'The observed state; usually written by controllers, not by people.',
}

KINDS: Final[Mapping[str, str]] = {
    'APIService': 'A group and version of the API, and the server behind it.',
    'Binding': 'A decision to run a pod on a certain node.',
    'CSIDriver': 'What a storage driver of a cluster is capable of.',
    'CSINode': 'The storage drivers that are installed on a node.',
    'CSIStorageCapacity': 'How much storage is left for a storage class in a part of the cluster.',
    'CertificateSigningRequest': 'A request for a certificate, to be approved and signed.',
    'ClusterRole': 'A set of permissions, for the whole cluster or for use in any namespace.',
    'ClusterRoleBinding': 'A grant of a cluster role to users, groups or service accounts '
    'everywhere.',
    'ComponentStatus': 'The health of a component of the control plane.',
    'ConfigMap': 'Configuration as keys and values, to be consumed by pods or read by programs.',
    'ControllerRevision': 'A snapshot of the state of a controller, kept for its history.',
    'CronJob': 'Jobs that are started on a schedule.',
    'CustomResourceDefinition': 'A resource that is added to the API, with its names, versions '
    'and schemas.',
    'DaemonSet': 'Pods that run one on every chosen node.',
    'DeviceClass': 'A kind of devices that pods can claim, and how to select them.',
    'DeleteOptions': 'How an object should be deleted.',
    'Deployment': 'Identical pods that are replaced gradually when their template changes.',
    'EndpointSlice': 'A part of the network addresses that stand behind a service.',
    'Endpoints': 'The network addresses that stand behind a service.',
    'Event': 'A report of something that has happened to an object. Kept for a limited time.',
    'Eviction': 'A request to remove a pod with respect to its disruption budgets.',
    'FlowSchema': 'Which requests to the API belong together, and their priority level.',
    'HorizontalPodAutoscaler': 'Rules for changing the number of replicas with the load.',
    'IPAddress': 'An address that is taken from the range of the services.',
    'Ingress': 'Rules for bringing the outer HTTP requests to services.',
    'IngressClass': 'A kind of ingresses, and the controller that implements them.',
    'Job': 'Pods that run until enough of them succeed.',
    'Lease': 'A mark of who holds something, and until when; for locks and elections.',
    'LimitRange': 'Limits and defaults for the resource usage in a namespace.',
    'LocalSubjectAccessReview': 'A question whether someone may do something in one namespace.',
    'MutatingWebhookConfiguration': 'Webhooks that may change objects before they are stored.',
    'Namespace': 'A scope for the names of objects.',
    'NetworkPolicy': 'Which network traffic is allowed for the selected pods.',
    'Node': 'A machine that runs pods.',
    'PersistentVolume': 'A piece of storage in the cluster.',
    'PersistentVolumeClaim': 'A request for storage, and a claim on the volume that satisfies it.',
    'Pod': 'Containers that run together on one node.',
    'PodDisruptionBudget': 'How many of the selected pods may be down on purpose at once.',
    'PodTemplate': 'A template for making pods.',
    'PriorityClass': 'A named priority for scheduling of pods.',
    'PriorityLevelConfiguration': 'How many requests of a priority the API serves at once.',
    'ReplicaSet': 'A number of identical pods that is maintained; usually owned by a deployment.',
    'ReplicationController': 'A number of identical pods that is maintained; the predecessor of '
    'replica sets.',
    'ResourceClaim': 'A claim of a pod on devices.',
    'ResourceClaimTemplate': 'A template for the claims of pods on devices.',
    'ResourceSlice': 'Some of the devices of a driver, on a node or elsewhere.',
    'ResourceQuota': 'Limits for the total resource usage in a namespace.',
    'Role': 'A set of permissions within a namespace.',
    'RoleBinding': 'A grant of a role to users, groups or service accounts within a namespace.',
    'RuntimeClass': 'A way to run containers that nodes support and pods can ask for.',
    'Scale': 'The number of replicas of another object.',
    'Secret': 'Sensitive values by their keys. The values are encoded with base64.',
    'SelfSubjectAccessReview': 'A question whether the asking one may do something.',
    'SelfSubjectReview': 'A question who the asking one is.',
    'SelfSubjectRulesReview': 'A question what the asking one may do in a namespace.',
    'Service': 'A stable name and address for a set of pods.',
    'ServiceAccount': 'An identity for the programs that run in pods.',
    'ServiceCIDR': 'A range of addresses for services.',
    'StatefulSet': 'Pods with stable names and storage, started and stopped in order.',
    'Status': 'The result of a request that returns no object: usually an error.',
    'StorageClass': 'A kind of storage that can be claimed, and how it is provisioned.',
    'SubjectAccessReview': 'A question whether someone may do something.',
    'TokenRequest': 'A request for a token of a service account.',
    'TokenReview': 'A question whose a token is.',
    'ValidatingAdmissionPolicy': 'Expressions that objects must satisfy to be stored.',
    'ValidatingAdmissionPolicyBinding': 'Where and how a validating admission policy applies.',
    'ValidatingWebhookConfiguration': 'Webhooks that may refuse objects before they are stored.',
    'VolumeAttachment': 'An intent to attach a volume to a node.',
    'VolumeAttributesClass': 'A set of adjustable properties for volumes.',
    'WatchEvent': 'One change of an object as seen in a watch-stream.',
}

FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    'ObjectMeta': {
        'annotations': 'Arbitrary texts by their keys, for tools and people; not for selecting.',
        'creationTimestamp': 'When the object was created. Set by the API.',
        'deletionGracePeriodSeconds': 'How many seconds the object has for its graceful end. Set '
        'by the API.',
        'deletionTimestamp': 'When the object was, or will be, asked to go. Set by the API on '
        'deletion.',
        'finalizers': 'Who must do their part before the object goes. It stays while this list is '
        'not empty.',
        'generateName': 'The beginning of a unique name, if there is no name: the API adds the '
        'rest.',
        'generation': 'A number that moves when the desired state changes. Set by the API.',
        'labels': 'Short texts by their keys; objects can be selected by them.',
        'managedFields': 'Which manager has set which fields. Maintained by the API.',
        'name': 'The name: unique for the resource in its namespace. Cannot be changed.',
        'namespace': 'The namespace in which the object lives. Cannot be changed.',
        'ownerReferences': 'The objects on which this one depends: when all of them go, it goes '
        'too.',
        'resourceVersion': 'An opaque mark of the version of the object. Set by the API on every '
        'change.',
        'selfLink': 'No longer used.',
        'uid': 'An identifier that is never reused, even for the same name. Set by the API.',
    },
    'ConfigMap': {
        'binaryData': 'Binary values by their keys, encoded with base64.',
        'data': 'Texts by their keys.',
        'immutable': 'If true, the content cannot be changed, only the metadata can.',
    },
    'Secret': {
        'data': 'Values by their keys, encoded with base64.',
        'immutable': 'If true, the content cannot be changed, only the metadata can.',
        'stringData': 'Values by their keys as plain texts; on writing, they go into the data. '
        'Never shown.',
        'type': 'What kind of secret it is; some types require certain keys.',
    },
    'PodSpec': {
        'containers': 'The containers to run: at least one.',
        'initContainers': 'The containers to run to their ends, one by one, before the others '
        'start.',
        'nodeName': 'The node to run on. Usually set by a scheduler.',
        'nodeSelector': 'The labels that the node must have.',
        'restartPolicy': 'When to restart the ended containers: Always, OnFailure, Never.',
        'serviceAccountName': 'The service account to run as.',
        'terminationGracePeriodSeconds': 'How many seconds the containers have for stopping '
        'before they are killed.',
        'volumes': 'The volumes that the containers can mount.',
    },
    'Container': {
        'args': 'The arguments of the command. By default, those of the image.',
        'command': 'The command to run. By default, that of the image.',
        'env': 'The environment variables to set.',
        'image': 'The image to run.',
        'name': 'The name: unique in the pod.',
        'ports': 'The ports on which the container listens.',
        'resources': 'How much of the computing resources is needed, and how much is allowed.',
        'volumeMounts': 'The volumes to mount, and where.',
    },
    'DeploymentSpec': {
        'paused': 'If true, changes of the template are not rolled out.',
        'replicas': 'How many pods there should be.',
        'selector': 'Which pods belong to the deployment. Cannot be changed.',
        'strategy': 'How the old pods are replaced with the new ones.',
        'template': 'The pods to make.',
    },
    'JobSpec': {
        'backoffLimit': 'How many times to retry before the job is considered failed.',
        'completions': 'How many pods must succeed.',
        'parallelism': 'How many pods may run at once.',
        'template': 'The pods to make.',
    },
}


def describe(name: str, definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of a definition with descriptions of itself and of its fields."""
    short = name.rpartition('.')[-1]
    is_object = 'x-kubernetes-group-version-kind' in definition
    texts = {**(COMMON_FIELDS if is_object else {}), **FIELDS.get(short, {})}
    own = KINDS.get(short) or (
        f'A list of objects of the kind {short[:-4]}.' if short.endswith('List') else ''
    )
    described = {'description': own, **definition} if is_object and own else dict(definition)

    if texts and 'properties' in definition:
        described['properties'] = {
            field: {'description': texts[field], **schema} if field in texts else schema
            for field, schema in definition['properties'].items()
        }

    return described
