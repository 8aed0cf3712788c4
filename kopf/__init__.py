"""
Kubernetes operators in Python: declare what to do with objects, and let the framework do the rest.

Only the names of this module, `kopf.on`, `kopf.testing` and `kopf.cli` are stable; all other
modules are internal. Importing this module is cheap: names are loaded when they are used, and HTTP,
YAML and TLS libraries are not loaded until an operator runs.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kopf._cogs.helpers import versions as _versions

if TYPE_CHECKING:  # the same names as in the table below, for type checkers and editors
    from kopf import on
    from kopf._cogs.codecs.conversions import to_patch
    from kopf._cogs.codecs.markers import Column, Immutable, Rule, Schema, rule
    from kopf._cogs.configs.diffbase import (
        AnnotationsDiffBaseStorage,
        DiffBaseStorage,
        MultiDiffBaseStorage,
        StatusDiffBaseStorage,
    )
    from kopf._cogs.configs.progress import (
        AnnotationsProgressStorage,
        MultiProgressStorage,
        ProgressRecord,
        ProgressStorage,
        SmartProgressStorage,
        StatusProgressStorage,
    )
    from kopf._cogs.configs.settings import OperatorSettings
    from kopf._cogs.structs.backoffs import Backoff
    from kopf._cogs.structs.bodies import (
        Annotations,
        BodyEssence,
        Labels,
        ObjectReference,
        OwnerReference,
        RawBody,
        RawEvent,
        RawEventType,
        build_object_reference,
        build_owner_reference,
    )
    from kopf._cogs.structs.credentials import AiohttpSession, ConnectionInfo, LoginError
    from kopf._cogs.structs.dicts import FieldPath, FieldSpec
    from kopf._cogs.structs.diffs import Diff, DiffItem, DiffOperation
    from kopf._cogs.structs.ids import HandlerId
    from kopf._cogs.structs.leaderships import LeadershipLostError
    from kopf._cogs.structs.memos import Memo
    from kopf._cogs.structs.objects import Body, Meta, Spec, Status
    from kopf._cogs.structs.patches import Patch, PatchFn
    from kopf._cogs.structs.references import EVERYTHING, Resource
    from kopf._cogs.structs.reviews import (
        Headers,
        Operation,
        SSLPeer,
        UserInfo,
        WebhookClientConfig,
        WebhookClientConfigService,
        WebhookFn,
        WebhookServerProtocol,
    )
    from kopf._core.actions import lifecycles
    from kopf._core.actions.failures import (
        AdmissionError,
        ErrorsMode,
        HandlerRetriesError,
        HandlerTimeoutError,
        PermanentError,
        TemporaryError,
    )
    from kopf._core.actions.lifecycles import get_default_lifecycle, set_default_lifecycle
    from kopf._core.actions.loggers import LocalObjectLogger, LogFormat, ObjectLogger, configure
    from kopf._core.engines.events.posting import event, exception, info, warn
    from kopf._core.engines.indexing.indices import Index, Store
    from kopf._core.engines.leading.current import leading
    from kopf._core.engines.reconciling.relatives import Owned, Related
    from kopf._core.intents.callbacks import ABSENT, PRESENT, all_, any_, none_, not_
    from kopf._core.intents.causes import Logger
    from kopf._core.intents.mappings import Owns, ref, selector
    from kopf._core.intents.piggybacking import (
        login_via_async_client,
        login_via_client,
        login_via_pykube,
        login_with_kubeconfig,
        login_with_service_account,
    )
    from kopf._core.intents.reasons import Reason
    from kopf._core.intents.registries import (
        OperatorRegistry,
        get_default_registry,
        set_default_registry,
    )
    from kopf._core.intents.requeues import Requeue
    from kopf._core.intents.stoppers import (
        AsyncDaemonStopperChecker,
        DaemonStopped,
        DaemonStoppingReason,
        SyncDaemonStopperChecker,
    )
    from kopf._core.reactor.running import operator, run, run_tasks, spawn_tasks
    from kopf._core.reactor.subhandling import execute
    from kopf._core.reactor.triggering import trigger
    from kopf._kits.hierarchies import adjust_namespace as adjust_namespace
    from kopf._kits.hierarchies import adopt, append_owner_reference, label, remove_owner_reference
    from kopf._kits.hierarchies import harmonize_naming as harmonize_naming
    from kopf._kits.schemas.crds import crd
    from kopf._kits.webhooks.servers import (
        WebhookAutoServer,
        WebhookDockerDesktopServer,
        WebhookK3dServer,
        WebhookMinikubeServer,
        WebhookServer,
    )
    from kopf._kits.webhooks.tunnels import WebhookAutoTunnel, WebhookNgrokTunnel
    from kopf.on import daemon, index, reconcile, register, subhandler, timer

_NAMES = {
    'kopf._cogs.codecs.conversions': 'to_patch',
    'kopf._cogs.codecs.markers': 'Column Immutable Rule Schema rule',
    'kopf._cogs.configs.diffbase': (
        'AnnotationsDiffBaseStorage DiffBaseStorage MultiDiffBaseStorage StatusDiffBaseStorage'
    ),
    'kopf._cogs.configs.progress': (
        'AnnotationsProgressStorage MultiProgressStorage ProgressRecord ProgressStorage '
        'SmartProgressStorage StatusProgressStorage'
    ),
    'kopf._cogs.configs.settings': 'OperatorSettings',
    'kopf._cogs.structs.backoffs': 'Backoff',
    'kopf._cogs.structs.bodies': (
        'Annotations BodyEssence Labels ObjectReference OwnerReference RawBody RawEvent '
        'RawEventType build_object_reference build_owner_reference'
    ),
    'kopf._cogs.structs.credentials': 'AiohttpSession ConnectionInfo LoginError',
    'kopf._cogs.structs.dicts': 'FieldPath FieldSpec',
    'kopf._cogs.structs.diffs': 'Diff DiffItem DiffOperation',
    'kopf._cogs.structs.ids': 'HandlerId',
    'kopf._cogs.structs.leaderships': 'LeadershipLostError',
    'kopf._cogs.structs.memos': 'Memo',
    'kopf._cogs.structs.objects': 'Body Meta Spec Status',
    'kopf._cogs.structs.patches': 'Patch PatchFn',
    'kopf._cogs.structs.references': 'EVERYTHING Resource',
    'kopf._cogs.structs.reviews': (
        'Headers Operation SSLPeer UserInfo WebhookClientConfig WebhookClientConfigService '
        'WebhookFn WebhookServerProtocol'
    ),
    'kopf._core.actions.failures': (
        'AdmissionError ErrorsMode HandlerRetriesError HandlerTimeoutError PermanentError '
        'TemporaryError'
    ),
    'kopf._core.actions.lifecycles': 'get_default_lifecycle set_default_lifecycle',
    'kopf._core.actions.loggers': 'LocalObjectLogger LogFormat ObjectLogger configure',
    'kopf._core.engines.events.posting': 'event exception info warn',
    'kopf._core.engines.indexing.indices': 'Index Store',
    'kopf._core.engines.reconciling.relatives': 'Owned Related',
    'kopf._core.engines.leading.current': 'leading',
    'kopf._core.intents.callbacks': 'ABSENT PRESENT all_ any_ none_ not_',
    'kopf._core.intents.causes': 'Logger',
    'kopf._core.intents.mappings': 'Owns ref selector',
    'kopf._core.intents.piggybacking': (
        'login_via_async_client login_via_client login_via_pykube login_with_kubeconfig '
        'login_with_service_account'
    ),
    'kopf._core.intents.reasons': 'Reason',
    'kopf._core.intents.registries': 'OperatorRegistry get_default_registry set_default_registry',
    'kopf._core.intents.requeues': 'Requeue',
    'kopf._core.intents.stoppers': (
        'AsyncDaemonStopperChecker DaemonStopped DaemonStoppingReason SyncDaemonStopperChecker'
    ),
    'kopf._core.reactor.running': 'operator run run_tasks spawn_tasks',
    'kopf._core.reactor.subhandling': 'execute',
    'kopf._core.reactor.triggering': 'trigger',
    'kopf._kits.hierarchies': (
        'adjust_namespace adopt append_owner_reference harmonize_naming label '
        'remove_owner_reference'
    ),
    'kopf._kits.schemas.crds': 'crd',
    'kopf._kits.webhooks.servers': (
        'WebhookAutoServer WebhookDockerDesktopServer WebhookK3dServer WebhookMinikubeServer '
        'WebhookServer'
    ),
    'kopf._kits.webhooks.tunnels': 'WebhookAutoTunnel WebhookNgrokTunnel',
    'kopf.on': 'daemon index reconcile register subhandler timer',
}
_MODULES = {'lifecycles': 'kopf._core.actions.lifecycles', 'on': 'kopf.on'}
_ORIGINS = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    'ABSENT',
    'EVERYTHING',
    'PRESENT',
    'AdmissionError',
    'AiohttpSession',
    'Annotations',
    'AnnotationsDiffBaseStorage',
    'AnnotationsProgressStorage',
    'AsyncDaemonStopperChecker',
    'Backoff',
    'Body',
    'BodyEssence',
    'Column',
    'ConnectionInfo',
    'DaemonStopped',
    'DaemonStoppingReason',
    'Diff',
    'DiffBaseStorage',
    'DiffItem',
    'DiffOperation',
    'ErrorsMode',
    'FieldPath',
    'FieldSpec',
    'HandlerId',
    'HandlerRetriesError',
    'HandlerTimeoutError',
    'Headers',
    'Immutable',
    'Index',
    'Labels',
    'LeadershipLostError',
    'LocalObjectLogger',
    'LogFormat',
    'Logger',
    'LoginError',
    'Memo',
    'Meta',
    'MultiDiffBaseStorage',
    'MultiProgressStorage',
    'ObjectLogger',
    'ObjectReference',
    'Operation',
    'OperatorRegistry',
    'OperatorSettings',
    'Owned',
    'OwnerReference',
    'Owns',
    'Patch',
    'PatchFn',
    'PermanentError',
    'ProgressRecord',
    'ProgressStorage',
    'RawBody',
    'RawEvent',
    'RawEventType',
    'Reason',
    'Related',
    'Requeue',
    'Resource',
    'Rule',
    'SSLPeer',
    'Schema',
    'SmartProgressStorage',
    'Spec',
    'Status',
    'StatusDiffBaseStorage',
    'StatusProgressStorage',
    'Store',
    'SyncDaemonStopperChecker',
    'TemporaryError',
    'UserInfo',
    'WebhookAutoServer',
    'WebhookAutoTunnel',
    'WebhookClientConfig',
    'WebhookClientConfigService',
    'WebhookDockerDesktopServer',
    'WebhookFn',
    'WebhookK3dServer',
    'WebhookMinikubeServer',
    'WebhookNgrokTunnel',
    'WebhookServer',
    'WebhookServerProtocol',
    'adopt',
    'all_',
    'any_',
    'append_owner_reference',
    'build_object_reference',
    'build_owner_reference',
    'configure',
    'crd',
    'daemon',
    'event',
    'exception',
    'execute',
    'get_default_lifecycle',
    'get_default_registry',
    'index',
    'info',
    'label',
    'leading',
    'lifecycles',
    'login_via_async_client',
    'login_via_client',
    'login_via_pykube',
    'login_with_kubeconfig',
    'login_with_service_account',
    'none_',
    'not_',
    'on',
    'operator',
    'reconcile',
    'ref',
    'register',
    'remove_owner_reference',
    'rule',
    'run',
    'run_tasks',
    'selector',
    'set_default_lifecycle',
    'set_default_registry',
    'spawn_tasks',
    'subhandler',
    'timer',
    'to_patch',
    'trigger',
    'warn',
]

__version__ = _versions.version
__version_tuple__ = _versions.version_tuple
__commit_id__: str | None

if not TYPE_CHECKING:  # otherwise, misspelt names would pass the type checks

    def __getattr__(name: str) -> Any:
        if name in _ORIGINS:
            value = getattr(importlib.import_module(_ORIGINS[name]), name)
        elif name in _MODULES:
            value = importlib.import_module(_MODULES[name])
        elif name == '__commit_id__':
            value = _versions.installed_commit()
        else:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')

        globals()[name] = value  # so that it is looked up only once
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_ORIGINS, *_MODULES, '__commit_id__'})
