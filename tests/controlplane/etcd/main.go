// The etcd of the tests: the official server of one pinned version, built from its Go modules.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"kopf-tests/controlplane/tether"
)

func main() {
	tether.Hold()
	etcdmain.Main(os.Args)
}
