// The command registrar registers a CSI driver with the kubelet, like node-driver-registrar. It is not written in Rust because the
// kubelet sends the socket's path in the header :authority, which h2 refuses (https://github.com/hyperium/h2/issues/442).
//
//	registrar DRIVER SOCKET PLUGINS_REGISTRY
package main

import (
	"context"
	"log"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type registrar struct {
	registration.UnimplementedRegistrationServer
	info *registration.PluginInfo
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return r.info, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %t %s", status.PluginRegistered, status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func main() {
	driver, socket, registry := os.Args[1], os.Args[2], os.Args[3]
	path := filepath.Join(registry, driver+"-reg.sock")
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	info := &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              driver,
		Endpoint:          socket,
		SupportedVersions: []string{"1.0.0"},
	}
	registration.RegisterRegistrationServer(server, &registrar{info: info})
	log.Fatal(server.Serve(listener))
}
