import os

import kopf

WHO = os.environ.get('WHO', 'someone')


@kopf.on.create('kopfexamples')
def create_fn(name, **_):
    print(f'CREATED {name}: seen by {WHO}.')


@kopf.on.update('kopfexamples')
def update_fn(name, **_):
    print(f'UPDATED {name}: seen by {WHO}.')
