"""
Stores and relatives are read from threads while they change in the event loop.
"""

import concurrent.futures
import threading

from stored_objects import CHILDREN, PARENTS, SECRETS, build_body

from kopf._cogs.structs import objects
from kopf._core.engines.reconciling import relations, relatives, stores
from kopf._core.intents import mappings

ROUNDS = 300
OWNS = mappings.parse_owns(['services'])
WATCHES = mappings.parse_watches({'secrets': mappings.ref('spec.secret')})


def test_existing_objects_are_always_seen_during_their_changes():
    known = relations.Relations(stores.Stores())
    known.declare(
        [
            relations.Relation(PARENTS, CHILDREN, OWNS[0]),
            relations.Relation(PARENTS, SECRETS, WATCHES[0].link),
        ]
    )
    parent = build_body('p', 'p', '1', spec={'secret': ['s', 't']})
    owned = relatives.Owned(known, objects.Body(parent), PARENTS, OWNS)
    related = relatives.Related(known, objects.Body(parent), PARENTS, WATCHES)
    is_over = threading.Event()

    def put(resource, body):
        store = known.get_store(resource)
        known.find_parents(resource, store.put('MODIFIED', body))

    def change(version):
        put(PARENTS, {**parent, 'metadata': {**parent['metadata'], 'resourceVersion': version}})
        put(CHILDREN, build_body('a', 'a', version, owner='p'))
        put(SECRETS, build_body('s', 's', version))
        for uid in ('b', 'c', 'd'):  # these come and go
            body = build_body(uid, uid + version, version, owner='p')
            put(CHILDREN, body)
            store = known.get_store(CHILDREN)
            known.find_parents(CHILDREN, store.put('DELETED', body))

    def read():
        count = 0
        while not is_over.is_set():
            assert 'a' in {body.metadata.name for body in owned['services']}
            assert owned.get('services', 'a').metadata.uid == 'a'
            assert [body.metadata.name for body in related['secrets']] == ['s']
            assert len(list(known.get_store(CHILDREN).iter())) >= 1
            count += 1
        return count

    change('0')
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for version in range(1, ROUNDS):
                change(str(version))
        finally:
            is_over.set()

    assert all(reader.result() > 0 for reader in readers)
