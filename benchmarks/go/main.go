// Operators in Go that do the same as those in Python next door, in the usual way: an informer, a work queue, 10 workers.
//
//	operator lifecycle|latency|events NAMESPACE
//
// They tell of themselves to the file of $BENCH_PROGRESS, in lines of JSON, when $BENCH_TOTAL objects were handled.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"kopf/benchmarks/go/progress"
)

const resync = 10 * time.Hour

var resource = schema.GroupVersionResource{Group: "bench.dev", Version: "v1", Resource: "loads"}

func connect() dynamic.Interface {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	progress.ExitOn(err)
	config.QPS, config.Burst = 10000, 10000
	client, err := dynamic.NewForConfig(config)
	progress.ExitOn(err)
	return client
}

// Counts all events, and keeps the objects as informers do.
func watch(informer informers.GenericInformer, told *progress.Progress) {
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { told.Add("seen") },
		UpdateFunc: func(_, _ any) { told.Add("seen") },
		DeleteFunc: func(any) { told.Add("seen") },
	})
	progress.ExitOn(err)
}

func main() {
	if len(os.Args) != 3 {
		progress.ExitOn(fmt.Errorf("usage: %s lifecycle|latency|events NAMESPACE", os.Args[0]))
	}
	kind, namespace := os.Args[1], os.Args[2]
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	told := progress.New()
	client := connect()
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, resync, namespace, nil)
	informer := factory.ForResource(resource)
	var controlling *controller
	if kind == "events" {
		watch(informer, told)
	} else {
		controlling = newController(client.Resource(resource).Namespace(namespace), informer, namespace, told)
	}
	told.Tell("ready", 1)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if controlling != nil {
		controlling.run(ctx)
	}
	<-ctx.Done()
	if kind == "latency" {
		told.TellAll(nil)
	}
}
