// A provisioner that only creates directories, built on the Go library for provisioners. The measurements compare
// kube-provisioner with it, and a test runs it on the simulated API server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Volumes are directories under root. If root is empty, no directories are created.
type provisioner struct {
	root  string
	sync  bool
	delay time.Duration
}

func (p provisioner) Provision(
	ctx context.Context,
	options controller.ProvisionOptions,
) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	if err := pause(ctx, p.delay); err != nil {
		return nil, controller.ProvisioningInBackground, err
	}
	path := filepath.Join("/nonexistent", options.PVName)
	if p.root != "" {
		path = filepath.Join(p.root, options.PVName)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, controller.ProvisioningFinished, err
		}
		if p.sync {
			if err := errors.Join(fsync(path), fsync(p.root)); err != nil {
				return nil, controller.ProvisioningInBackground, err
			}
		}
	}
	policy := v1.PersistentVolumeReclaimDelete
	if options.StorageClass.ReclaimPolicy != nil {
		policy = *options.StorageClass.ReclaimPolicy
	}
	volume := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: policy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity:                      options.PVC.Spec.Resources.Requests,
			VolumeMode:                    options.PVC.Spec.VolumeMode,
			PersistentVolumeSource:        v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}},
		},
	}
	return volume, controller.ProvisioningFinished, nil
}

func (p provisioner) Delete(ctx context.Context, volume *v1.PersistentVolume) error {
	if err := pause(ctx, p.delay); err != nil {
		return err
	}
	if p.root == "" {
		return nil
	}
	path := volume.Spec.HostPath.Path
	if !strings.HasPrefix(path, filepath.Clean(p.root)+string(filepath.Separator)) {
		return fmt.Errorf("%s is not below %s", path, p.root)
	}
	return os.RemoveAll(path)
}

func fsync(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

func pause(ctx context.Context, delay time.Duration) error {
	if delay == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(delay):
		return nil
	}
}

func main() {
	var (
		kubeconfig   = flag.String("kubeconfig", "", "kubeconfig file")
		name         = flag.String("provisioner", "example.com/go", "name of the provisioner")
		root         = flag.String("root", "", "directory of the volumes; if empty, no directories are created")
		sync         = flag.Bool("sync", false, "write each directory and the root to the disk before the volume is saved")
		delay        = flag.Duration("delay", 0, "how long each provision and delete takes")
		threads      = flag.Int("threads", controller.DefaultThreadiness, "workers for claims, and as many for volumes")
		addFinalizer = flag.Bool("add-finalizer", controller.DefaultAddFinalizer, "protect volumes with a finalizer")
		qps          = flag.Float64("qps", 0, "requests per second to the API server; 0: client-go's default, below 0: no limit")
	)
	klog.InitFlags(nil)
	flag.Parse()
	defer klog.Flush()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	exitOn(err)
	config.QPS = float32(*qps)
	client, err := kubernetes.NewForConfig(config)
	exitOn(err)

	ctrl := controller.NewProvisionController(
		ctx, client, *name, provisioner{root: *root, sync: *sync, delay: *delay},
		controller.LeaderElection(false),
		controller.Threadiness(*threads),
		controller.AddFinalizer(*addFinalizer),
	)
	ctrl.Run(ctx)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
