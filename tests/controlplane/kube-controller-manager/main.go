// The kube-controller-manager of the tests: the official one of one pinned version, built from its Go modules.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"kopf-tests/controlplane/tether"
)

func main() {
	tether.Hold()
	os.Exit(cli.Run(app.NewControllerManagerCommand()))
}
