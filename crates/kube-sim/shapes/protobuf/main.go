// Writes protobuf.txt: the protobuf field numbers of Kubernetes' built-in types. Go clients send built-in objects in
// protobuf.
package main

import (
	"fmt"
	"reflect"
	"strings"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	networking "k8s.io/api/networking/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const header = `# The built-in types of Kubernetes 1.37 in protobuf (k8s.io/api v0.37.1), written by protobuf/main.go.
# A type: its API version and kind for objects, its Go name for others. A field, indented: number, name in JSON ("-" for
# an embedded struct, whose fields are the outer type's), "o" where Go's JSON leaves out empty values, type ("*" pointer,
# "@" type).
`

var roots = map[string][]any{
	"v1": {
		core.ConfigMap{}, core.Endpoints{}, core.Event{}, core.LimitRange{}, core.Namespace{}, core.Node{},
		core.PersistentVolumeClaim{}, core.PersistentVolume{}, core.Pod{}, core.PodTemplate{},
		core.ReplicationController{}, core.ResourceQuota{}, core.Secret{}, core.ServiceAccount{}, core.Service{},
		meta.DeleteOptions{},
	},
	"apps/v1": {apps.ControllerRevision{}, apps.DaemonSet{}, apps.Deployment{}, apps.ReplicaSet{}, apps.StatefulSet{}},
	"authentication.k8s.io/v1": {
		authentication.SelfSubjectReview{}, authentication.TokenRequest{}, authentication.TokenReview{},
	},
	"authorization.k8s.io/v1": {
		authorization.LocalSubjectAccessReview{}, authorization.SelfSubjectAccessReview{},
		authorization.SelfSubjectRulesReview{}, authorization.SubjectAccessReview{},
	},
	"batch/v1":                     {batch.CronJob{}, batch.Job{}},
	"coordination.k8s.io/v1":       {coordination.Lease{}},
	"discovery.k8s.io/v1":          {discovery.EndpointSlice{}},
	"events.k8s.io/v1":             {events.Event{}},
	"networking.k8s.io/v1":         {networking.IngressClass{}, networking.Ingress{}, networking.NetworkPolicy{}},
	"node.k8s.io/v1":               {node.RuntimeClass{}},
	"policy/v1":                    {policy.PodDisruptionBudget{}},
	"rbac.authorization.k8s.io/v1": {rbac.ClusterRoleBinding{}, rbac.ClusterRole{}, rbac.RoleBinding{}, rbac.Role{}},
	"scheduling.k8s.io/v1":         {scheduling.PriorityClass{}},
	"storage.k8s.io/v1": {
		storage.CSIDriver{}, storage.CSINode{}, storage.CSIStorageCapacity{}, storage.StorageClass{},
		storage.VolumeAttachment{}, storage.VolumeAttributesClass{},
	},
}

var order = []string{
	"v1", "apps/v1", "authentication.k8s.io/v1", "authorization.k8s.io/v1", "batch/v1", "coordination.k8s.io/v1",
	"discovery.k8s.io/v1", "events.k8s.io/v1", "networking.k8s.io/v1", "node.k8s.io/v1", "policy/v1",
	"rbac.authorization.k8s.io/v1", "scheduling.k8s.io/v1", "storage.k8s.io/v1",
}

var (
	queue []reflect.Type
	seen  = map[reflect.Type]bool{}
)

func main() {
	fmt.Print(header)
	for _, version := range order {
		for _, root := range roots[version] {
			t := reflect.TypeOf(root)
			fmt.Printf("%s.%s\n", version, t.Name())
			write(t)
		}
	}
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		fmt.Println(name(next))
		write(next)
	}
}

func write(t reflect.Type) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		numbered := strings.Split(field.Tag.Get("protobuf"), ",")
		if len(numbered) < 2 {
			continue
		}
		tag := strings.Split(field.Tag.Get("json"), ",")
		label := tag[0]
		if field.Anonymous && label == "" {
			label = "-"
		}
		omission := "-"
		if strings.Contains(field.Tag.Get("json"), ",omitempty") || strings.Contains(field.Tag.Get("json"), ",omitzero") {
			omission = "o"
		}
		fmt.Println("", numbered[1], label, omission, expression(field.Type))
	}
}

func expression(t reflect.Type) string {
	switch t.String() {
	case "resource.Quantity", "v1.Time", "v1.MicroTime", "v1.Duration", "intstr.IntOrString":
		return strings.ToLower(t.Name())
	case "v1.FieldsV1", "runtime.RawExtension":
		return "json"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + expression(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		// Lists in a map are separate messages.
		if t.Name() == "ExtraValue" {
			return "texts"
		}
		return "list " + expression(t.Elem())
	case reflect.Map:
		return "map " + expression(t.Elem())
	case reflect.Struct:
		if !seen[t] {
			seen[t] = true
			queue = append(queue, t)
		}
		return "@" + name(t)
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64:
		return "int"
	}
	panic("no expression for " + t.String())
}

// Names of object kinds start with a version, names of other types with their package.
func name(t reflect.Type) string {
	path := strings.TrimPrefix(strings.TrimPrefix(t.PkgPath(), "k8s.io/apimachinery/pkg/apis/"), "k8s.io/api/")
	return "go/" + path + "." + t.Name()
}
