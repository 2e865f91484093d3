// Writes shapes.txt: the properties of Kubernetes' built-in Go types that decoding, strategic merge patches and
// server-side apply depend on. Run it with the path of client-go's applyconfigurations/internal/internal.go.
package main

import (
	"fmt"
	"os"
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
	"sigs.k8s.io/yaml"
)

const header = `# The built-in types of Kubernetes 1.37 (k8s.io/api v0.37.1, client-go v0.37.1), written by main.go beside this file.
# A type: its id, then "atomic" where server-side apply takes it as a whole. A field, indented: name in JSON (after the
# embedded struct it comes from), name in Go, omission (o: omitempty, z: omitzero), strategic merge patch strategy and
# key, server-side apply topology, type ("*" pointer, "@" struct, "base:name" a named type).
`

var roots = []any{
	core.ConfigMap{}, core.Endpoints{}, core.Event{}, core.LimitRange{}, core.Namespace{}, core.Node{},
	core.PersistentVolumeClaim{}, core.PersistentVolume{}, core.Pod{}, core.PodTemplate{}, core.ReplicationController{},
	core.ResourceQuota{}, core.Secret{}, core.ServiceAccount{}, core.Service{},
	apps.ControllerRevision{}, apps.DaemonSet{}, apps.Deployment{}, apps.ReplicaSet{}, apps.StatefulSet{},
	authentication.SelfSubjectReview{}, authentication.TokenReview{},
	authorization.LocalSubjectAccessReview{}, authorization.SelfSubjectAccessReview{},
	authorization.SelfSubjectRulesReview{}, authorization.SubjectAccessReview{},
	batch.CronJob{}, batch.Job{}, coordination.Lease{}, discovery.EndpointSlice{}, events.Event{},
	networking.IngressClass{}, networking.Ingress{}, networking.NetworkPolicy{}, node.RuntimeClass{},
	policy.PodDisruptionBudget{}, rbac.ClusterRoleBinding{}, rbac.ClusterRole{}, rbac.RoleBinding{}, rbac.Role{},
	scheduling.PriorityClass{},
	storage.CSIDriver{}, storage.CSINode{}, storage.CSIStorageCapacity{}, storage.StorageClass{},
	storage.VolumeAttachment{}, storage.VolumeAttributesClass{},
}

// The schema of structured-merge-diff.
type element struct {
	NamedType           string `json:"namedType"`
	List                *list  `json:"list"`
	Map                 *fieldMap
	ElementRelationship string `json:"elementRelationship"`
}
type list struct {
	ElementRelationship string   `json:"elementRelationship"`
	Keys                []string `json:"keys"`
}
type fieldMap struct {
	Fields []struct {
		Name string  `json:"name"`
		Type element `json:"type"`
	} `json:"fields"`
	ElementRelationship string `json:"elementRelationship"`
}
type namedType struct {
	Name    string `json:"name"`
	element `json:",inline"`
}

var (
	schema = map[string]namedType{}
	queue  []reflect.Type
	seen   = map[string]bool{}
)

func main() {
	source, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	text := string(source)
	text = text[strings.Index(text, "`types:")+1 : strings.LastIndex(text, "`)")]
	var parsed struct {
		Types []namedType `json:"types"`
	}
	if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
		panic(err)
	}
	for _, named := range parsed.Types {
		schema[named.Name] = named
	}
	fmt.Print(header)
	for _, root := range roots {
		push(reflect.TypeOf(root))
	}
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		fields := schema[schemaName(next)].Map
		if fields != nil && fields.ElementRelationship == "atomic" {
			fmt.Println(id(next), "atomic")
		} else {
			fmt.Println(id(next))
		}
		write(next, fields, "")
	}
}

func write(t reflect.Type, fields *fieldMap, embedded string) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("json"), ",")
		if field.Type.Name() == "TypeMeta" {
			fmt.Println(" apiVersion APIVersion o - - text")
			fmt.Println(" kind Kind o - - text")
			continue
		}
		if field.Anonymous && tag[0] == "" {
			write(field.Type, fields, embedded+field.Name+".")
			continue
		}
		omission := ""
		for _, option := range tag[1:] {
			switch option {
			case "omitempty":
				omission += "o"
			case "omitzero":
				omission += "z"
			}
		}
		patch := field.Tag.Get("patchStrategy")
		if key := field.Tag.Get("patchMergeKey"); key != "" {
			patch += "=" + key
		}
		topology := ""
		if fields != nil {
			for _, known := range fields.Fields {
				if known.Name == tag[0] {
					topology = apply(known.Type)
				}
			}
		}
		fmt.Println("", embedded+tag[0], field.Name, dash(omission), dash(patch), dash(topology), expression(field.Type))
	}
}

func apply(e element) string {
	if e.List != nil {
		switch {
		case e.List.ElementRelationship != "associative":
			return "atomic"
		case len(e.List.Keys) == 0:
			return "set"
		default:
			return "map=" + strings.Join(e.List.Keys, "+")
		}
	}
	if e.ElementRelationship == "atomic" || e.Map != nil && e.Map.ElementRelationship == "atomic" {
		return "atomic"
	}
	if e.ElementRelationship == "separable" {
		return "granular"
	}
	return ""
}

func expression(t reflect.Type) string {
	switch id(t) {
	case "api/resource.Quantity":
		return "quantity"
	case "meta/v1.Time":
		return "time"
	case "meta/v1.MicroTime":
		return "microtime"
	case "meta/v1.Duration":
		return "duration"
	case "util/intstr.IntOrString":
		return "intorstring"
	case "meta/v1.FieldsV1", "runtime.RawExtension":
		return "any"
	}
	name := ""
	if t.PkgPath() != "" {
		name = ":" + t.String()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + expression(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes" + name
		}
		return "list" + name + " " + expression(t.Elem())
	case reflect.Map:
		return "map" + name + " " + expression(t.Elem())
	case reflect.Struct:
		push(t)
		return "@" + id(t)
	case reflect.String:
		return "text" + name
	case reflect.Bool, reflect.Int32, reflect.Int64:
		return t.Kind().String() + name
	}
	panic("no expression for " + t.String())
}

func push(t reflect.Type) {
	if !seen[id(t)] {
		seen[id(t)] = true
		queue = append(queue, t)
	}
}

func id(t reflect.Type) string {
	path := t.PkgPath()
	for _, prefix := range []string{"k8s.io/api/", "k8s.io/apimachinery/pkg/apis/", "k8s.io/apimachinery/pkg/"} {
		path = strings.TrimPrefix(path, prefix)
	}
	return path + "." + t.Name()
}

func schemaName(t reflect.Type) string {
	path := strings.NewReplacer("k8s.io/", "io.k8s.", "/", ".").Replace(t.PkgPath())
	return path + "." + t.Name()
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
