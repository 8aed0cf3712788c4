package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "bench.dev", Version: "v1"}

// The parent, as code generators would make it.
type Load struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LoadSpec `json:"spec,omitempty"`
}

type LoadSpec struct {
	Replicas int        `json:"replicas,omitempty"`
	Items    []LoadItem `json:"items,omitempty"`
}

type LoadItem struct {
	Name string `json:"name,omitempty"`
	Size int    `json:"size,omitempty"`
	Note string `json:"note,omitempty"`
}

type LoadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Load `json:"items"`
}

func (l *Load) DeepCopyInto(out *Load) {
	*out = *l
	l.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Items = append([]LoadItem(nil), l.Spec.Items...)
}

func (l *Load) DeepCopyObject() runtime.Object {
	out := &Load{}
	l.DeepCopyInto(out)
	return out
}

func (l *LoadList) DeepCopyObject() runtime.Object {
	out := &LoadList{TypeMeta: l.TypeMeta, Items: make([]Load, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}

func addToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &Load{}, &LoadList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}
