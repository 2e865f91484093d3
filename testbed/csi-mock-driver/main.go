// The command csi-mock-driver serves the mock driver of Kubernetes' end-to-end tests on a socket.
//
//	csi-mock-driver NAME SOCKET
package main

import (
	"context"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	name, socket := os.Args[1], os.Args[2]
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	mock := service.New(service.Config{DriverName: name, DisableAttach: true, IO: service.OSDirIO{}})
	csiDriver := driver.NewCSIDriver(&driver.CSIDriverServers{Controller: mock, Identity: mock, Node: mock})
	answer := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(ctx, request)
	}
	if err := csiDriver.Start(listener, answer); err != nil {
		log.Fatal(err)
	}
	select {}
}
