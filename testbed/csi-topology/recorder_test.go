// Records the results of GenerateAccessibilityRequirements of external-provisioner. record.sh adds this file to upstream's tests, and
// replaces their calls of that function. Each situation is recorded once, with and without a selected node, strict and immediate topology.
package controller

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	fakeclientset "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelistersv1 "k8s.io/client-go/listers/storage/v1"
)

type recordedNode struct {
	Name string `json:"name"`
	// Nil if the API object does not exist.
	Labels *map[string]string `json:"labels,omitempty"`
	Keys   *[]string          `json:"keys,omitempty"`
}

type situation struct {
	Claim   string                    `json:"claim"`
	Allowed []v1.TopologySelectorTerm `json:"allowed"`
	Nodes   []recordedNode            `json:"nodes"`
}

type result struct {
	// The calls with this result, each as SELECTED NODE,strict,immediate.
	When      []string            `json:"when"`
	Requisite []map[string]string `json:"requisite,omitempty"`
	// Preferred equals requisite, rotated to begin at this index.
	First int    `json:"first"`
	Error string `json:"error,omitempty"`
	// True if there is no requirement.
	None bool `json:"none,omitempty"`
}

type recordedCase struct {
	situation
	Results []result `json:"results"`
}

var recorded = map[string]bool{}

// Replaces GenerateAccessibilityRequirements in upstream's tests.
func recordRequirements(client kubernetes.Interface, driver string, uid types.UID, claim string, allowed []v1.TopologySelectorTerm,
	selected string, strict, immediate bool, csiNodes storagelistersv1.CSINodeLister, nodes corelisters.NodeLister, store TopologyProvider) (*csi.TopologyRequirement, error) {
	if csiNodes == nil {
		_, csiNodes, nodes, _, _, _ = listers(fakeclientset.NewSimpleClientset())
	}
	recordSituation(driver, claim, allowed, csiNodes, nodes)
	return GenerateAccessibilityRequirements(client, driver, uid, claim, allowed, selected, strict, immediate, csiNodes, nodes, store)
}

func recordSituation(driver, claim string, allowed []v1.TopologySelectorTerm, csiNodes storagelistersv1.CSINodeLister, nodes corelisters.NodeLister) {
	one := recordedCase{situation: situation{Claim: claim, Allowed: allowed, Nodes: known(driver, csiNodes, nodes)}}
	id := text(one.situation)
	if recorded[id] {
		return
	}
	recorded[id] = true
	selections := []string{"", "node-absent"}
	for _, node := range one.Nodes[:min(3, len(one.Nodes))] {
		selections = append(selections, node.Name)
	}
	for _, selected := range selections {
		for _, strict := range []bool{false, true} {
			for _, immediate := range []bool{false, true} {
				requirement, err := GenerateAccessibilityRequirements(nil, driver, "uid", claim, allowed, selected, strict, immediate, csiNodes, nodes, NewInMemoryStore())
				now := result{None: requirement == nil && err == nil}
				if err != nil {
					now.Error = err.Error()
				} else if requirement != nil {
					now.Requisite = segments(requirement.Requisite)
					now.First = slices.IndexFunc(now.Requisite, func(term map[string]string) bool { return reflect.DeepEqual(term, requirement.Preferred[0].Segments) })
					rotated := slices.Concat(now.Requisite[now.First:], now.Requisite[:now.First])
					if !reflect.DeepEqual(segments(requirement.Preferred), rotated) {
						panic(fmt.Sprintf("preferred is no rotation: %v", requirement))
					}
				}
				when := fmt.Sprintf("%s,%t,%t", selected, strict, immediate)
				at := slices.IndexFunc(one.Results, func(other result) bool {
					return other.None == now.None && other.First == now.First && (other.Error == "") == (now.Error == "") && reflect.DeepEqual(other.Requisite, now.Requisite)
				})
				if at < 0 {
					at, one.Results = len(one.Results), append(one.Results, now)
				}
				one.Results[at].When = append(one.Results[at].When, when)
			}
		}
	}
	file, err := os.OpenFile(os.Getenv("RECORD_TO"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintln(file, text(one))
}

func known(driver string, csiNodes storagelistersv1.CSINodeLister, nodes corelisters.NodeLister) []recordedNode {
	byName := map[string]*recordedNode{}
	at := func(name string) *recordedNode {
		if byName[name] == nil {
			byName[name] = &recordedNode{Name: name}
		}
		return byName[name]
	}
	all, _ := nodes.List(labels.Everything())
	for _, node := range all {
		at(node.Name).Labels = &node.Labels
	}
	allCSI, _ := csiNodes.List(labels.Everything())
	for _, node := range allCSI {
		keys := append([]string{}, getTopologyKeys(node, driver)...)
		at(node.Name).Keys = &keys
	}
	list := []recordedNode{}
	for _, node := range byName {
		list = append(list, *node)
	}
	slices.SortFunc(list, func(a, b recordedNode) int { return len(a.Name) - len(b.Name) + slices.Compare([]byte(a.Name), []byte(b.Name))*100 })
	return list
}

func segments(topologies []*csi.Topology) []map[string]string {
	var list []map[string]string
	for _, topology := range topologies {
		list = append(list, topology.Segments)
	}
	return list
}

func text(value any) string {
	written, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(written)
}

// Cases that upstream's tests do not cover.
func TestFurtherSituations(t *testing.T) {
	const zone, rack, host = "com.example.csi/zone", "com.example.csi/rack", "com.example.csi/host"
	requirement := func(key string, values ...string) v1.TopologySelectorLabelRequirement {
		return v1.TopologySelectorLabelRequirement{Key: key, Values: values}
	}
	term := func(requirements ...v1.TopologySelectorLabelRequirement) v1.TopologySelectorTerm {
		return v1.TopologySelectorTerm{MatchLabelExpressions: requirements}
	}
	place := func(z, r, h string) map[string]string { return map[string]string{zone: z, rack: r, host: h} }
	three := []map[string]string{place("b", "2", "x"), place("a", "10", "y"), place("a", "9", "z")}
	keys := func(sets ...[]string) (all []map[string][]string) {
		for _, set := range sets {
			all = append(all, map[string][]string{testDriverName: set})
		}
		return all
	}
	in := func(claim string, allowed []v1.TopologySelectorTerm, labels []map[string]string, keys []map[string][]string) {
		_, csiNodes, nodes, _, _, stop := listers(fakeclientset.NewSimpleClientset(buildNodes(labels), buildCSINodes(keys)))
		defer close(stop)
		recordSituation(testDriverName, claim, allowed, csiNodes, nodes)
	}
	byZone := keys([]string{zone, rack}, []string{rack, zone}, []string{zone, rack})
	for _, claim := range []string{
		"data", "data-web", "data-web-0", "data-web-1", "data-web-2", "logs-web-2", "web-7", "7", "-7", "data-web-", "data-web--1", "data-web-07",
		"data-web-4294967295", "data-web-4294967296", "data-web-99999999999999999999", "data-web-1.2", "data-web-+1", "data-web-1a", "a-b-c-d-3",
	} {
		in(claim, nil, three, byZone)
	}
	for _, allowed := range [][]v1.TopologySelectorTerm{
		{term(requirement("unknown", "1"))},
		{term(requirement(zone, "a"), requirement("unknown", "1"))},
		{term(requirement(zone, "a", "b"))},
		{term(requirement(rack, "10", "2"))},
		{term(requirement(zone, "c"))},
		{term(requirement(zone, "a", "b"), requirement(rack, "2", "9"), requirement(host, "x", "y", "z"))},
		{term(requirement(zone, "a"), requirement(zone, "b"))},
		{term(requirement(zone)), term(requirement(zone, "b"))},
		{term(requirement(zone), requirement(rack, "9"))},
		{term()},
		{term(), term(requirement(zone, "a"))},
		{term(requirement(rack, "9"), requirement(zone, "a")), term(requirement(zone, "b"))},
		{term(requirement(zone, "a", "a"))},
	} {
		in("data-web-1", allowed, three, byZone)
		in("data", allowed, three, keys([]string{zone}, []string{zone, rack, host}, nil))
	}
	in("data", nil, []map[string]string{{zone: ""}, {zone: "a"}}, keys([]string{zone}, []string{zone}))
	in("data", nil, three, keys([]string{zone, rack}, []string{zone}, []string{host}))
	in("data", nil, []map[string]string{{rack: "1"}, {zone: "a", rack: "1"}}, keys([]string{zone, rack}, []string{zone, rack}))
	in("data", nil, three[:1], keys([]string{zone}, []string{rack}))
}
