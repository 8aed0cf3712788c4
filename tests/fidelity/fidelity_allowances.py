"""
Where the sandbox differs from a real server on purpose. Each line is also in the documentation of
the sandbox.

The tests fail if a difference is not here, and if what is here does not differ any more.
"""

from fidelity_comparison import Allowance

TEXTS = 'Whole values in the texts of errors are printed as Go prints them; ours are simplified.'
PROSE = 'The descriptions of the columns of tables, and of the fields in the schemas, are in our own words.'
GROUPS = 'Only the stable versions of the API are served, and of the groups, not all.'
PODS = 'No pods run, so there is nothing to connect to, and nothing to change in those that run.'
VERSION = 'The sandbox does not pretend to be built by Go, and tells that it is a sandbox.'
REVIEWS = 'The owners of the fields of reviews are not recorded: reviews are not stored.'
POSTS = 'Posting to the path of a custom object is refused at once, whatever is posted.'
USER = 'The administrators are called differently, and ours has no uid.'
ADDRESS = 'The servers listen at different ports.'
VERSIONED = 'The owned fields are not converted between the versions by conversion webhooks.'
PROTOBUF = 'Protobuf is understood, but never answered.'

ALLOWANCES = (
    Allowance(
        'crd-refusals', 'no versions', r'\.body\.(message|details\.causes\[0\]\.message)', TEXTS
    ),
    Allowance(
        'strategic-patches',
        r'PATCH .*/configmaps/one$',
        r'\.body\.(message|details\.causes\[0\]\.message)',
        TEXTS,
    ),
    Allowance('conversions', '', r'.*\.managedFields.*', VERSIONED),
    Allowance(
        'representations', 'as=Table', r'\.body\.columnDefinitions\[\d+\]\.description', PROSE
    ),
    Allowance(
        'watch-beginnings',
        'as tables',
        r'\.body\.object\.columnDefinitions\[\d+\]\.description',
        PROSE,
    ),
    Allowance(
        'watch-endings',
        'bookmarks',
        r'\.body\.object\.columnDefinitions\[\d+\]\.description',
        PROSE,
    ),
    Allowance(
        'watch-lists',
        'in other forms',
        r'\.body\.object\.columnDefinitions\[\d+\]\.description',
        PROSE,
    ),
    Allowance('documents', 'GET /openapi', r'.*\.(description|title)', PROSE),
    Allowance(
        'documents',
        'GET /openapi',
        r'.*\.(DeleteOptions|WatchEvent)\.x-kubernetes-group-version-kind.*',
        GROUPS,
    ),
    Allowance('documents', 'GET /api/v1$', r'\.body\.resources\.(nodes|services)/proxy', PODS),
    Allowance(
        'documents',
        'GET /api/v1$',
        r'\.body\.resources\.pods/(attach|exec|log|portforward|proxy)',
        PODS,
    ),
    Allowance(
        'documents', 'GET /api/v1$', r'\.body\.resources\.pods/(ephemeralcontainers|resize)', PODS
    ),
    Allowance(
        'aggregated-documents',
        'GET /api ',
        r'.*\.resources\.(nodes|services)\.subresources(\.proxy)?',
        PODS,
    ),
    Allowance(
        'aggregated-documents',
        'GET /api ',
        r'.*\.pods\.subresources\.(attach|exec|log|portforward|proxy|ephemeralcontainers|resize)',
        PODS,
    ),
    Allowance(
        'aggregated-documents',
        'GET /apis ',
        r'\.body\.(items|groups)\.autoscaling\.versions\[1\]',
        GROUPS,
    ),
    Allowance(
        'aggregated-documents',
        'GET /version',
        r'\.body\.(compiler|gitCommit|gitVersion|goVersion)',
        VERSION,
    ),
    Allowance(
        'pods', 'PATCH .*/pods/one', r'\.body\.(message|details\.causes\[0\]\.message)', TEXTS
    ),
    Allowance(
        'denials', 'GET /version', r'\.body\.(compiler|gitCommit|gitVersion|goVersion)', VERSION
    ),
    Allowance(
        'initial-objects', 'services/kubernetes', r'\.body\.spec\.ports\[0\]\.targetPort', ADDRESS
    ),
    Allowance('denials', 'accessreviews', r'\.body\.metadata\.managedFields', REVIEWS),
    Allowance('review-forms', 'accessreviews', r'\.body\.metadata\.managedFields', REVIEWS),
    Allowance('approvals', 'certificatesigningrequests', r'\.body\.spec\.(uid|username)', USER),
    Allowance('wrong-requests', 'POST .*/things/one', r'\.code', POSTS),
    Allowance('absences', 'protobuf', r'\.(body|headers\.Content-Type\[0\])', PROTOBUF),
    Allowance('absences', 'autoscaling/v1', r'\.code', GROUPS),
)
