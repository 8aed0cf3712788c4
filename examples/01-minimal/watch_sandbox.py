"""
A cluster in a process: serve the sandbox, create an object in it, and watch what happens.

No Kubernetes and no kubectl are needed. It stops by itself in a few seconds, or on Ctrl-C.
"""
import base64
import contextlib
import json
import pathlib
import ssl
import urllib.request

import yaml

import kopf.testing

HERE = pathlib.Path(__file__).parent
WATCH_PATH = '/apis/kopf.dev/v1/namespaces/default/kopfexamples?watch=true&timeoutSeconds=2'


def open_watch_stream(kubeconfig):
    """Ask for a watch-stream as any client would: with the address, the CA and the token of a kubeconfig."""
    config = yaml.safe_load(pathlib.Path(kubeconfig).read_text())
    cluster, user = config['clusters'][0]['cluster'], config['users'][0]['user']
    authority = base64.b64decode(cluster['certificate-authority-data']).decode()
    headers = {'Authorization': f"Bearer {user['token']}"}
    request = urllib.request.Request(cluster['server'] + WATCH_PATH, headers=headers)
    return urllib.request.urlopen(request, context=ssl.create_default_context(cadata=authority))


def main():
    with kopf.testing.Sandbox() as sandbox:
        print(f"The sandbox serves the Kubernetes API at {sandbox.url}")
        sandbox.apply(HERE / 'crd.yaml')
        with open_watch_stream(sandbox.kubeconfig) as stream:
            print("Watching kopfexamples; creating an object...")
            sandbox.apply(HERE / 'obj.yaml')
            for line in stream:
                event = json.loads(line)
                print(f"{event['type']} {event['object']['metadata']['name']}: {json.dumps(event['object']['spec'])}")
    print("The sandbox has stopped.")


if __name__ == '__main__':
    with contextlib.suppress(KeyboardInterrupt):
        main()
