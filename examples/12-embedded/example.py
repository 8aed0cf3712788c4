import concurrent.futures
import queue
import threading

import kubernetes

import kopf

registry = kopf.OperatorRegistry()


@kopf.on.create('kopfexamples', registry=registry)
def create_fn(name, memo, **_):
    memo.news.put(f'{name} is created')


@kopf.on.delete('kopfexamples', registry=registry)
def delete_fn(name, memo, **_):
    memo.news.put(f'{name} is deleted')


class EmbeddedOperator:
    """An operator in a thread of its own, for as long as the block is executed."""

    def __init__(self):
        self.news = queue.Queue()
        self._ready, self._stop = threading.Event(), threading.Event()
        self._executor = concurrent.futures.ThreadPoolExecutor(
            max_workers=1, thread_name_prefix='operator'
        )

    def __enter__(self):
        self._running = self._executor.submit(self._run)
        self._ready.wait()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._executor.shutdown()
        self._running.result()  # raises the error of the operator, if there was any

    def _run(self):
        try:
            kopf.run(
                registry=registry,
                namespaces=['default'],
                memo=kopf.Memo(news=self.news),
                ready_flag=self._ready,
                stop_flag=self._stop,
            )
        finally:
            self._ready.set()  # even if it has failed to start


def do_business(news):
    kubernetes.config.load_kube_config()
    api = kubernetes.client.CustomObjectsApi()
    where = ('kopf.dev', 'v1', 'default', 'kopfexamples')
    for number in range(1, 4):
        name = f'kopf-example-{number}'
        body = {'apiVersion': 'kopf.dev/v1', 'kind': 'KopfExample', 'metadata': {'name': name}}
        api.create_namespaced_custom_object(*where, body)
        print(f'NEWS: {news.get(timeout=60)}')
        api.delete_namespaced_custom_object(*where, name)
        print(f'NEWS: {news.get(timeout=60)}')


def main():
    with EmbeddedOperator() as operator:
        print('STARTED the operator; the application goes on.')
        do_business(operator.news)
    print('STOPPED the operator; the application goes on.')


if __name__ == '__main__':
    main()
