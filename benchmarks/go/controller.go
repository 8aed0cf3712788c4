package main

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"kopf/benchmarks/go/progress"
)

const (
	finalizer  = "bench.dev/held"
	annotation = "bench.dev/handled"
	workers    = 10
)

// Writes as often as the frameworks in Python do: the finalizer to new objects and then, with its echo, the handled state;
// the handled state again after each change; and in the end, the finalizer away.
type controller struct {
	client dynamic.ResourceInterface
	lister cache.GenericNamespaceLister
	queue  workqueue.TypedRateLimitingInterface[string]
	told   *progress.Progress
}

func newController(client dynamic.ResourceInterface, informer informers.GenericInformer, namespace string, told *progress.Progress) *controller {
	c := &controller{
		client: client,
		lister: informer.Lister().ByNamespace(namespace),
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		told:   told,
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, object any) { c.enqueue(object) },
		DeleteFunc: c.enqueue,
	})
	progress.ExitOn(err)
	return c
}

// Works until the context ends, and returns when all workers have left.
func (c *controller) run(ctx context.Context) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	group.Wait()
}

func (c *controller) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(key)
	}
}

func (c *controller) work(ctx context.Context) {
	for {
		key, isShutdown := c.queue.Get()
		if isShutdown {
			return
		}
		if err := c.reconcile(ctx, key); err != nil {
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

func (c *controller) reconcile(ctx context.Context, key string) error {
	_, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	found, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	object := found.(*unstructured.Unstructured)
	isHeld := slices.Contains(object.GetFinalizers(), finalizer)
	switch {
	case object.GetDeletionTimestamp() != nil && isHeld:
		return c.release(ctx, object)
	case object.GetDeletionTimestamp() != nil:
		return nil
	case !isHeld:
		return c.setFinalizers(ctx, object, append(slices.Clone(object.GetFinalizers()), finalizer))
	default:
		return c.handle(ctx, object)
	}
}

func (c *controller) release(ctx context.Context, object *unstructured.Unstructured) error {
	isOurs := func(name string) bool { return name == finalizer }
	if err := c.setFinalizers(ctx, object, slices.DeleteFunc(slices.Clone(object.GetFinalizers()), isOurs)); err != nil {
		return err
	}
	c.told.Add("deleted")
	return nil
}

// Compares the state with the one handled before, calls what could be a handler, and remembers the new state.
func (c *controller) handle(ctx context.Context, object *unstructured.Unstructured) error {
	state, err := json.Marshal(map[string]any{
		"spec": object.Object["spec"], "metadata": map[string]any{"labels": object.GetLabels()}})
	if err != nil {
		return err
	}
	handled, isHandled := object.GetAnnotations()[annotation]
	if handled == string(state) {
		return nil
	}
	if sent, isSent, _ := unstructured.NestedFloat64(object.Object, "spec", "sent"); isSent && isHandled {
		c.told.Sample(sent)
	}
	metadata := map[string]any{"annotations": map[string]any{annotation: string(state)}}
	if err := c.patch(ctx, object.GetName(), metadata); err != nil {
		return err
	}
	if isHandled {
		c.told.Add("updated")
	} else {
		c.told.Add("created")
	}
	return nil
}

func (c *controller) setFinalizers(ctx context.Context, object *unstructured.Unstructured, finalizers []string) error {
	return c.patch(ctx, object.GetName(), map[string]any{
		"resourceVersion": object.GetResourceVersion(), "finalizers": finalizers})
}

func (c *controller) patch(ctx context.Context, name string, metadata map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = c.client.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
