package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// patience is how long anything may take before it counts as a failure.
const patience = 20 * time.Second

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// adapter is what the cases need of a client, without a consumer group.
type adapter interface {
	// create makes a topic of that many partitions.
	create(topic string) error
	// write returns the offsets as acknowledged, in the order of the records (anything with acks 0).
	write(topic string, records []record, codec, acks string, idempotent bool) ([]int64, error)
	// read returns count records from the given first offsets on: fewer when patience ends, more when there are more.
	read(topic string, first map[int32]int64, count int) ([]record, error)
	// offsetAt is the first offset at or after that time, -1 when there is none.
	offsetAt(topic string, partition int32, ms int64) (int64, error)
	// bounds are the first and the end offset.
	bounds(topic string, partition int32) ([2]int64, error)
	// admin checks what the client's admin side can do on that topic.
	admin(topic string, baseMs int64) error
	// idempotence says whether the client has idempotent producers.
	idempotence() bool
}

type cases struct {
	client adapter
	baseMs int64
	prefix string
}

func (c cases) run() {
	for _, codec := range codecs {
		for _, acks := range []string{"0", "1", "all"} {
			report(codec+"/"+acks, c.roundTrip(codec+"-"+acks, codec, acks, false))
		}
	}
	if c.client.idempotence() {
		report("idempotent", c.roundTrip("idempotent", "lz4", "all", true))
	}
	report("large", c.large())
	for _, codec := range codecs {
		report("by-time/"+codec, c.byTime(codec))
	}
	report("bounds", c.bounds())
	report("middle", c.middle())
	report("admin", c.admin())
}

func (c cases) roundTrip(name, codec, acks string, idempotent bool) error {
	topic, err := c.create(name)
	if err != nil {
		return err
	}
	var records []record
	var offsets []int64
	for i := range recordCount {
		records = append(records, newRecord(int64(i), c.baseMs))
		offsets = append(offsets, int64(i/partitions))
	}
	acknowledged, err := c.client.write(topic, records, codec, acks, idempotent)
	if err != nil {
		return err
	}
	if acks != "0" {
		if err := equal("acknowledged offsets", offsets, acknowledged); err != nil {
			return err
		}
	}
	return c.check(topic, map[int32]int64{0: 0, 1: 0, 2: 0})
}

// check finds in the partitions, from the first offsets on, what was written, in order, and nothing else.
func (c cases) check(topic string, first map[int32]int64) error {
	count := 0
	for _, offset := range first {
		count += perPartition - int(offset)
	}
	found, err := c.client.read(topic, first, count)
	if err != nil {
		return err
	}
	if err := equal("number of records", count, len(found)); err != nil {
		return err
	}
	next := first
	for _, one := range found {
		expected := newRecord(next[one.partition]*partitions+int64(one.partition), c.baseMs)
		if err := equal("record", expected.String(), one.String()); err != nil {
			return err
		}
		next[one.partition]++
	}
	return nil
}

func (c cases) large() error {
	topic, err := c.create("large")
	if err != nil {
		return err
	}
	value := make([]byte, 900_000)
	for at := range value {
		value[at] = byte(at % 251)
	}
	one := newRecord(0, c.baseMs)
	one.value = value
	if _, err := c.client.write(topic, []record{one}, "none", "all", false); err != nil {
		return err
	}
	found, err := c.client.read(topic, map[int32]int64{0: 0}, 1)
	if err != nil {
		return err
	}
	return equal("same record", true, len(found) == 1 && found[0].String() == one.String())
}

func (c cases) byTime(codec string) error {
	topic := c.prefix + codec + "-all"
	at := int64(perPartition / 2)
	for partition := range int32(partitions) {
		exact := newRecord(at*partitions+int64(partition), c.baseMs).timestamp
		for ms, expected := range map[int64]int64{0: 0, exact: at, exact + 1: at + 1, c.baseMs + 3_000_000: -1} {
			found, err := c.client.offsetAt(topic, partition, ms)
			if err := errors.Join(err, equal(fmt.Sprintf("offset at %d", ms), expected, found)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c cases) bounds() error {
	found, err := c.client.bounds(c.prefix+"none-all", 1)
	return errors.Join(err, equal("offsets", [2]int64{0, perPartition}, found))
}

func (c cases) middle() error {
	for _, codec := range codecs {
		for _, first := range []int64{1, 10, perPartition - 1} {
			if err := c.check(c.prefix+codec+"-all", map[int32]int64{1: first}); err != nil {
				return fmt.Errorf("%s from %d: %w", codec, first, err)
			}
		}
	}
	return nil
}

func (c cases) admin() error {
	topic, err := c.create("admin")
	if err != nil {
		return err
	}
	return c.client.admin(topic, c.baseMs)
}

// create waits until the leaders serve: a topic is known earlier, and a write with acks 0 in between may be lost.
func (c cases) create(name string) (string, error) {
	topic := c.prefix + name
	if err := c.client.create(topic); err != nil {
		return topic, err
	}
	for partition := range int32(partitions) {
		err := eventually("bounds of a new partition", [2]int64{}, func() ([2]int64, error) { return c.client.bounds(topic, partition) })
		if err != nil {
			return topic, err
		}
	}
	return topic, nil
}

func report(name string, err error) {
	if err == nil {
		fmt.Println("ok", name)
	} else {
		fmt.Printf("FAIL %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

func equal(what string, expected, found any) error {
	if reflect.DeepEqual(expected, found) {
		return nil
	}
	return fmt.Errorf("%s: expected %v, found %v", what, expected, found)
}

// eventually waits for metadata, which follows an acknowledged change with a delay that nothing bounds; until then there
// may be no answer.
func eventually[T any](what string, expected T, ask func() (T, error)) error {
	deadline := time.Now().Add(patience)
	for {
		found, err := ask()
		wrong := errors.Join(err, equal(what, expected, found))
		if wrong == nil || time.Now().After(deadline) {
			return wrong
		}
		time.Sleep(50 * time.Millisecond)
	}
}
