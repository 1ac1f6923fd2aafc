// go-fuse's loopback file system: SOURCE, shown at MOUNTPOINT until it is unmounted. What the kernel may remember,
// it may for as long as go-fuse's own example has it: a second.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go-fuse SOURCE MOUNTPOINT")
		os.Exit(2)
	}
	root, err := fs.NewLoopbackRoot(os.Args[1])
	second := time.Second
	options := &fs.Options{
		EntryTimeout: &second,
		AttrTimeout:  &second,
		MountOptions: fuse.MountOptions{AllowOther: true, DirectMount: true, FsName: os.Args[1], Name: "loopback"},
	}
	var server *fuse.Server
	if err == nil {
		server, err = fs.Mount(os.Args[2], root, options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-fuse:", err)
		os.Exit(1)
	}
	server.Wait()
}
