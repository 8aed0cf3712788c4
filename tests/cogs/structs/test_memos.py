"""
Memos: dicts with attributes.
"""

import copy
import pickle
import weakref

import pytest

from kopf._cogs.structs import memos


@pytest.mark.guarantee('MEM-004')
def test_keys_and_attributes_are_the_same():
    memo = memos.Memo()
    memo.f1 = 100
    memo['f2'] = 200

    assert isinstance(memo, dict)
    assert (memo['f1'], memo.f1, memo['f2'], memo.f2) == (100, 100, 200, 200)
    assert set(memo.keys()) == {'f1', 'f2'}


@pytest.mark.guarantee('MEM-005')
def test_methods_of_dicts_stay_methods():
    memo = memos.Memo(keys='value')
    memo.get = 'value'

    assert memo.get('counter', 0) == 0
    assert set(memo.keys()) == {'get', 'keys'}
    assert memo['get'] == memo['keys'] == 'value'


def test_absence_is_an_error_of_its_own_kind():
    memo = memos.Memo()

    with pytest.raises(AttributeError, match="Memo has no 'x'"):
        memo.x  # noqa: B018
    with pytest.raises(AttributeError, match="Memo has no 'x'"):
        del memo.x
    with pytest.raises(KeyError):
        memo['x']
    assert not hasattr(memo, 'x')
    assert getattr(memo, 'x', 5) == 5


def test_attributes_are_deleted_as_keys():
    memo = memos.Memo(x=1, y=2)

    del memo.x

    assert memo == {'y': 2}


def test_copies_are_memos_with_the_same_values():
    memo = memos.Memo(items=[])

    copied = copy.copy(memo)
    copied.other = 1
    copied['items'].append(1)

    assert type(copied) is memos.Memo
    assert memo == {'items': [1]}


@pytest.mark.parametrize(
    'duplicate', [copy.deepcopy, lambda memo: pickle.loads(pickle.dumps(memo))]
)
def test_full_copies_are_memos_with_other_values(duplicate):
    memo = memos.Memo(x=[])

    copied = duplicate(memo)
    copied.x.append(1)

    assert type(copied) is memos.Memo
    assert memo == {'x': []}


def test_users_memos_are_copied_with_their_class():
    class MyMemo(memos.Memo):
        pass

    assert type(copy.copy(MyMemo(x=1))) is MyMemo


@pytest.mark.guarantee('FND-032')
def test_attributes_and_weak_references_are_accepted():
    memo = memos.Memo()
    memo.state = 'initial'
    reference = weakref.ref(memo)

    assert memo == {'state': 'initial'}
    assert reference() is memo
    assert copy.copy(memo) == memo
    assert type(copy.copy(memo)) is memos.Memo
    del memo
    assert reference() is None
