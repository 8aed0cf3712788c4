"""
Operators out of the documentation: some functions of a page, with what they need, run on a
simulated cluster.
"""

import doc_blocks

DATABASES = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: databases.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Database, plural: databases, singular: database, shortNames: [db]}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""


def build_database(name='db1', spec=None, **metadata):
    return {
        'apiVersion': 'example.com/v1',
        'kind': 'Database',
        'spec': spec or {},
        'metadata': {'name': name, 'namespace': 'default', **metadata},
    }


def write_operator(path, page, *names):
    """
    Write the blocks of the page that define these names, with all imports of the page; return the
    path.
    """
    blocks = doc_blocks.read_blocks(page, 'python')
    imports = [
        line for block in blocks for line in block.code.splitlines() if line.startswith('import ')
    ]
    missing = [name for name in names if not any(defines(block, name) for block in blocks)]
    assert not missing, f'The page {page} has no such names: {missing}'
    chosen = [block.code for block in blocks if any(defines(block, name) for name in names)]
    path.write_text('\n'.join([*dict.fromkeys(imports), *chosen]))
    return path


def defines(block, name):
    return f'def {name}(' in block.code or f'\n{name} = ' in f'\n{block.code}'
