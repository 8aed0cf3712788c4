// An operator in Go that reconciles parents with their children, in the usual way: with controller-runtime.
//
//	reconciling reconciling NAMESPACE
//
// It writes nothing. It tells of itself as the other operators do.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"kopf/benchmarks/go/progress"
)

const (
	ownerKey = ".metadata.controller"
	workers  = 10
)

type reconciler struct {
	client.Client
	told    *progress.Progress
	started float64
	mutex   sync.Mutex
	seen    map[string]string
}

func newReconciler(connected client.Client, told *progress.Progress) *reconciler {
	started := float64(time.Now().UnixNano()) / 1e9
	return &reconciler{Client: connected, told: told, started: started, seen: map[string]string{}}
}

// Reads the children, and tells how long ago the newly changed ones were changed.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var parent Load
	if err := r.Get(ctx, request.NamespacedName, &parent); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var children corev1.ConfigMapList
	if err := r.List(ctx, &children, client.InNamespace(request.Namespace), client.MatchingFields{ownerKey: parent.Name}); err != nil {
		return ctrl.Result{}, err
	}
	for _, child := range children.Items {
		r.look(&child)
	}
	r.told.Add("called")
	return ctrl.Result{}, nil
}

func (r *reconciler) look(child *corev1.ConfigMap) {
	text, isSent := child.Data["sent"]
	if !isSent {
		return
	}
	r.mutex.Lock()
	isNew := r.seen[child.Name] != text
	r.seen[child.Name] = text
	r.mutex.Unlock()
	// Otherwise, it was changed for another operator.
	if sent, err := strconv.ParseFloat(text, 64); err == nil && isNew && sent > r.started {
		r.told.Sample(sent)
	}
}

func getOwnerName(object client.Object) []string {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.APIVersion != groupVersion.String() || owner.Kind != "Load" {
		return nil
	}
	return []string{owner.Name}
}

func build(namespace string, told *progress.Progress) ctrl.Manager {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	progress.ExitOn(err)
	config.QPS, config.Burst = 10000, 10000
	scheme := runtime.NewScheme()
	progress.ExitOn(corev1.AddToScheme(scheme))
	progress.ExitOn(addToScheme(scheme))
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
			DefaultTransform:  cache.TransformStripManagedFields(), // as the frameworks in Python do
		},
	})
	progress.ExitOn(err)
	progress.ExitOn(manager.GetFieldIndexer().IndexField(context.Background(), &corev1.ConfigMap{}, ownerKey, getOwnerName))
	progress.ExitOn(ctrl.NewControllerManagedBy(manager).
		For(&Load{}).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(newReconciler(manager.GetClient(), told)))
	return manager
}

func main() {
	if len(os.Args) != 3 {
		progress.ExitOn(fmt.Errorf("usage: %s reconciling NAMESPACE", os.Args[0]))
	}
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	told := progress.New()
	manager := build(os.Args[2], told)
	told.Tell("ready", 1)
	progress.ExitOn(manager.Start(ctx))
	told.TellAll(map[string]string{"called": "calls"})
}
