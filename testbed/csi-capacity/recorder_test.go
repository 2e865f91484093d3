// Records the CSIStorageCapacity objects of external-provisioner. record.sh adds this file to upstream's tests, whose fixtures it uses.
package capacity

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/external-provisioner/v6/pkg/capacity/topology"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fakeclientset "k8s.io/client-go/kubernetes/fake"
)

type place map[string]string

type recordedClass struct {
	Name      string `json:"name"`
	Driver    string `json:"driver"`
	Immediate bool   `json:"immediate,omitempty"`
}

type recordedObject struct {
	// Empty for an object that the controller created.
	Name      string `json:"name,omitempty"`
	Class     string `json:"class"`
	Segment   place  `json:"segment"`
	Capacity  string `json:"capacity"`
	Largest   string `json:"largest,omitempty"`
	ManagedBy string `json:"managedBy,omitempty"`
	Owned     bool   `json:"owned,omitempty"`
}

// Exactly one of the fields is set.
type step struct {
	AddSegment    place          `json:"addSegment,omitempty"`
	RemoveSegment place          `json:"removeSegment,omitempty"`
	AddClass      *recordedClass `json:"addClass,omitempty"`
	RemoveClass   string         `json:"removeClass,omitempty"`
	// Delete and Relabel name a zone: they delete its objects, or remove their label.
	Delete  string           `json:"delete,omitempty"`
	Relabel string           `json:"relabel,omitempty"`
	Sizes   map[string]int64 `json:"sizes,omitempty"`
	Create  *recordedObject  `json:"create,omitempty"`
}

type recordedCase struct {
	Immediate bool             `json:"immediate"`
	NoOwner   bool             `json:"noOwner"`
	Segments  []place          `json:"segments"`
	Classes   []recordedClass  `json:"classes"`
	Objects   []recordedObject `json:"objects"`
	Steps     []step           `json:"steps"`
	// The objects at the start, and after each step.
	Results [][]recordedObject `json:"results"`
}

// The driver's free bytes in each zone.
type zones map[string]int64

func (z zones) GetCapacity(_ context.Context, in *csi.GetCapacityRequest, _ ...grpc.CallOption) (*csi.GetCapacityResponse, error) {
	size := z[in.AccessibleTopology.GetSegments()["zone"]]
	return &csi.GetCapacityResponse{AvailableCapacity: size, MaximumVolumeSize: &wrapperspb.Int64Value{Value: size}}, nil
}

func (o recordedObject) object() *storagev1.CSIStorageCapacity {
	in := testCapacity{storageClassName: o.Class, quantity: o.Capacity, maxVolume: o.Largest, managedByID: o.ManagedBy, uid: types.UID("uid-" + o.Name)}
	if !o.Owned {
		in.owner = &noOwner
	}
	object := makeCapacity(in)
	object.Name = o.Name
	object.ResourceVersion = csiscRev + "0"
	object.NodeTopology = &metav1.LabelSelector{MatchLabels: o.Segment}
	return object
}

func (c recordedClass) object() *storagev1.StorageClass {
	return makeSC(testSC{name: c.Name, driverName: c.Driver, immediateBinding: c.Immediate})
}

func segment(of place) *topology.Segment {
	one := topology.Segment{}
	for key, value := range of {
		one = append(one, topology.SegmentEntry{Key: key, Value: value})
	}
	slices.SortFunc(one, func(a, b topology.SegmentEntry) int { return a.Compare(b) })
	return &one
}

func (r *recordedCase) run(t *testing.T) {
	ctx := context.Background()
	var initial []runtime.Object
	for _, class := range r.Classes {
		initial = append(initial, class.object())
	}
	for _, object := range r.Objects {
		initial = append(initial, object.object())
	}
	client := fakeclientset.NewSimpleClientset(initial...)
	client.PrependReactor("create", "csistoragecapacities", createCSIStorageCapacityReactor())
	client.PrependReactor("update", "csistoragecapacities", updateCSIStorageCapacityReactor())
	segments := map[string]*topology.Segment{}
	known := func(of place) *topology.Segment {
		id := text(of)
		if segments[id] == nil {
			segments[id] = segment(of)
		}
		return segments[id]
	}
	var first []*topology.Segment
	for _, one := range r.Segments {
		first = append(first, known(one))
	}
	nodes := topology.NewMock(first...)
	owner := &defaultOwner
	if r.NoOwner {
		owner = nil
	}
	sizes := zones{"a": 1 << 30, "b": 2 << 30}
	controller, _ := fakeController(ctx, client, owner, sizes, nodes, r.Immediate)
	controller.prepare(ctx)
	api := client.StorageV1().CSIStorageCapacities(ownerNamespace)
	list := func() []recordedObject {
		found, err := api.List(ctx, metav1.ListOptions{})
		must(t, err)
		objects := []recordedObject{}
		for _, one := range found.Items {
			object := recordedObject{Class: one.StorageClassName, Segment: place{}, Capacity: one.Capacity.String(), ManagedBy: one.Labels[ManagedByLabel]}
			if !strings.HasPrefix(one.Name, "csisc-") {
				object.Name = one.Name
			}
			if one.NodeTopology != nil {
				for key, value := range one.NodeTopology.MatchLabels {
					object.Segment[key] = value
				}
			}
			if one.MaximumVolumeSize != nil {
				object.Largest = one.MaximumVolumeSize.String()
			}
			object.Owned = controller.owner != nil && controller.isOwnedByUs(&one)
			objects = append(objects, object)
		}
		slices.SortFunc(objects, func(a, b recordedObject) int { return strings.Compare(text(a), text(b)) })
		return objects
	}
	settle := func() {
		before, same := "", 0
		for same < 10 {
			must(t, process(ctx, controller, client))
			time.Sleep(20 * time.Millisecond)
			now := text(list())
			if now == before && controller.queue.Len() == 0 {
				same++
			} else {
				before, same = now, 0
			}
		}
		r.Results = append(r.Results, list())
	}
	settle()
	for _, step := range r.Steps {
		classes := client.StorageV1().StorageClasses()
		switch {
		case step.AddSegment != nil:
			nodes.Modify([]*topology.Segment{known(step.AddSegment)}, nil)
		case step.RemoveSegment != nil:
			nodes.Modify(nil, []*topology.Segment{known(step.RemoveSegment)})
		case step.AddClass != nil:
			_, err := classes.Create(ctx, step.AddClass.object(), metav1.CreateOptions{})
			must(t, err)
		case step.RemoveClass != "":
			must(t, classes.Delete(ctx, step.RemoveClass, metav1.DeleteOptions{}))
		case step.Create != nil:
			must(t, client.Tracker().Add(step.Create.object()))
		case step.Sizes != nil:
			for zone, size := range step.Sizes {
				sizes[zone] = size
			}
			controller.pollCapacities()
		default:
			found, err := api.List(ctx, metav1.ListOptions{})
			must(t, err)
			for _, one := range found.Items {
				zone := ""
				if one.NodeTopology != nil {
					zone = one.NodeTopology.MatchLabels["zone"]
				}
				if zone == step.Delete {
					must(t, api.Delete(ctx, one.Name, metav1.DeleteOptions{}))
				} else if zone == step.Relabel {
					one.Labels[ManagedByLabel] = otherManager
					_, err := api.Update(ctx, &one, metav1.UpdateOptions{})
					must(t, err)
				}
			}
		}
		settle()
	}
}

func situations() []recordedCase {
	a, b, deep := place{"zone": "a"}, place{"zone": "b"}, place{"zone": "a", "rack": "7"}
	late := recordedClass{Name: "late", Driver: driverName}
	second := recordedClass{Name: "second", Driver: driverName}
	now := recordedClass{Name: "now", Driver: driverName, Immediate: true}
	other := recordedClass{Name: "other", Driver: "other-driver"}
	var all []recordedCase
	add := func(one recordedCase) {
		all = append(all, one)
	}
	for _, segments := range [][]place{{}, {a}, {a, b}, {a, b, deep}} {
		for _, classes := range [][]recordedClass{{}, {late}, {late, now}, {late, second, other}} {
			add(recordedCase{Segments: segments, Classes: classes})
		}
	}
	steps := []step{
		{AddSegment: b}, {AddSegment: deep}, {RemoveSegment: a}, {AddClass: &second}, {AddClass: &now}, {AddClass: &other}, {RemoveClass: "late"},
		{Delete: "a"}, {Relabel: "a"}, {Sizes: map[string]int64{"a": 5 << 30}}, {Sizes: map[string]int64{"a": 0}}, {Sizes: map[string]int64{"a": 1500}},
		{Create: &recordedObject{Name: "unknown-class", Class: "unknown", Segment: a, Capacity: "1Gi"}},
		{Create: &recordedObject{Name: "unknown-segment", Class: "late", Segment: place{"zone": "z"}, Capacity: "1Gi"}},
		{Create: &recordedObject{Name: "foreign", Class: "late", Segment: a, Capacity: "1Gi", ManagedBy: otherManager}},
	}
	for _, one := range steps {
		for _, immediate := range []bool{false, true} {
			add(recordedCase{Immediate: immediate, NoOwner: immediate, Segments: []place{a}, Classes: []recordedClass{late}, Steps: []step{one}})
		}
	}
	back := []step{{AddSegment: b}, {RemoveSegment: b}, {AddClass: &second}, {RemoveClass: "second"}, {Delete: "a"}, {Sizes: map[string]int64{"a": 1 << 31}}}
	add(recordedCase{Segments: []place{a}, Classes: []recordedClass{late}, Steps: back})
	for _, object := range []recordedObject{
		{Name: "same", Class: "late", Segment: a, Capacity: "1Gi", Largest: "1Gi", Owned: true},
		{Name: "without-owner", Class: "late", Segment: a, Capacity: "1Gi", Largest: "1Gi"},
		{Name: "smaller", Class: "late", Segment: a, Capacity: "1Mi", Largest: "1Gi", Owned: true},
		{Name: "without-largest", Class: "late", Segment: a, Capacity: "1Gi", Owned: true},
		{Name: "unknown-class", Class: "unknown", Segment: a, Capacity: "1Gi", Owned: true},
		{Name: "unknown-segment", Class: "late", Segment: place{"zone": "z"}, Capacity: "1Gi", Owned: true},
		{Name: "foreign", Class: "late", Segment: a, Capacity: "1Gi", ManagedBy: otherManager},
		{Name: "unmanaged", Class: "late", Segment: a, Capacity: "1Gi", ManagedBy: noManager},
	} {
		for _, noOwner := range []bool{false, true} {
			one := object
			one.Owned = one.Owned && !noOwner
			add(recordedCase{NoOwner: noOwner, Segments: []place{a}, Classes: []recordedClass{late}, Objects: []recordedObject{one}})
		}
	}
	return all
}

func TestRecord(t *testing.T) {
	var lines []string
	for _, one := range situations() {
		one.run(t)
		lines = append(lines, text(one))
	}
	must(t, os.WriteFile(os.Getenv("RECORD_TO"), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

func text(of any) string {
	written, err := json.Marshal(of)
	if err != nil {
		panic(err)
	}
	return string(written)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
