// A daemon around stargz-snapshotter's library: a proxy snapshotter for containerd that mounts eStargz layers lazily.
//
// Debian's package brings no daemon, and the project's own commands are no module that a Go proxy serves. What it does is
// what containerd-stargz-grpc does with its defaults; hosts on loopback are asked over plain HTTP, as its library does.
//
// usage: stargz -address SOCKET -root FOLDER [-background]
package main

import (
	"context"
	"flag"
	"log"
	"net"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/v2/contrib/snapshotservice"
	"github.com/containerd/stargz-snapshotter/fs/config"
	"github.com/containerd/stargz-snapshotter/service"
	"google.golang.org/grpc"
)

func main() {
	address := flag.String("address", "", "unix socket to serve on")
	root := flag.String("root", "", "folder for snapshots and caches")
	background := flag.Bool("background", false, "fetch the rest of each layer by itself")
	flag.Parse()
	if *address == "" || *root == "" {
		log.Fatal("-address and -root are required")
	}
	settings := &service.Config{Config: config.Config{NoPrometheus: true, NoBackgroundFetch: !*background}}
	snapshotter, err := service.NewStargzSnapshotterService(context.Background(), *root, settings)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", *address)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	snapshotsapi.RegisterSnapshotsServer(server, snapshotservice.FromSnapshotter(snapshotter))
	log.Print("serving")
	log.Fatal(server.Serve(listener))
}
