// An operator in Go that does the same as those in Python next door: an informer, a work queue, 10 workers.
// It marks new objects with a finalizer and with what was handled, notices their changes, and lets them go in the end.
// The number of handled objects is told to the file of $BENCH_PROGRESS, in lines of JSON.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

const (
	namespace  = "default"
	finalizer  = "bench.dev/held"
	annotation = "bench.dev/handled"
	workers    = 10
)

var resource = schema.GroupVersionResource{Group: "bench.dev", Version: "v1", Resource: "loads"}

// Counts how many objects were handled in each stage; tells when all of them are.
type progress struct {
	mutex  sync.Mutex
	path   string
	total  int
	counts map[string]int
}

func (p *progress) add(stage string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.counts[stage]++
	if p.counts[stage]%p.total == 0 {
		p.tell(stage, p.counts[stage])
	}
}

func (p *progress) tell(name string, value any) {
	line, _ := json.Marshal(map[string]any{name: value})
	file, err := os.OpenFile(p.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	exitOn(err)
	defer file.Close()
	fmt.Fprintln(file, string(line))
}

type operator struct {
	client   dynamic.ResourceInterface
	lister   cache.GenericNamespaceLister
	queue    workqueue.TypedRateLimitingInterface[string]
	progress *progress
}

func (o *operator) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		o.queue.Add(key)
	}
}

func (o *operator) work(ctx context.Context) {
	for {
		key, isShutdown := o.queue.Get()
		if isShutdown {
			return
		}
		if err := o.reconcile(ctx, key); err != nil {
			o.queue.AddRateLimited(key)
		} else {
			o.queue.Forget(key)
		}
		o.queue.Done(key)
	}
}

func (o *operator) reconcile(ctx context.Context, key string) error {
	_, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	found, err := o.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	object := found.(*unstructured.Unstructured)
	isHeld := slices.Contains(object.GetFinalizers(), finalizer)
	if object.GetDeletionTimestamp() != nil {
		if !isHeld {
			return nil
		}
		o.progress.add("deleted")
		return o.patch(ctx, name, map[string]any{"metadata": map[string]any{
			"resourceVersion": object.GetResourceVersion(), "finalizers": nil}})
	}
	spec, _ := json.Marshal(object.Object["spec"])
	sum := sha256.Sum256(spec)
	digest, handled := hex.EncodeToString(sum[:]), object.GetAnnotations()[annotation]
	if handled == digest {
		return nil
	}
	metadata := map[string]any{"annotations": map[string]any{annotation: digest}}
	if !isHeld {
		metadata["resourceVersion"] = object.GetResourceVersion()
		metadata["finalizers"] = append(object.GetFinalizers(), finalizer)
	}
	if err := o.patch(ctx, name, map[string]any{"metadata": metadata}); err != nil {
		return err
	}
	if handled == "" {
		o.progress.add("created")
	} else {
		o.progress.add("updated")
	}
	return nil
}

func (o *operator) patch(ctx context.Context, name string, body map[string]any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = o.client.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	exitOn(err)
	config.QPS, config.Burst = 10000, 10000
	client, err := dynamic.NewForConfig(config)
	exitOn(err)
	total, err := strconv.Atoi(os.Getenv("BENCH_TOTAL"))
	exitOn(err)

	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 10*time.Hour, namespace, nil)
	informer := factory.ForResource(resource)
	o := &operator{
		client:   client.Resource(resource).Namespace(namespace),
		lister:   informer.Lister().ByNamespace(namespace),
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		progress: &progress{path: os.Getenv("BENCH_PROGRESS"), total: total, counts: map[string]int{}},
	}
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    o.enqueue,
		UpdateFunc: func(_, object any) { o.enqueue(object) },
		DeleteFunc: o.enqueue,
	})
	exitOn(err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	o.progress.tell("ready", 1)
	for range workers {
		go o.work(ctx)
	}
	<-ctx.Done()
	o.queue.ShutDown()
}
