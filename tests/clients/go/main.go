// Three Go clients against a broker: arguments BOOTSTRAP BASE_MS PREFIX CLIENT, one line a case on stdout, then `done`.
package main

import (
	"fmt"
	"os"
	"strconv"
)

func main() {
	clients := map[string]func(bootstrap string) (adapter, error){"franz-go": newFranz, "sarama": newSarama, "kafka-go": newSegmentio}
	bootstrap, base, prefix, name := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	baseMs, err := strconv.ParseInt(base, 10, 64)
	if err != nil {
		fail(err)
	}
	client, err := clients[name](bootstrap)
	if err != nil {
		fail(err)
	}
	cases{client, baseMs, prefix + "-" + name + "-"}.run()
	fmt.Println("done")
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
